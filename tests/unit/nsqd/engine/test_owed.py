import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqd.engine.owed import Owed
from nsqd.log.ranges import merged, within

SECOND = 1_000_000_000


def spans(owed):
    return [(span.start, span.end, span.again) for span in owed.pending]


@pytest.fixture
def owed():
    """Owes 10 to 19, of which 12 and 13 were delivered before, and 30 and 31 at later times."""
    owed = Owed()
    owed.extend(10, 12)
    owed.extend(12, 14, attempts=1)
    owed.extend(14, 20)
    owed.extend(30, 31, 5 * SECOND)
    owed.extend(31, 32, 9 * SECOND)
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
    owed.extend(32, 33, SECOND)
    assert owed.take_out({30}) == {30}

    assert owed.depth == 10
    times = (SECOND - 1, SECOND, 9 * SECOND - 1, 9 * SECOND)
    assert [owed.release_due(now) for now in times] == [None, 32, None, 31]
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


def test_what_is_owed_is_what_was_published_and_not_finished(owed):
    assert owed.owed(0, 100) == [(10, 20), (30, 32)]
    owed.finished.add(12, 15)
    assert owed.owed(11, 31) == [(11, 12), (15, 20), (30, 31)]
    assert (owed.lowest(), Owed().owed(0, 100), Owed().lowest()) == (10, [], None)


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


def test_what_is_dropped_from_a_sequence_on_is_owed_no_more_and_what_is_below_stays():
    owed = Owed()
    owed.begin(10)
    owed.extend(10, 14, attempts=2)
    owed.extend(14, 16, due_ns=5)

    owed.drop_from(12)

    assert owed.owed(0, 20) == [(10, 12)]
    assert (owed.depth, len(owed.deferred), owed.attempts) == (2, 0, {10: 2, 11: 2})
    owed.drop_from(16)
    assert owed.owed(0, 20) == [(10, 12)]


class OwedMachine(RuleBasedStateMachine):
    """After any changes each unfinished message waits or is deferred, and the lowest of them is known."""

    def __init__(self):
        super().__init__()
        self.owed = Owed()
        self.base = self.end = 0

    # Node ids from 512 on set the highest bit of a position.
    @initialize(base=st.sampled_from([0, (1 << 63) - 7, (1 << 64) - 4096]))
    def begin(self, base):
        self.base = self.end = base
        self.owed.begin(base)

    @rule(count=st.integers(1, 5), gap=st.integers(0, 2), due=st.sampled_from([0, 0, 3, 9]))
    def publish(self, count, gap, due):
        start = self.end + gap
        self.end = start + count
        self.owed.extend(start, self.end, due)

    @rule(count=st.integers(3, 8), due=st.sampled_from([3, 9]), tried=st.integers(0, 3))
    def publish_apart(self, count, due, tried):
        for number in range(count):
            start = self.end + 1
            self.end = start + 1
            self.owed.extend(start, self.end, due)
            if number < tried:
                self.owed.attempts[start] = 1

    @rule(now=st.integers(0, 9))
    def release(self, now):
        self.owed.release_due(now)

    @rule(data=st.data(), due=st.integers(1, 9))
    def put_off_again(self, data, due):
        seq = data.draw(st.integers(self.base, self.end))
        for taken in self.owed.take_out({seq}):
            self.owed.put_off(taken, taken + 1, due)

    @rule(data=st.data())
    def drop_below(self, data):
        self.owed.drop_below(data.draw(st.integers(self.base, self.end)))

    @rule(count=st.integers(1, 5), gap=st.integers(0, 2), due=st.sampled_from([0, 4]), done=st.integers(0, 3))
    def take_over(self, count, gap, due, done):
        other = Owed()
        start = self.end + gap
        self.end = start + count
        other.extend(start, self.end, due)
        other.drop_below(min(start + done, self.end))
        self.owed.take_over(other)

    @rule()
    def clear(self):
        self.owed.clear()

    @invariant()
    def it_is_somewhere(self):
        owed = self.owed
        there = owed.waiting()
        half = self.end - (self.end - self.base) // 2
        assert owed.count_below(half) == sum(min(end, half) - start for start, end in there if start < half)
        there += [(start, end) for _, start, end in owed.deferred.runs()]
        assert merged(there) == owed.owed(0, self.end + 10)
        assert sum(end - start for start, end in there) == owed.depth + len(owed.deferred)
        assert owed.lowest() == min((start for start, _ in there), default=None)


OwedMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestOwed = OwedMachine.TestCase
