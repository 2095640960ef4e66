from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqd.engine.channel import Consumer
from nsqd.engine.in_flight import InFlight, NotInFlight
from nsqd.log.ranges import merged, ranges_of, within
from tests.support.engine import Outlet


def ranges(flight):
    """The ranges that are in flight."""
    return flight.snapshot().ranges()


@pytest.fixture
def consumer():
    return Consumer(Outlet(), 60)


@pytest.fixture
def flight(consumer):
    flight = InFlight()
    flight.add(10, 20, consumer, now_ns=0, deadline_ns=60)
    return flight


def timed_out(flight, now_ns):
    return [ranges for _, ranges in flight.expired(now_ns)]


def test_answers_in_order_leave_the_run_whole(flight, consumer):
    for seq in range(10, 15):
        flight.remove(seq, consumer)

    assert ranges(flight) == [(15, 20)]
    assert flight.unbroken(15, consumer) == 5


def test_an_answer_out_of_order_is_found(flight, consumer):
    flight.remove(14, consumer)

    assert flight.count == 9
    with pytest.raises(NotInFlight, match="ID not in flight"):
        flight.remove(14, consumer)
    assert sorted(ranges(flight)) == [(seq, seq + 1) for seq in range(10, 20) if seq != 14]


def test_a_stranger_cannot_answer(flight):
    stranger = Consumer(Outlet(), 60)

    with pytest.raises(NotInFlight, match="client does not own message"):
        flight.remove(10, stranger)
    with pytest.raises(NotInFlight, match="client does not own message"):
        flight.remove(13, stranger)
    assert flight.count == 10


def test_nothing_is_answered_twice(flight, consumer):
    flight.remove(10, consumer)

    with pytest.raises(NotInFlight):
        flight.remove(10, consumer)


def test_a_whole_head_is_removed_at_once(flight, consumer):
    flight.remove_head(10, 10)

    assert flight.count == 0
    assert flight.next_deadline_ns() is None


def test_what_is_left_of_a_run_times_out_together(flight, consumer):
    flight.remove(10, consumer)
    flight.remove(14, consumer)

    assert timed_out(flight, 59) == []
    assert timed_out(flight, 60) == [[(11, 14), (15, 20)]]
    assert flight.count == 0


def test_a_touched_message_times_out_later_than_its_run(flight, consumer):
    flight.touch(12, consumer, deadline_ns=100)

    assert timed_out(flight, 60) == [[(10, 12), (13, 20)]]
    assert timed_out(flight, 99) == []
    assert timed_out(flight, 100) == [[(12, 13)]]


def test_touching_a_single_message_again_and_again_moves_its_deadline(consumer):
    flight = InFlight()
    flight.add(1, 2, consumer, now_ns=0, deadline_ns=10)
    for deadline in range(20, 200, 10):
        flight.touch(1, consumer, deadline)

    assert timed_out(flight, 189) == []
    assert timed_out(flight, 190) == [[(1, 2)]]


def test_a_touch_may_bring_the_deadline_of_a_single_message_forward(consumer):
    flight = InFlight()
    flight.add(1, 2, consumer, now_ns=0, deadline_ns=60)
    flight.touch(1, consumer, 20)

    assert timed_out(flight, 19) == []
    assert timed_out(flight, 20) == [[(1, 2)]]
    assert timed_out(flight, 60) == []
    assert flight.count == 0


def test_a_touch_does_not_change_when_the_message_was_delivered(consumer):
    flight = InFlight()
    flight.add(1, 5, consumer, now_ns=7, deadline_ns=10)
    flight.touch(3, consumer, 50)

    assert flight.find(3, consumer).delivered_ns == 7


def test_all_of_a_consumer_is_given_back(flight, consumer):
    other = Consumer(Outlet(), 60)
    flight.add(30, 32, other, 0, 60)
    flight.remove(12, consumer)

    assert flight.of_consumer(consumer) == [(10, 12), (13, 20)]
    assert ranges(flight) == [(30, 32)]


class Walked(dict):
    """A dictionary that counts how often all of it is looked at."""

    walks = 0

    def values(self):
        self.walks += 1
        return super().values()


def test_what_is_in_flight_is_looked_through_once_when_a_fleet_leaves():
    flight = InFlight()
    consumers = [Consumer(Outlet(), 60) for _ in range(100)]
    for seq in range(1000):
        flight.add(seq, seq + 1, consumers[seq % 100], 0, 60)
    flight._entries = walked = Walked(flight._entries)

    *leaving, last = consumers

    for consumer in leaving:
        for seq, end in flight.of_consumer(consumer):
            flight.add(seq, end, last, 1, 61)

    assert flight.of_consumer(last) == [(seq, seq + 1) for seq in range(1000)]
    assert walked.walks == 1


