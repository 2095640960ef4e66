from array import array

import pytest

from nsqd.engine.channel import Consumer
from nsqd.engine.inflight import InFlight, NotInFlight
from tests.support.engine import Outlet


def ranges(flight):
    """The ranges that are in flight."""
    return [(seq, seq + 1 if run.broken else run.end) for seq, run in flight.snapshot().items()]


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

    assert flight.snapshot()[3].published == array("q", [1])
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
