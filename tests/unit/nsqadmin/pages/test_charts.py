from nsqadmin.figures.points import Point
from nsqadmin.pages.charts import chart, spark

LINES = (("in", lambda point: point.came), ("out", lambda point: point.went))


def draw(points, now_s=1000.0, span_s=1000.0, events=()):
    return chart("flow", "Flow", points, LINES, now_s, span_s, 5.0, events)


def test_a_line_goes_from_point_to_point_as_high_as_the_highest():
    found = draw(
        [(0.0, Point(came=0.0)), (10.0, Point(came=50.0)), (20.0, Point(came=100.0))], span_s=20.0, now_s=20.0
    )

    assert found.highest == 100
    assert found.lines[0].path.startswith("M")
    assert found.lines[0].path.endswith(" 1.0")
    assert (found.lines[0].last, found.lines[1].path) == (100.0, "")


def test_where_nothing_was_seen_nothing_is_drawn():
    points = [(at_s, Point(came=1.0)) for at_s in (0.0, 5.0, 500.0, 505.0)]

    assert draw(points).lines[0].path.count("M") == 2


def test_one_point_is_no_line():
    assert draw([(0.0, Point(came=1.0))]) is None
    assert draw([(0.0, Point()), (5.0, Point())]) is None


def test_a_history_that_has_just_begun_is_not_squeezed_into_a_corner():
    found = draw([(980.0, Point(came=1.0)), (990.0, Point(came=1.0))])

    assert (found.begins, found.ends) == ("00:11", "00:16")


def test_a_peak_between_two_pixels_is_seen():
    points = [(float(at_s), Point(came=1000.0 if at_s == 501 else 1.0)) for at_s in range(1000)]

    assert " 1.0" in draw(points).lines[0].path


def test_what_happened_is_marked_where_it_was():
    found = draw(
        [(0.0, Point(came=1.0)), (1000.0, Point(came=1.0))],
        events=[(500.0, "down", "nsqd left"), (-5.0, "old", "before")],
    )

    assert [(mark.x, mark.kind, mark.text) for mark in found.marks] == [(300.0, "down", "00:08 nsqd left")]
    assert "Flow from 00:00 to 00:16 UTC, at most 1; now in 1" in found.summary


def test_a_sparkline_is_a_path_or_nothing():
    assert spark([(0.0, Point(3)), (500.0, Point(1))], lambda point: point.depth, 1000.0, 1000.0).startswith(
        "M0.0 1.0"
    )
    assert spark([(0.0, Point(3))], lambda point: point.depth, 1000.0, 1000.0) == ""