def test_what_was_answered_or_touched_since_another_consumer_left_is_given_back_as_it_is_now(
    flight, consumer
):
    other = Consumer(Outlet(), 60)
    flight.add(30, 32, consumer, 0, 60)
    flight.add(40, 41, consumer, 0, 60)
    flight.add_scattered([50, 52, 55], consumer, 0, 60)
    assert flight.of_consumer(other) == []

    flight.remove_head(10, 10)
    flight.remove(31, consumer)
    flight.remove(40, consumer)
    flight.add(40, 41, other, 1, 61)
    flight.touch(52, consumer, 99)
    assert list(flight.expired(60))
    flight.add(60, 62, consumer, 60, 120)

    assert flight.of_consumer(consumer) == [(52, 53), (60, 62)]
    assert consumer not in flight._held
    assert flight.of_consumer(consumer) == []
    assert ranges(flight) == [(40, 41)]


def test_what_was_noted_for_a_fleet_that_leaves_is_dropped_when_no_more_leave(consumer):
    flight = InFlight()
    other = Consumer(Outlet(), 60)
    for seq in range(100):
        flight.add(seq, seq + 1, consumer, 0, 60)
    flight.of_consumer(other)
    assert flight._held

    for seq in range(1000, 1300):
        flight.add(seq, seq + 1, other, 0, 60)
        flight.remove(seq, other)

    assert not flight._held
    assert flight.of_consumer(other) == []
    assert flight.of_consumer(consumer) == [(seq, seq + 1) for seq in range(100)]


def test_below_a_sequence_everything_goes(flight, consumer):
    flight.add(30, 31, consumer, 0, 60)

    assert len(list(flight.remove_below(15))) == 5
    assert flight.count == 6
    assert flight.lowest() == 15


@pytest.mark.parametrize("apart_ns", [0, 1])
def test_finished_runs_do_not_pile_up_until_their_deadline(consumer, apart_ns):
    flight = InFlight()
    for seq in range(10_000):
        flight.add(seq, seq + 1, consumer, 0, 60 + seq * apart_ns)
        flight.remove(seq, consumer)

    assert len(flight._heap) < 100
    assert sum(len(runs) for _, _, runs in flight._heap) < 100
    assert flight.next_deadline_ns() is None


@pytest.mark.parametrize("finished", range(60, 70))
def test_what_is_delivered_behind_many_that_were_answered_in_one_moment_times_out_with_them(
    consumer, finished
):
    flight = InFlight()
    for seq in range(finished):
        flight.add(seq, seq + 1, consumer, 0, 60)
        flight.remove(seq, consumer)
    flight.add(finished, finished + 1, consumer, 0, 60)

    assert flight.next_deadline_ns() == 60
    assert [ranges for _, ranges in flight.expired(60)] == [[(finished, finished + 1)]]


def test_single_messages_of_one_moment_share_a_deadline_until_one_is_touched(consumer):
    flight = InFlight()
    for seq in range(0, 1000, 10):
        flight.add(seq, seq + 1, consumer, 0, 60)
    for seq in range(500, 1000, 10):
        flight.remove(seq, consumer)
    flight.touch(20, consumer, 90)

    assert len(flight._heap) == 1
    assert flight.next_deadline_ns() == 60
    assert [gone for _, ranges in flight.expired(60) for gone in ranges] == [
        (seq, seq + 1) for seq in range(0, 500, 10) if seq != 20
    ]
    assert flight.next_deadline_ns() == 90
    flight.add(7, 8, consumer, 30, 90)
    assert [gone for _, ranges in flight.expired(90) for gone in ranges] == [(20, 21), (7, 8)]
    assert (flight.next_deadline_ns(), flight.count) == (None, 0)


def test_what_is_delivered_while_others_time_out_has_a_deadline_as_well(consumer):
    flight = InFlight()
    flight.add(1, 2, consumer, 0, 60)
    flight.add(5, 6, consumer, 0, 60)
    for number, _ in enumerate(flight.expired(60)):
        flight.add(100 + 10 * number, 101 + 10 * number, consumer, 60, 120)

    assert flight.next_deadline_ns() == 120
    assert len(list(flight.expired(120))) == 2


