"""The reply that grants a layer is sent without it, and the OK that follows is sent through it."""

import struct

import pytest

from nsqclient.wire.compression import Deflate, Snappy
from nsqclient.wire.frames import FrameParser
from tests.support.turns import Bench
from tests.support.wire import sized

COMPRESSIONS = {"deflate": lambda: Deflate(6), "snappy": Snappy}


@pytest.mark.parametrize("name", COMPRESSIONS)
async def test_compression_begins_behind_answer_that_grants_it(tmp_path, name):
    client = Bench(tmp_path).connect()
    client.says(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"%b":true}' % name.encode()))

    await client.bench.rest()

    (size,) = struct.unpack_from(">I", client.sent)
    answer, behind = client.sent[8 : 4 + size], client.sent[4 + size :]
    codec = COMPRESSIONS[name]()
    codec.feed(behind)
    assert b'"%b":true' % name.encode() in answer
    assert FrameParser().feed(codec.read()) == [(0, b"OK")]


async def test_commands_through_layer_are_applied(tmp_path):
    client = Bench(tmp_path).connect()
    client.says(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"deflate":true}'))
    await client.bench.rest()
    layer = client.wire.get_protocol()

    layer.data_received(Deflate(6).compress(b"PUB t\n" + sized(b"through it")))
    await client.bench.rest()

    assert client.bench.broker.topics["t"].message_count == 1


async def test_second_answer_of_turn_makes_no_second_layer(tmp_path):
    client = Bench(tmp_path).connect()
    client.says(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"deflate":true}'))
    client.connection.answer()
    layer = client.wire.get_protocol()

    client.connection.answer()
    await client.bench.rest()

    assert client.wire.get_protocol() is layer
