"""Which log a message belongs to when a consumer answers it."""

import pytest
from tests.support.carrying import CARRIER_ID, Carrier

from nsqd.engine.owners import owner_of
from nsqd.log.ids import MessageIds
from tests.support.engine import NODE_ID, Node


@pytest.fixture
def home():
    home = Node()
    home.advance(3)
    home.channel()
    home.publish(b"theirs")
    return home


@pytest.fixture
def carrier():
    node = Carrier()
    node.channel()
    node.publish(b"ours")
    return node


def taken(outlet):
    return {body: message_id for message_id, _, body in outlet.taken()}


def test_an_id_of_another_node_is_of_the_log_it_came_from(home, carrier):
    copy = carrier.carry(home.topic())
    channel = carrier.channel()
    _, outlet = carrier.subscribe(channel, rdy=10)
    ids = taken(outlet)

    assert owner_of(channel, carrier.broker.ids, ids[b"ours"])[0] is channel
    assert owner_of(channel, carrier.broker.ids, ids[b"theirs"]) == (
        copy.channels["c"],
        home.topic().log.next_seq - 1,
    )


def test_an_id_that_nobody_has_in_flight_is_the_channels_own(home, carrier):
    carrier.carry(home.topic())
    channel = carrier.channel()

    assert owner_of(channel, carrier.broker.ids, MessageIds(NODE_ID).encode(77)) == (channel, -1)
    assert owner_of(channel, carrier.broker.ids, MessageIds(CARRIER_ID).encode(77)) == (channel, 77)
    assert owner_of(channel, carrier.broker.ids, b"no id at all....") == (channel, -1)


def test_of_two_with_one_number_it_is_the_one_whose_node_is_called_so_now(carrier):
    home = Node()
    home.channel()
    home.publish(b"theirs")
    carrier.broker.ids.recognise(NODE_ID)
    copy = carrier.carry(home.topic())
    channel = carrier.channel()
    _, outlet = carrier.subscribe(channel, rdy=10)
    ids = taken(outlet)
    assert ids[b"ours"][4:] == ids[b"theirs"][4:]

    assert owner_of(channel, carrier.broker.ids, ids[b"theirs"])[0] is copy.channels["c"]
    assert owner_of(channel, carrier.broker.ids, ids[b"ours"])[0] is channel


def test_a_node_that_once_had_the_other_ones_id_looks_who_has_the_message(home, carrier):
    carrier.broker.ids.recognise(NODE_ID)
    copy = carrier.carry(home.topic())
    channel = carrier.channel()
    _, outlet = carrier.subscribe(channel, rdy=10)

    assert owner_of(channel, carrier.broker.ids, taken(outlet)[b"theirs"])[0] is copy.channels["c"]