def test_what_times_out_at_one_moment_comes_back_a_little_at_a_time(consumer):
    flight = InFlight()
    for start in range(0, 100, 10):
        flight.add(start, start + 10, consumer, start, 60 + start)

    found = [[ranges for _, ranges in flight.expired(200, 25)] for _ in range(4)]

    assert [[low for ranges in part for low, _ in ranges] for part in found] == [
        [0, 10, 20],
        [30, 40, 50],
        [60, 70, 80],
        [90],
    ]
    assert (flight.count, flight.next_deadline_ns()) == (0, None)


def test_what_is_left_of_a_moment_in_which_very_much_times_out_has_its_deadline_still(consumer):
    flight = InFlight()
    flight.add(0, 10, consumer, 0, 60)
    flight.add(10, 20, consumer, 1, 61)
    list(flight.expired(100, 5))

    assert (flight.count, flight.next_deadline_ns()) == (10, 61)


def test_a_snapshot_keeps_what_was_in_flight_whatever_is_answered_later(flight, consumer):
    flight.add(30, 31, consumer, now_ns=0, deadline_ns=60)
    flight.add_scattered([40, 44], consumer, now_ns=0, deadline_ns=60)
    flight.remove(10, consumer)
    snapshot = flight.snapshot()
    flight.remove(11, consumer)
    flight.remove(15, consumer)
    flight.remove(44, consumer)

    assert sorted(snapshot.ranges()) == [(11, 20), (30, 31), (40, 41), (44, 45)]


def test_messages_from_here_and_there_are_one_run_and_answered_in_any_order(consumer):
    flight = InFlight()
    flight.add_scattered(
        [3, 9, 10, 40], consumer, now_ns=0, deadline_ns=60, published=array("q", [1, 2, 3, 4])
    )

    assert (flight.count, flight.unbroken(3, consumer)) == (4, 0)
    run = flight.remove(10, consumer)
    assert [run.place(seq) for seq in (3, 9, 10, 40)] == [0, 1, 2, 3]
    assert flight.remove_scattered([40, 11], consumer)[0][0] == 1
    flight.touch(3, consumer, 90)

    assert flight.find(3, consumer).published == array("q", [1])
    assert timed_out(flight, 60) == [[(9, 10)]]
    assert timed_out(flight, 90) == [[(3, 4)]]
    assert (flight.count, flight.next_deadline_ns()) == (0, None)


def test_messages_from_here_and_there_come_back_from_a_consumer_as_ranges(consumer):
    flight = InFlight()
    flight.add_scattered([3, 9, 10, 40], consumer, now_ns=0, deadline_ns=60)

    assert [one is consumer for one in flight.remove_below(9)] == [True]
    assert flight.of_consumer(consumer) == [(9, 11), (40, 41)]


def test_what_was_delivered_since_the_last_look_is_told_once():
    flight, consumer = InFlight(), Consumer(None, 1)
    flight.add(10, 20, consumer, 0, 5)
    flight.add(30, 31, consumer, 0, 5)

    assert sorted(flight.fresh()) == [(10, 20), (30, 31)]
    assert flight.fresh() == []
    flight.add(40, 45, consumer, 0, 5)
    flight.break_run(40)
    flight.remove(42, consumer)
    assert sorted(flight.fresh()) == [(40, 41), (41, 42), (43, 44), (44, 45)]


