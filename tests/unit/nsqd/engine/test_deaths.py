import pytest

from nsqclient.wire.names import is_valid_name
from nsqd.engine.deaths import REQUEUED, Dying, dead_letter_topic
from nsqd.engine.settings import NOTHING, Settings


def spans(deaths):
    return [(death.start, death.end) for death in deaths]


@pytest.mark.parametrize(
    ("topic", "channel", "expected"),
    [
        ("orders", "billing", "orders.billing.dead"),
        ("orders#ephemeral", "billing#ephemeral", "orders.billing.dead"),
        ("t" * 30, "c" * 28, f"{'t' * 30}.{'c' * 28}.dead"),
    ],
)
def test_dead_letters_have_a_topic_of_their_own_for_each_channel(topic, channel, expected):
    assert dead_letter_topic(topic, channel, NOTHING) == expected


def test_long_names_are_cut_to_one_that_is_legal_and_no_other_channels():
    names = {dead_letter_topic("t" * 64, "c" * 63 + last, NOTHING) for last in "abc"}

    assert len(names) == 3
    assert all(is_valid_name(name) and len(name) == 64 and name.endswith(".dead") for name in names)


def test_a_policy_may_name_the_topic():
    assert dead_letter_topic("t", "c", Settings(dead_letter_topic="poison")) == "poison"


def test_what_is_taken_is_counted_until_it_is_done():
    dying = Dying()
    dying.add(5, 6, REQUEUED, "me")
    dying.add(7, 9, REQUEUED)

    taken = dying.take(10)

    assert spans(taken) == [(5, 6), (7, 9)]
    assert taken[0].client == "me"
    assert (dying.count, dying.waits) == (3, False)
    assert all(dying.done(death) for death in taken)
    assert dying.count == 0


def test_many_are_taken_in_parts():
    dying = Dying()
    dying.add(0, 10, REQUEUED)

    assert spans(dying.take(4)) == [(0, 4)]
    assert spans(dying.take(4)) == [(4, 8)]
    assert spans(dying.take(4)) == [(8, 10)]
    assert dying.take(4) == []


def test_what_failed_is_taken_again():
    dying = Dying()
    dying.add(0, 10, REQUEUED)
    (first,) = dying.take(4)

    dying.failed(first)

    assert dying.waits
    assert spans(dying.take(4)) == [(0, 4)]
    assert dying.count == 10


@pytest.mark.parametrize("below", [3, 6, 10])
def test_what_is_owed_no_longer_is_neither_done_nor_tried_again(below):
    dying = Dying()
    dying.add(0, 8, REQUEUED)
    dying.add(8, 10, REQUEUED)
    (first,) = dying.take(4)

    dying.drop_below(below)

    assert dying.count == 10 - below
    assert not dying.done(first)
    dying.failed(first)
    assert sorted(spans(dying.take(10))) == [
        pair for pair in [(3, 4), (4, 8), (6, 8), (8, 10)] if pair in _left(below)
    ]


def _left(below):
    return {3: [(3, 4), (4, 8), (8, 10)], 6: [(6, 8), (8, 10)], 10: []}[below]


def test_an_emptied_channel_gives_nothing_up():
    dying = Dying()
    dying.add(0, 8, REQUEUED)
    (first,) = dying.take(4)

    dying.clear()

    assert (dying.count, dying.waits) == (0, False)
    assert not dying.done(first)
    dying.failed(first)
    assert not dying.waits
