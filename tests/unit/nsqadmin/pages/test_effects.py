import pytest

from nsqadmin.figures import aggregate
from nsqadmin.pages.effects import channel_effects, tombstone_effects, topic_effects
from tests.support.records import channel_json, producer, topic_stats


def total(*channels, **fields):
    nodes = [
        aggregate.topic_on(producer(port), topic_stats("orders", *channels, **fields), 0) for port in (1, 2)
    ]
    return aggregate.total_topic("orders", nodes)


def test_deleting_a_topic_names_nodes_channels_messages_and_consumers():
    text = " ".join(
        topic_effects("delete", total(channel_json("a", depth=5, in_flight_count=1, client_count=2), depth=4))
    )

    assert "removed from 2 nsqds, with 1 channel (a)" in text
    assert "20 messages" in text
    assert "4 consumers" in text


def test_a_topic_with_many_channels_names_a_few():
    channels = [channel_json(f"c{number}") for number in range(10)]

    assert "and 2 more)" in topic_effects("delete", total(*channels))[0]


def test_emptying_a_channel_says_what_is_lost_by_state():
    channel = total(channel_json("a", depth=1000, in_flight_count=1, deferred_count=2)).channels[0]

    assert (
        "2,006 messages on 2 nsqds (2,000 waiting, 2 in flight, 4 deferred)"
        in channel_effects("empty", channel)[0]
    )


@pytest.mark.parametrize("action", ["pause", "unpause", "empty", "delete"])
def test_every_action_explains_itself_in_whole_sentences(action):
    topic = total(channel_json("a", depth=1, client_count=1))

    sentences = [*topic_effects(action, topic), *channel_effects(action, topic.channels[0])]

    assert not [text for text in sentences if text[0].islower() or not text.endswith(".")]


def test_a_tombstone_names_the_node_and_what_is_deleted_there():
    held = total(channel_json("a", depth=5), depth=1).nodes[0]

    text = " ".join(tombstone_effects("127.0.0.1:1", [held]))

    assert "127.0.0.1:1" in text
    assert "6 messages" in text
    assert "does not hold the topic" in tombstone_effects("127.0.0.1:1", [])[1]