class InFlightMachine(RuleBasedStateMachine):
    """After any changes each message that was not answered is in flight to the consumer that has it."""

    def __init__(self):
        super().__init__()
        self.flight = InFlight()
        self.consumers = [Consumer(Outlet(), 60) for _ in range(3)]
        # Of each message: its consumer and its deadline.
        self.model = {}
        self.end = self.now = 0

    def seqs(self):
        return st.sampled_from(sorted(self.model)) if self.model else st.just(self.end)

    def numbers(self):
        return st.integers(min(self.model, default=self.end) - 1, self.end)

    def gone(self, consumers, seqs):
        """These *seqs* were taken from these *consumers*, in any order."""
        assert len(consumers) == len(seqs)
        for consumer in self.consumers:
            mine = [seq for seq in seqs if self.model[seq][0] is consumer]
            assert sum(one is consumer for one in consumers) == len(mine)
        for seq in seqs:
            del self.model[seq]

    # Node ids from 512 on set the highest bit of a position.
    @initialize(base=st.sampled_from([0, (1 << 63) - 7, (1 << 64) - 4096]))
    def begin(self, base):
        self.end = base

    @rule(count=st.integers(1, 6), gap=st.integers(0, 2), who=st.integers(0, 2), wait=st.integers(1, 9))
    def deliver(self, count, gap, who, wait):
        start = self.end + gap
        self.end = start + count
        consumer, deadline = self.consumers[who], self.now + wait
        self.flight.add(start, self.end, consumer, self.now, deadline)
        self.model.update(dict.fromkeys(range(start, self.end), (consumer, deadline)))

    @rule(steps=st.lists(st.integers(1, 4), min_size=1, max_size=6), who=st.integers(0, 2))
    def deliver_scattered(self, steps, who):
        seqs = []
        for step in steps:
            self.end += step
            seqs.append(self.end)
        self.end += 1
        consumer, deadline = self.consumers[who], self.now + 5
        self.flight.add_scattered(list(seqs), consumer, self.now, deadline)
        self.model.update(dict.fromkeys(seqs, (consumer, deadline)))

    @rule(who=st.integers(0, 2))
    def deliver_many_that_are_answered_at_once(self, who):
        consumer = self.consumers[who]
        for seq in range(self.end + 1, self.end + 200):
            self.flight.add(seq, seq + 1, consumer, self.now, self.now + 5)
            self.flight.remove(seq, consumer)
        self.end += 200

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def answer(self, data):
        seq = data.draw(self.seqs())
        consumer, _ = self.model.pop(seq)
        self.flight.remove(seq, consumer)
        with pytest.raises(NotInFlight):
            self.flight.remove(seq, consumer)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def answer_a_head(self, data):
        seq = data.draw(self.seqs())
        consumer, _ = self.model[seq]
        most = self.flight.unbroken(seq, consumer)
        if most:
            count = data.draw(st.integers(1, most))
            self.flight.remove_head(seq, count)
            self.gone([consumer] * count, list(range(seq, seq + count)))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), who=st.integers(0, 2))
    def answer_scattered(self, data, who):
        consumer = self.consumers[who]
        seqs = data.draw(st.lists(self.seqs(), unique=True))
        mine = [seq for seq in seqs if self.model[seq][0] is consumer]
        failed = self.flight.remove_scattered(seqs, consumer)
        assert [seqs[place] for place, _ in failed] == [seq for seq in seqs if seq not in mine]
        self.gone([consumer] * len(mine), mine)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), wait=st.integers(0, 12))
    def touch(self, data, wait):
        seq = data.draw(self.seqs())
        consumer, _ = self.model[seq]
        self.flight.touch(seq, consumer, self.now + wait)
        self.model[seq] = (consumer, self.now + wait)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def take_away(self, data):
        seq = data.draw(self.seqs())
        self.gone([self.flight.take_away(seq)], [seq])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def break_a_run(self, data):
        seq = data.draw(self.seqs())
        if self.flight.unbroken(seq, self.model[seq][0]):
            self.flight.break_run(seq)

    @rule(more=st.integers(0, 6))
    def time_passes(self, more):
        self.now += more
        late = [seq for seq, (_, deadline) in self.model.items() if deadline <= self.now]
        due_ns = self.flight.next_deadline_ns()
        assert not late or due_ns <= self.now
        owners, found = [], []
        for consumer, parts in self.flight.expired(self.now):
            seqs = [seq for start, end in parts for seq in range(start, end)]
            assert all(self.model[seq][0] is consumer for seq in seqs)
            owners += [consumer] * len(seqs)
            found += seqs
        assert sorted(found) == sorted(late)
        self.gone(owners, found)

    @rule(who=st.integers(0, 2))
    def leave(self, who):
        consumer = self.consumers[who]
        mine = sorted(seq for seq, (one, _) in self.model.items() if one is consumer)
        found = self.flight.of_consumer(consumer)
        assert found == sorted(found)
        assert merged(found) == ranges_of(mine)
        self.gone([consumer] * len(mine), mine)

    @rule(data=st.data())
    def take_below(self, data):
        seq = data.draw(self.numbers())
        self.gone(list(self.flight.remove_below(seq)), [one for one in self.model if one < seq])

    @rule(data=st.data(), length=st.integers(1, 5))
    def take_ranges(self, data, length):
        start = data.draw(self.numbers())
        ranges = [(start, start + length), (start + length + 2, start + length + 4)]
        taken = [one for one in self.model if within(ranges, one, one + 1)]
        self.gone(list(self.flight.take_ranges(ranges)), taken)

    @rule()
    def take_all(self):
        runs = self.flight.take_all()
        self.gone([run.consumer for run in runs for _ in range(run.left)], list(self.model))

    @invariant()
    def all_is_there(self):
        assert self.flight.count == len(self.model)
        assert self.flight.ranges() == ranges_of(sorted(self.model))
        assert self.flight.lowest() == min(self.model, default=None)


InFlightMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestInFlight = InFlightMachine.TestCase
