import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.engine.owed import Owed, merged, within

SECOND = 1_000_000_000


def spans(owed):
    return [(span.start, span.end, span.again) for span in owed.pending]


@pytest.fixture
def owed():
    """Owes 10 to 20, of which 12 to 14 was delivered before, and 30 and 31 at later times."""
    owed = Owed()
    owed.extend(10, 12)
    owed.put_back(12, 14)
    owed.extend(14, 20)
    owed.defer(31, 32, 9 * SECOND)
    owed.defer(30, 31, 5 * SECOND)
    return owed


@pytest.mark.parametrize(
    ("seq", "left"),
    [
        (10, [(11, 12, False), (12, 14, True), (14, 20, False)]),
        (11, [(10, 11, False), (12, 14, True), (14, 20, False)]),
        (13, [(10, 12, False), (12, 13, True), (14, 20, False)]),
        (16, [(10, 12, False), (12, 14, True), (14, 16, False), (17, 20, False)]),
        (19, [(10, 12, False), (12, 14, True), (14, 19, False)]),
    ],
)
def test_a_message_is_taken_out_of_what_waits(owed, seq, left):
    assert owed.take_out({seq}) == {seq}

    assert spans(owed) == left
    assert owed.depth == 9
    assert owed.take_out({seq}) == set()


def test_the_only_message_of_a_span_takes_the_span_along():
    owed = Owed()
    owed.extend(5, 6)

    assert owed.take_out({5}) == {5}
    assert (spans(owed), owed.depth) == ([], 0)


def test_a_deferred_message_is_taken_out_and_the_others_keep_their_order(owed):
    owed.defer(32, 33, SECOND)
    assert owed.take_out({30}) == {30}

    assert owed.depth == 10
    assert [owed.release_due(now) for now in (SECOND - 1, SECOND, 9 * SECOND - 1, 9 * SECOND)] == [0, 1, 0, 1]
    assert spans(owed)[-2:] == [(32, 33, False), (31, 32, False)]


@pytest.mark.parametrize("seq", [9, 20, 29, 33])
def test_what_is_not_owed_is_not_taken_out(owed, seq):
    assert owed.take_out({seq}) == set()
    assert (owed.depth, len(owed.deferred)) == (10, 2)


def test_all_messages_can_be_taken_out_in_any_order():
    for order in ([3, 1, 4, 0, 2], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]):
        owed = Owed()
        owed.extend(0, 5)
        assert all(owed.take_out({seq}) for seq in order)
        assert (spans(owed), owed.depth) == ([], 0)


def test_many_messages_are_taken_out_at_once_wherever_they_are(owed):
    assert owed.take_out({9, 10, 12, 13, 15, 16, 19, 31, 40}) == {10, 12, 13, 15, 16, 19, 31}

    assert spans(owed) == [(11, 12, False), (14, 15, False), (17, 19, False)]
    assert (owed.depth, list(owed.deferred)) == (4, [(5 * SECOND, 30)])


def test_ranges_are_what_waits_and_what_is_deferred(owed):
    assert sorted(owed.ranges()) == [(10, 12), (12, 14), (14, 20), (30, 31), (31, 32)]
    assert merged(owed.ranges()) == [(10, 20), (30, 32)]
    assert Owed().ranges() == []


@pytest.mark.parametrize(
    ("ranges", "result"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(5, 6), (1, 2)], [(1, 2), (5, 6)]),
        ([(1, 3), (2, 4), (4, 5)], [(1, 5)]),
        ([(1, 9), (2, 3)], [(1, 9)]),
        ([(1, 2), (1, 2)], [(1, 2)]),
    ],
)
def test_ranges_are_merged(ranges, result):
    assert merged(ranges) == result


RANGES = [(10, 20), (30, 31), (40, 50)]


@pytest.mark.parametrize(
    ("first", "end", "found"),
    [
        (0, 100, RANGES),
        (0, 10, []),
        (0, 11, [(10, 11)]),
        (20, 30, []),
        (15, 45, [(15, 20), (30, 31), (40, 45)]),
        (12, 13, [(12, 13)]),
        (30, 31, [(30, 31)]),
        (10, 20, [(10, 20)]),
        (49, 60, [(49, 50)]),
        (50, 60, []),
        (15, 15, []),
    ],
)
def test_the_parts_of_ranges_within_a_stretch(first, end, found):
    assert within(RANGES, first, end) == found


def test_nothing_is_within_no_ranges():
    assert within([], 0, 100) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("defer"), st.integers(0, 40), st.integers(0, 9)),
            st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("take_out"), st.integers(0, 40), st.just(0)),
            st.tuples(st.just("drop_below"), st.integers(0, 40), st.just(0)),
            st.tuples(st.just("take_over"), st.integers(0, 40), st.just(0)),
            st.tuples(st.just("clear"), st.just(0), st.just(0)),
            st.tuples(st.just("ask"), st.just(0), st.just(0)),
        )
    )
)
def test_the_lowest_is_known_whatever_came_and_went(steps):
    owed = Owed()
    for what, number, due in steps:
        if what == "defer":
            owed.defer(number, number + 3, due)
        elif what == "release":
            owed.release_due(number)
        elif what == "take_out":
            owed.take_out({number})
        elif what == "drop_below":
            owed.drop_below(number)
        elif what == "take_over":
            other = Owed()
            other.defer(number, number + 1, 1)
            owed.take_over(other)
        elif what == "clear":
            owed.clear()
        else:
            owed.lowest()

    assert owed.lowest() == min((start for start, _ in owed.ranges()), default=None)
