"""Channel state as it is sent, and what another copy's state changes."""

import pytest

from nsqd.replication.channel_states import (
    delete_below,
    finished_here,
    merge,
    nothing_pending,
    pending_of,
    states_of,
)
from nsqd.replication.claims import NO_CHANNEL
from nsqd.replication.fields import MAX_RANGES
from nsqd.replication.frames import ChannelState
from tests.unit.nsqd.replication.small_site import CHANNEL, TOPIC, finish, publish, site_of

ORIGIN = b"o" * 16


@pytest.fixture
def node():
    site = site_of(1, replicas=0)
    return site.nodes[1]


@pytest.fixture
def topic(node):
    publish(node, b"one", b"two", b"three")
    return node.broker.topics[TOPIC]


def state_of(topic, channel, generation, *, finished=(), pending=(), live=True):
    return ChannelState(
        *(ORIGIN, 1, topic.name, channel, generation),
        live=live,
        more=False,
        finished=tuple(finished),
        pending=tuple(pending),
    )


def all_of(topic):
    return [(topic.log.next_seq - 3, topic.log.next_seq)]


def key_of(topic, name=CHANNEL):
    return name, topic.channels[name].generation


def test_pending_messages_are_those_of_each_channel(topic):
    assert pending_of(topic) == {key_of(topic): all_of(topic)}


def test_pending_messages_of_topic_without_channels_have_no_channel(node):
    node.publish("without channels", b"one")
    topic = node.broker.topics["without channels"]

    assert list(pending_of(topic)) == [NO_CHANNEL]


def test_ephemeral_topic_has_no_state(node):
    topic = node.broker.topic("t#ephemeral", node.now)

    assert pending_of(topic) == {}


def test_state_has_finished_and_pending_messages(node, topic):
    finish(node)
    publish(node, b"four")
    (state,) = states_of(topic, ORIGIN, 1, pending_of(topic))

    assert (state.channel, state.live, state.more) == (CHANNEL, True, False)
    assert [(topic.log.next_seq - 1, topic.log.next_seq)] == list(state.pending)
    assert all(end < topic.log.next_seq for _, end in state.finished)


def test_deletion_says_which_messages_channel_had(node, topic):
    key = key_of(topic)
    node.broker.delete_channel(topic, CHANNEL)
    states = {(one.channel, one.generation): one for one in states_of(topic, ORIGIN, 1, {})}

    assert not states[key].live
    assert states[key].finished == tuple(all_of(topic))


def test_long_state_is_cut_into_frames(topic):
    many = [(2 * one, 2 * one + 1) for one in range(MAX_RANGES + 1)]
    frames = list(states_of(topic, ORIGIN, 1, {key_of(topic): many}))

    assert [one.more for one in frames] == [True, False]
    assert [part for one in frames for part in one.pending] == many


def test_topic_that_is_gone_has_nothing_pending():
    frame = nothing_pending(TOPIC, ORIGIN, 1)

    assert (frame.channel, frame.finished, frame.pending) == ("", (), ())


def test_finished_messages_are_learned_once(node, topic):
    state = state_of(topic, *key_of(topic), finished=all_of(topic))

    assert merge(node.broker, topic, state)
    assert pending_of(topic) == {}
    assert not merge(node.broker, topic, state)


def test_messages_that_are_not_pending_conclude_nothing(node, topic):
    assert not merge(node.broker, topic, state_of(topic, *key_of(topic)))
    assert pending_of(topic) == {key_of(topic): all_of(topic)}


def test_state_of_another_generation_changes_nothing(node, topic):
    name, generation = key_of(topic)

    assert not merge(node.broker, topic, state_of(topic, name, generation + 1, finished=all_of(topic)))
    assert pending_of(topic) == {key_of(topic): all_of(topic)}


def test_topic_without_channels_creates_those_that_it_hears_of(node):
    node.publish("new", b"one")
    topic = node.broker.topics["new"]
    node.turn()

    assert merge(node.broker, topic, state_of(topic, "heard", 77))
    assert [(name, one.generation) for name, one in topic.channels.items()] == [("heard", 77)]
    assert list(pending_of(topic)) == [("heard", 77)]


def test_topic_with_channels_creates_none(node, topic):
    assert not merge(node.broker, topic, state_of(topic, "heard", 77))
    assert list(topic.channels) == [CHANNEL]


def test_deleted_channel_of_another_copy_finishes_messages_without_channel(node):
    node.publish("new", b"one")
    node.turn()
    topic = node.broker.topics["new"]
    stored_ranges = [(topic.log.next_seq - 1, topic.log.next_seq)]

    assert merge(node.broker, topic, state_of(topic, "heard", 77, finished=stored_ranges, live=False))
    assert pending_of(topic) == {}
    assert not topic.channels


def test_emptied_topic_finishes_its_messages_on_every_channel(node, topic):
    assert merge(node.broker, topic, state_of(topic, "", 0, finished=all_of(topic)))
    assert pending_of(topic) == {}


def test_deletion_below_position_leaves_later_messages(node, topic):
    below = topic.log.next_seq - 1

    assert not delete_below(node.broker, topic, below)
    assert pending_of(topic) == {key_of(topic): [(below, below + 1)]}
    assert delete_below(node.broker, topic, below + 1)


def test_finished_here_is_finished_part_of_one_generation(node, topic):
    finish(node)
    name, generation = key_of(topic)

    assert finished_here(topic, (name, generation), all_of(topic)) == all_of(topic)
    assert finished_here(topic, (name, generation + 1), all_of(topic)) == []
    assert finished_here(topic, ("unknown", generation), all_of(topic)) == []
