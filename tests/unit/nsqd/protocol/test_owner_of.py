"""Which log a message belongs to when a consumer answers it."""

import pytest

from nsqd.log.ids import MessageIds
from nsqd.protocol.consume import owner_of
from tests.support.engine import NODE_ID, Node
from tests.support.promoted import OWNER_ID, Owner


@pytest.fixture
def origin():
    origin = Node()
    origin.advance(3)
    origin.channel()
    origin.publish(b"theirs")
    return origin


@pytest.fixture
def owner():
    node = Owner()
    node.channel()
    node.publish(b"ours")
    return node


def taken(outlet):
    return {body: message_id for message_id, _, body in outlet.taken()}


def test_id_of_another_node_is_of_that_nodes_log(origin, owner):
    copy = owner.promote(origin.topic())
    channel = owner.channel()
    _, outlet = owner.subscribe(channel, rdy=10)
    ids = taken(outlet)

    assert owner_of(channel, owner.broker.ids, ids[b"ours"])[0] is channel
    assert owner_of(channel, owner.broker.ids, ids[b"theirs"]) == (
        copy.channels["c"],
        origin.topic().log.next_seq - 1,
    )


def test_id_not_in_flight_is_channels_own(origin, owner):
    owner.promote(origin.topic())
    channel = owner.channel()

    assert owner_of(channel, owner.broker.ids, MessageIds(NODE_ID).encode(77)) == (channel, -1)
    assert owner_of(channel, owner.broker.ids, MessageIds(OWNER_ID).encode(77)) == (channel, 77)
    assert owner_of(channel, owner.broker.ids, b"no id at all....") == (channel, -1)


def test_present_node_id_decides_between_equal_sequences(owner):
    origin = Node()
    origin.channel()
    origin.publish(b"theirs")
    owner.broker.ids.recognise(NODE_ID)
    copy = owner.promote(origin.topic())
    channel = owner.channel()
    _, outlet = owner.subscribe(channel, rdy=10)
    ids = taken(outlet)
    assert ids[b"ours"][4:] == ids[b"theirs"][4:]

    assert owner_of(channel, owner.broker.ids, ids[b"theirs"])[0] is copy.channels["c"]
    assert owner_of(channel, owner.broker.ids, ids[b"ours"])[0] is channel


def test_log_in_flight_decides_after_change_of_node_id(origin, owner):
    owner.broker.ids.recognise(NODE_ID)
    copy = owner.promote(origin.topic())
    channel = owner.channel()
    _, outlet = owner.subscribe(channel, rdy=10)

    assert owner_of(channel, owner.broker.ids, taken(outlet)[b"theirs"])[0] is copy.channels["c"]
