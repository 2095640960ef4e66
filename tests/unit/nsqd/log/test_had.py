"""The messages that a log has, or had."""

from nsqd.log.had import MAX_REMEMBERED_RANGES, HadRanges


def test_a_log_has_all_from_its_beginning_to_its_end():
    assert HadRanges(10).ranges(25) == [(10, 25)]


def test_an_empty_log_has_nothing():
    assert HadRanges(10).ranges(10) == []


def test_numbers_that_were_passed_over_were_never_had():
    had = HadRanges(10)
    had.go_on_at(20, 30)
    had.go_on_at(35, 40)

    assert had.ranges(41) == [(10, 20), (30, 35), (40, 41)]


def test_numbers_without_a_message_are_unused():
    had = HadRanges(10)
    had.go_on_at(20, 30)
    had.go_on_at(35, 40)

    assert had.unused(0, 50) == [(0, 10), (20, 30), (35, 40)]
    assert had.unused(12, 18) == had.unused(30, 33) == had.unused(45, 45) == []


def test_numbers_below_the_remembered_ranges_are_not_called_unused():
    had = HadRanges(0)
    for number in range(MAX_REMEMBERED_RANGES + 1):
        had.go_on_at(10 * number + 5, 10 * number + 10)

    assert had.unused(0, 30) == [(15, 20), (25, 30)]


def test_numbers_passed_over_twice_before_anything_is_stored_leave_one_hole():
    had = HadRanges(10)
    had.go_on_at(20, 30)
    had.go_on_at(20, 40)

    assert had.ranges(20) == [(10, 20)]
    assert had.ranges(45) == [(10, 20), (40, 45)]


def test_a_log_that_goes_on_where_it_ended_has_no_hole():
    had = HadRanges(10)
    had.go_on_at(20, 20)

    assert had.ranges(30) == [(10, 30)]


def test_what_cannot_be_read_any_more_is_not_spoken_of():
    had = HadRanges(10)
    had.go_on_at(20, 30)
    had.take_out(12, 14)
    had.take_out(18, 32)
    had.take_out(40, 41)

    assert had.ranges(50) == [(10, 12), (14, 18), (32, 40), (41, 50)]


def test_what_is_taken_out_up_to_the_end_leaves_room_for_what_comes():
    had = HadRanges(10)
    had.take_out(15, 20)

    assert had.ranges(20) == [(10, 15)]
    assert had.ranges(22) == [(10, 15), (20, 22)]


def test_what_a_checkpoint_said_is_had_below_the_new_beginning_only():
    had = HadRanges(0)
    had.begin([(5, 9), (1, 3), (8, 100)], 50)

    assert had.ranges(60) == [(1, 3), (5, 60)]


def test_of_very_many_ranges_the_newest_are_remembered():
    had = HadRanges(0)
    for life in range(2 * MAX_REMEMBERED_RANGES):
        had.go_on_at(life * 10 + 5, life * 10 + 10)

    assert len(had.closed) == MAX_REMEMBERED_RANGES
    assert had.closed[-1] == ((2 * MAX_REMEMBERED_RANGES - 1) * 10, (2 * MAX_REMEMBERED_RANGES - 1) * 10 + 5)
