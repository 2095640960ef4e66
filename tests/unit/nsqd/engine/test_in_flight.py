from array import array

import pytest

from nsqd.engine.channel import Consumer
from nsqd.engine.in_flight import InFlight, NotInFlight, Run
from tests.support.engine import Outlet


def ranges(flight):
    """The ranges that are in flight."""
    return flight.snapshot()()


def scattered(seqs, consumer, now_ns, deadline_ns, published=None):
    return Run(seqs[0], seqs[-1] + 1, consumer, now_ns, deadline_ns, published, seqs)


@pytest.fixture
def consumer():
    return Consumer(Outlet(), 60)


@pytest.fixture
def flight(consumer):
    flight = InFlight()
    flight.add(Run(10, 20, consumer, 0, 60))
    return flight


def timed_out(flight, now_ns):
    return [ranges for _, ranges in flight.expired(now_ns)]


def test_answers_in_order_leave_run_whole(flight, consumer):
    for seq in range(10, 15):
        flight.take(seq, consumer)

    assert ranges(flight) == [(15, 20)]
    assert flight.unbroken(15, consumer) == 5


def test_stranger_cannot_answer(flight):
    stranger = Consumer(Outlet(), 60)

    for seq in (10, 13):
        with pytest.raises(NotInFlight, match="client does not own message"):
            flight.take(seq, stranger)
    assert flight.count == 10


def test_touch_does_not_change_when_message_was_delivered(consumer):
    flight = InFlight()
    flight.add(Run(1, 5, consumer, 7, 10))
    flight.touch(3, consumer, 50)

    assert flight.find(3, consumer).delivered_ns == 7


def test_timeouts_of_one_moment_come_in_bounded_steps(consumer):
    flight = InFlight()
    for start in range(0, 40_000, 4000):
        flight.add(Run(start, start + 4000, consumer, start, 60 + start))

    found = [[ranges for _, ranges in flight.expired(50_000)] for _ in range(4)]

    assert [[low for ranges in part for low, _ in ranges] for part in found] == [
        [0, 4000, 8000],
        [12_000, 16_000, 20_000],
        [24_000, 28_000, 32_000],
        [36_000],
    ]
    assert (flight.count, flight.next_deadline_ns()) == (0, None)


def test_messages_left_after_full_turn_of_time_outs_keep_their_deadline(consumer):
    flight = InFlight()
    flight.add(Run(0, 9000, consumer, 0, 60))
    flight.add(Run(9000, 9010, consumer, 1, 61))
    flight.expired(100)

    assert (flight.count, flight.next_deadline_ns()) == (10, 61)


def test_snapshot_keeps_what_was_in_flight_whatever_is_answered_later(flight, consumer):
    flight.add(Run(30, 31, consumer, 0, 60))
    flight.add(scattered([40, 44], consumer, 0, 60))
    flight.take(10, consumer)
    snapshot = flight.snapshot()
    flight.take(11, consumer)
    flight.take(15, consumer)
    flight.take(44, consumer)

    assert sorted(snapshot()) == [(11, 20), (30, 31), (40, 41), (44, 45)]


def test_scattered_run_is_answered_in_any_order(consumer):
    flight = InFlight()
    flight.add(scattered([3, 9, 10, 40], consumer, 0, 60, array("q", [1, 2, 3, 4])))

    assert (flight.count, flight.unbroken(3, consumer)) == (4, 0)
    run = flight.take(10, consumer)
    assert [run.index(seq) for seq in (3, 9, 10, 40)] == [0, 1, 2, 3]
    assert flight.take_each([40, 11], consumer)[0][0] == 1
    flight.touch(3, consumer, 90)

    assert flight.find(3, consumer).published == array("q", [1])
    assert timed_out(flight, 60) == [[(9, 10)]]
    assert timed_out(flight, 90) == [[(3, 4)]]
    assert (flight.count, flight.next_deadline_ns()) == (0, None)


def test_fresh_deliveries_are_told_once():
    flight, consumer = InFlight(), Consumer(None, 1)
    flight.add(Run(10, 20, consumer, 0, 5))
    flight.add(Run(30, 31, consumer, 0, 5))

    assert sorted(flight.fresh()) == [(10, 20), (30, 31)]
    assert flight.fresh() == []
    flight.add(Run(40, 45, consumer, 0, 5))
    flight.break_run(40)
    flight.take(42, consumer)
    assert sorted(flight.fresh()) == [(40, 41), (41, 42), (43, 44), (44, 45)]


def test_consumers_that_left_are_forgotten():
    flight = InFlight()
    for seq in range(100):
        consumer = Consumer(Outlet(), 60)
        flight.add(Run(seq, seq + 1, consumer, 0, 60))
        flight.take(seq, consumer)
        assert flight.of_consumer(consumer) == []

    assert (flight.next_deadline_ns(), len(flight._runs), consumer.in_flight) == (None, 0, 0)
