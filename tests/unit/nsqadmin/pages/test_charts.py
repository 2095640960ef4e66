from nsqadmin.pages.charts import chart, spark
from nsqadmin.stats.points import Point

LINES = (("in", lambda point: point.published), ("out", lambda point: point.finished))


def draw(points, now_s=1000.0, span_s=1000.0):
    return chart("flow", "Flow", points, LINES, now_s, span_s, 5.0)


def test_line_goes_from_point_to_point_as_high_as_highest():
    found = draw(
        [(0.0, Point(published=0.0)), (10.0, Point(published=50.0)), (20.0, Point(published=100.0))],
        span_s=20.0,
        now_s=20.0,
    )

    assert found.highest == 100
    assert found.lines[0].path.startswith("M")
    assert found.lines[0].path.endswith(" 1.0")
    assert (found.lines[0].last, found.lines[1].path) == (100.0, "")


def test_gap_of_history_is_not_drawn():
    points = [(at_s, Point(published=1.0)) for at_s in (0.0, 5.0, 500.0, 505.0)]

    assert draw(points).lines[0].path.count("M") == 2


def test_single_point_is_no_line():
    assert draw([(0.0, Point(published=1.0))]) is None
    assert draw([(0.0, Point()), (5.0, Point())]) is None


def test_history_that_has_just_begun_is_not_squeezed_into_corner():
    found = draw([(980.0, Point(published=1.0)), (990.0, Point(published=1.0))])

    assert (found.start, found.ends) == ("00:11", "00:16")


def test_peak_between_two_pixels_is_seen():
    points = [(float(at_s), Point(published=1000.0 if at_s == 501 else 1.0)) for at_s in range(1000)]

    assert " 1.0" in draw(points).lines[0].path


def test_partial_points_are_path_of_their_own_that_begins_where_line_ends():
    points = [(float(at_s), Point(published=1.0, is_partial=500 <= at_s < 700)) for at_s in range(0, 1000, 5)]

    line = draw(points).lines[0]

    assert (line.path.count("M"), line.partial.count("M")) == (2, 1)
    assert line.partial.startswith("M297.0")
    assert "Flow from 00:00 to 00:16 UTC, at most 1; now in 1" in draw(points).summary


def test_sparkline_is_path_or_nothing():
    assert spark([(0.0, Point(3)), (500.0, Point(1))], lambda point: point.depth, 1000.0, 1000.0).startswith(
        "M0.0 1.0"
    )
    assert spark([(0.0, Point(3))], lambda point: point.depth, 1000.0, 1000.0) == ""
