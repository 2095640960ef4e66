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


def test_answer_out_of_order_is_found(flight, consumer):
    flight.take(14, consumer)

    assert flight.count == 9
    with pytest.raises(NotInFlight, match="ID not in flight"):
        flight.take(14, consumer)
    assert sorted(ranges(flight)) == [(seq, seq + 1) for seq in range(10, 20) if seq != 14]


def test_stranger_cannot_answer(flight):
    stranger = Consumer(Outlet(), 60)

    with pytest.raises(NotInFlight, match="client does not own message"):
        flight.take(10, stranger)
    with pytest.raises(NotInFlight, match="client does not own message"):
        flight.take(13, stranger)
    assert flight.count == 10


def test_message_is_answered_once(flight, consumer):
    flight.take(10, consumer)

    with pytest.raises(NotInFlight):
        flight.take(10, consumer)


def test_whole_head_is_removed_at_once(flight, consumer):
    flight.take_head(10, 10)

    assert flight.count == 0
    assert flight.next_deadline_ns() is None


def test_rest_of_run_times_out_together(flight, consumer):
    flight.take(10, consumer)
    flight.take(14, consumer)

    assert timed_out(flight, 59) == []
    assert timed_out(flight, 60) == [[(11, 14), (15, 20)]]
    assert flight.count == 0


def test_touched_message_times_out_later_than_its_run(flight, consumer):
    flight.touch(12, consumer, deadline_ns=100)

    assert timed_out(flight, 60) == [[(10, 12), (13, 20)]]
    assert timed_out(flight, 99) == []
    assert timed_out(flight, 100) == [[(12, 13)]]


def test_touching_single_message_again_and_again_moves_its_deadline(consumer):
    flight = InFlight()
    flight.add(Run(1, 2, consumer, 0, 10))
    for deadline in range(20, 200, 10):
        flight.touch(1, consumer, deadline)

    assert timed_out(flight, 189) == []
    assert timed_out(flight, 190) == [[(1, 2)]]


def test_touch_may_bring_deadline_of_single_message_forward(consumer):
    flight = InFlight()
    flight.add(Run(1, 2, consumer, 0, 60))
    flight.touch(1, consumer, 20)

    assert timed_out(flight, 19) == []
    assert timed_out(flight, 20) == [[(1, 2)]]
    assert timed_out(flight, 60) == []
    assert flight.count == 0


def test_touch_does_not_change_when_message_was_delivered(consumer):
    flight = InFlight()
    flight.add(Run(1, 5, consumer, 7, 10))
    flight.touch(3, consumer, 50)

    assert flight.find(3, consumer).delivered_ns == 7


def test_answered_messages_stay_out_when_another_consumer_leaves(flight, consumer):
    other = Consumer(Outlet(), 60)
    flight.add(Run(30, 32, consumer, 0, 60))
    flight.add(Run(40, 41, consumer, 0, 60))
    flight.add(scattered([50, 52, 55], consumer, 0, 60))
    assert flight.of_consumer(other) == []

    flight.take_head(10, 10)
    flight.take(31, consumer)
    flight.take(40, consumer)
    flight.add(Run(40, 41, other, 1, 61))
    flight.touch(52, consumer, 99)
    assert flight.expired(60)
    flight.add(Run(60, 62, consumer, 60, 120))

    assert flight.of_consumer(consumer) == [(52, 53), (60, 62)]
    assert flight.of_consumer(consumer) == []
    assert ranges(flight) == [(40, 41)]


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


@pytest.mark.parametrize("order", [(50, 70, 60), (70, 50, 60), (60, 70, 50)])
def test_touched_message_times_out_in_deadline_order(consumer, order):
    flight = InFlight()
    for seq, deadline_ns in enumerate(order):
        flight.add(Run(seq, seq + 1, consumer, 0, deadline_ns))

    assert flight.next_deadline_ns() == 50
    assert [timed_out(flight, now_ns) for now_ns in (49, 50, 60, 70)] == [
        [],
        *([[(order.index(deadline_ns), order.index(deadline_ns) + 1)]] for deadline_ns in (50, 60, 70)),
    ]


def test_consumers_that_left_are_forgotten():
    flight = InFlight()
    for seq in range(100):
        consumer = Consumer(Outlet(), 60)
        flight.add(Run(seq, seq + 1, consumer, 0, 60))
        flight.take(seq, consumer)
        assert flight.of_consumer(consumer) == []

    assert (flight.next_deadline_ns(), len(flight._runs), consumer.in_flight) == (None, 0, 0)
