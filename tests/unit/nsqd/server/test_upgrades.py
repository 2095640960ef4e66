"""The reply that grants a layer is sent without it, and the OK that follows is sent through it."""

from tests.support.turns import Bench
from tests.support.wire import sized


async def test_second_answer_of_turn_makes_no_second_layer(tmp_path):
    client = Bench(tmp_path).connect()
    client.says(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"deflate":true}'))
    client.connection.answer()
    layer = client.wire.get_protocol()

    client.connection.answer()
    await client.bench.rest()

    assert client.wire.get_protocol() is layer
