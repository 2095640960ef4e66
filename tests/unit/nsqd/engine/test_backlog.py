import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqd.engine.backlog import Backlog
from nsqd.log.ranges import merged, within

SECOND = 1_000_000_000


def spans(pending):
    return [(span.start, span.end, span.redelivered) for span in pending.queue]


@pytest.fixture
def pending():
    """Owes 10 to 19, of which 12 and 13 were delivered before, and 30 and 31 at later times."""
    pending = Backlog()
    pending.extend(10, 12)
    pending.extend(12, 14, attempts=1)
    pending.extend(14, 20)
    pending.extend(30, 31, 5 * SECOND)
    pending.extend(31, 32, 9 * SECOND)
    return pending


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
def test_a_message_is_taken_out_of_what_waits(pending, seq, left):
    assert pending.take_out({seq}) == {seq}

    assert spans(pending) == left
    assert pending.depth == 9
    assert pending.take_out({seq}) == set()


def test_the_only_message_of_a_span_takes_the_span_along():
    pending = Backlog()
    pending.extend(5, 6)

    assert pending.take_out({5}) == {5}
    assert (spans(pending), pending.depth) == ([], 0)


def test_a_deferred_message_is_taken_out_and_the_others_keep_their_order(pending):
    pending.extend(32, 33, SECOND)
    assert pending.take_out({30}) == {30}

    assert pending.depth == 10
    times = (SECOND - 1, SECOND, 9 * SECOND - 1, 9 * SECOND)
    assert [pending.release_due(now) for now in times] == [None, 32, None, 31]
    assert spans(pending)[-2:] == [(32, 33, False), (31, 32, False)]


@pytest.mark.parametrize("seq", [9, 20, 29, 33])
def test_what_is_not_owed_is_not_taken_out(pending, seq):
    assert pending.take_out({seq}) == set()
    assert (pending.depth, len(pending.deferred)) == (10, 2)


def test_all_messages_can_be_taken_out_in_any_order():
    for order in ([3, 1, 4, 0, 2], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]):
        pending = Backlog()
        pending.extend(0, 5)
        assert all(pending.take_out({seq}) for seq in order)
        assert (spans(pending), pending.depth) == ([], 0)


def test_many_messages_are_taken_out_at_once_wherever_they_are(pending):
    assert pending.take_out({9, 10, 12, 13, 15, 16, 19, 31, 40}) == {10, 12, 13, 15, 16, 19, 31}

    assert spans(pending) == [(11, 12, False), (14, 15, False), (17, 19, False)]
    assert (pending.depth, list(pending.deferred)) == (4, [(5 * SECOND, 30)])


def test_what_is_owed_is_what_was_published_and_not_finished(pending):
    assert pending.pending(0, 100) == [(10, 20), (30, 32)]
    pending.finished.add(12, 15)
    assert pending.pending(11, 31) == [(11, 12), (15, 20), (30, 31)]
    assert (pending.lowest(), Backlog().pending(0, 100), Backlog().lowest()) == (10, [], None)


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
    pending = Backlog()
    pending.begin(10)
    pending.extend(10, 14, attempts=2)
    pending.extend(14, 16, due_ns=5)

    pending.drop_from(12)

    assert pending.pending(0, 20) == [(10, 12)]
    assert (pending.depth, len(pending.deferred), pending.attempts) == (2, 0, {10: 2, 11: 2})
    pending.drop_from(16)
    assert pending.pending(0, 20) == [(10, 12)]


class OwedMachine(RuleBasedStateMachine):
    """After any changes each unfinished message waits or is deferred, and the lowest of them is known."""

    def __init__(self):
        super().__init__()
        self.pending = Backlog()
        self.base = self.end = 0

    # Node ids from 512 on set the highest bit of a position.
    @initialize(base=st.sampled_from([0, (1 << 63) - 7, (1 << 64) - 4096]))
    def begin(self, base):
        self.base = self.end = base
        self.pending.begin(base)

    @rule(count=st.integers(1, 5), gap=st.integers(0, 2), due=st.sampled_from([0, 0, 3, 9]))
    def publish(self, count, gap, due):
        start = self.end + gap
        self.end = start + count
        self.pending.extend(start, self.end, due)

    @rule(count=st.integers(3, 8), due=st.sampled_from([3, 9]), tried=st.integers(0, 3))
    def publish_apart(self, count, due, tried):
        for number in range(count):
            start = self.end + 1
            self.end = start + 1
            self.pending.extend(start, self.end, due)
            if number < tried:
                self.pending.attempts[start] = 1

    @rule(now=st.integers(0, 9))
    def release(self, now):
        self.pending.release_due(now)

    @rule(data=st.data(), due=st.integers(1, 9))
    def put_off_again(self, data, due):
        seq = data.draw(st.integers(self.base, self.end))
        for taken in self.pending.take_out({seq}):
            self.pending.defer(taken, taken + 1, due)

    @rule(data=st.data())
    def drop_below(self, data):
        self.pending.drop_below(data.draw(st.integers(self.base, self.end)))

    @rule(count=st.integers(1, 5), gap=st.integers(0, 2), due=st.sampled_from([0, 4]), done=st.integers(0, 3))
    def take_over(self, count, gap, due, done):
        other = Backlog()
        start = self.end + gap
        self.end = start + count
        other.extend(start, self.end, due)
        other.drop_below(min(start + done, self.end))
        self.pending.take_over(other)

    @rule()
    def clear(self):
        self.pending.clear()

    @invariant()
    def it_is_somewhere(self):
        pending = self.pending
        there = pending.waiting()
        half = self.end - (self.end - self.base) // 2
        assert pending.count_below(half) == sum(
            min(end, half) - start for start, end in there if start < half
        )
        there += [(start, end) for _, start, end in pending.deferred.runs()]
        assert merged(there) == pending.pending(0, self.end + 10)
        assert sum(end - start for start, end in there) == pending.depth + len(pending.deferred)
        assert pending.lowest() == min((start for start, _ in there), default=None)


OwedMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestOwed = OwedMachine.TestCase
