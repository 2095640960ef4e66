from nsqadmin.figures.history import MOST_SUBJECTS, HistoryBook, Point, curve

SECOND = 1_000_000_000


def points(*depths):
    return [Point(2 * number * SECOND, depth, None) for number, depth in enumerate(depths)]


def test_points_older_than_five_minutes_are_dropped():
    book = HistoryBook()
    for second in range(0, 700, 2):
        kept = book.add(("orders", ""), Point(second * SECOND, second, None))

    assert (kept[0].depth, kept[-1].depth) == (398, 698)


def test_several_viewers_add_one_point():
    book = HistoryBook()
    book.add(("orders", ""), Point(0, 1, None))

    assert len(book.add(("orders", ""), Point(SECOND, 2, None))) == 1


def test_only_what_was_looked_at_lately_is_remembered():
    book = HistoryBook()
    book.add(("first", ""), Point(0, 1, None))
    for number in range(MOST_SUBJECTS):
        book.add((f"topic-{number}", ""), Point(0, 1, None))

    assert len(book.add(("first", ""), Point(2 * SECOND, 2, None))) == 1


def test_there_is_no_line_before_two_values_are_known():
    assert curve([], [], 0) is None
    assert curve(points(1, 2), [None, 2.0], 2 * SECOND) is None


def test_a_line_ends_now_and_reaches_from_the_ground_to_the_highest_value():
    found = curve(points(0, 5, 10), [0, 5, 10], 4 * SECOND)

    assert found.path == "M93.3 23.0 L96.7 12.0 L100.0 1.0"
    assert found.area.endswith(" L100.0 24 L93.3 24 Z")
    assert (found.highest, found.span_s) == (10, 60)


def test_a_queue_that_stays_empty_is_a_flat_line():
    assert curve(points(0, 0), [0, 0], 2 * SECOND).path == "M96.7 23.0 L100.0 23.0"
