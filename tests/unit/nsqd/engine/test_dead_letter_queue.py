import pytest

from nsqclient.wire.names import is_valid_name
from nsqd.engine.dead_letter_queue import REQUEUED, DeadLetterQueue, dead_letter_topic
from nsqd.engine.settings import NOTHING, Settings


def spans(moves):
    return [(move.start, move.end) for move in moves]


@pytest.mark.parametrize(
    ("topic", "channel", "expected"),
    [
        ("orders", "billing", "orders.billing.dead"),
        ("orders#ephemeral", "billing#ephemeral", "orders.billing.dead"),
        ("t" * 30, "c" * 28, f"{'t' * 30}.{'c' * 28}.dead"),
    ],
)
def test_dead_letters_have_topic_of_their_own_for_each_channel(topic, channel, expected):
    assert dead_letter_topic(topic, channel, NOTHING) == expected


def test_long_names_are_cut_to_one_that_is_legal_and_no_other_channels():
    names = {dead_letter_topic("t" * 64, "c" * 63 + last, NOTHING) for last in "abc"}

    assert len(names) == 3
    assert all(is_valid_name(name) and len(name) == 64 and name.endswith(".dead") for name in names)


def test_policy_may_name_topic():
    assert dead_letter_topic("t", "c", Settings(dead_letter_topic="poison")) == "poison"


def test_taken_letters_count_until_written():
    dead_letter_queue = DeadLetterQueue()
    dead_letter_queue.add(5, 6, REQUEUED, "me")
    dead_letter_queue.add(7, 9, REQUEUED)

    taken = dead_letter_queue.take(10)

    assert spans(taken) == [(5, 6), (7, 9)]
    assert taken[0].client == "me"
    assert (dead_letter_queue.count, dead_letter_queue.has_pending) == (3, False)
    assert all(dead_letter_queue.written(move) for move in taken)
    assert dead_letter_queue.count == 0


def test_many_are_taken_in_parts():
    dead_letter_queue = DeadLetterQueue()
    dead_letter_queue.add(0, 10, REQUEUED)

    assert spans(dead_letter_queue.take(4)) == [(0, 4)]
    assert spans(dead_letter_queue.take(4)) == [(4, 8)]
    assert spans(dead_letter_queue.take(4)) == [(8, 10)]
    assert dead_letter_queue.take(4) == []
