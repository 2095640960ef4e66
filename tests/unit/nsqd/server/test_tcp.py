"""What a connection asks of its transport."""

import asyncio
import gc
from collections import Counter

from nsqd.log.cursor import Cursor
from nsqd.protocol.session import MAX_NEW_TOPICS, Session
from nsqd.server.heartbeats import Heartbeats
from nsqd.server.read_quantum import FIRST, MOST
from nsqd.server.tcp import ClientConnection
from tests.support.turns import Bench, Client, Wire
from tests.support.wire import sized


class Heard(Wire):
    """Records when it is read from."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def pause_reading(self):
        self.calls.append("pause")

    def resume_reading(self):
        self.calls.append("resume")


# Each of these commands is refused with its own reply.
TOUCH = b"TOUCH 0000000000000000\n"


async def applied(client):
    """Wait until all that was read from the client is applied; returns the rounds of the loop it took."""
    rounds = 0
    while client.wire.calls[-1:] != ["resume"]:
        rounds += 1
        await asyncio.sleep(0)
    await client.bench.rest()
    return rounds


async def test_who_has_sent_much_that_takes_long_is_read_on_when_all_of_it_is_applied(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    count = MOST // len(TOUCH)

    client.connection.data_received(b"SUB t c\n" + TOUCH * count)
    begun = len(client.session.out)
    rounds = await applied(client)

    assert client.wire.calls == ["pause", "resume"]
    assert begun < count / 2
    assert rounds > 2
    assert len(client.replies) == 1 + count


async def test_while_the_commands_of_one_client_are_applied_others_are_served(tmp_path):
    bench = Bench(tmp_path)
    busy, other = Client(bench, Heard()), Client(bench)
    busy.connection.data_received(b"SUB t c\n" + TOUCH * (MOST // len(TOUCH)))

    other.connection.data_received(b"PUB t\n\0\0\0\1x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [body for _, body in other.replies] == [b"OK"]
    assert busy.wire.calls == ["pause"]
    await applied(busy)


async def test_what_is_applied_a_portion_at_a_time_keeps_its_order_and_is_whole(tmp_path):
    bench = Bench(tmp_path)
    client = Client(bench, Heard())
    published = [b"%08d" % number for number in range(3 * FIRST // 18)]
    data = b"".join(b"PUB t\n\0\0\0\10" + body + TOUCH for body in published)

    client.connection.data_received(b"SUB t c\n" + data[: len(data) // 2])
    # As a layer would do that still has data.
    client.connection.data_received(data[len(data) // 2 :])
    await applied(client)
    log = bench.broker.topics["t"].log
    stored = b"".join(
        block.frames(first, end) for first, end, block in Cursor(log).scan(log.next_seq - len(published))
    )

    assert [stored[at : at + 8] for at in range(34, len(stored), 42)] == published


async def test_what_was_sent_before_the_end_counts(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    count = MOST // len(TOUCH)
    client.connection.data_received(b"SUB t c\n" + TOUCH * count)

    client.connection.eof_received()
    await asyncio.sleep(0)

    assert (len(client.replies), client.closed) == (1 + count, True)


async def test_who_is_gone_while_its_commands_are_applied_is_left_alone(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    client.connection.data_received(b"SUB t c\n" + TOUCH * (MOST // len(TOUCH)))

    client.connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert client.wire.calls == ["pause"]


async def test_a_layer_that_is_granted_behind_very_much_is_read_from(tmp_path):
    bench = Bench(tmp_path)
    client = Client(bench, Heard())
    # The turn comes before anything that the connection asks of the loop.
    bench.write_batch.ask()
    pub = b"PUB t\n\0\0\0\1x"
    identify = b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"deflate":true}')

    client.connection.data_received(pub * (FIRST // len(pub) - 20) + identify + TOUCH * 99)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await bench.rest()

    assert client.wire.calls.count("pause") == client.wire.calls.count("resume")
    assert client.wire.get_protocol() is not client.connection


async def test_the_stream_of_another_node_is_handed_over_complete(tmp_path):
    bench = Bench(tmp_path)
    handed = []
    bench.clients.accept_peer = lambda _, data: handed.append(data)
    connection = ClientConnection(bench.clients)
    wire = Heard()
    connection.connection_made(wire)
    stream = bytes(range(256)) * (2 * FIRST // 256)

    connection.data_received(b"  R2" + stream)

    assert (handed, wire.calls) == ([stream], [])


async def test_who_has_sent_little_is_read_on_at_once(tmp_path):
    client = Client(Bench(tmp_path), Heard())

    client.connection.data_received(b"SUB t c\n" + b"TOUCH 0000000000000000\n" * 1000)
    await asyncio.sleep(0)

    assert client.wire.calls == []


async def test_a_connection_that_is_gone_leaves_nothing_that_only_a_collection_would_find(tmp_path):
    bench = Bench(tmp_path)
    kinds = ClientConnection, Session, Heartbeats
    gc.collect()
    gc.disable()
    try:
        before = Counter(type(one) for one in gc.get_objects() if isinstance(one, kinds))
        publisher, reader = bench.connect(), bench.connect()
        reader.says(b"SUB t c\nRDY 5\n")
        for number in range(3):
            publisher.says(b"PUB t\n" + sized(b"%d" % number))
            await bench.rest()
        assert reader.session.consumer.message_count == 3

        for client in (publisher, reader):
            client.connection.connection_lost(None)
        bench.events.clear()
        await bench.rest()
        del client, publisher, reader

        assert Counter(type(one) for one in gc.get_objects() if isinstance(one, kinds)) == before
    finally:
        gc.enable()


async def test_client_that_makes_many_topics_lets_others_be_answered(tmp_path):
    bench = Bench(tmp_path)
    busy, other = Client(bench, Heard()), Client(bench)
    count = 10 * MAX_NEW_TOPICS
    busy.connection.data_received(b"".join(b"PUB new%d\n" % number + sized(b"m") for number in range(count)))

    other.says(b"PUB t\n" + sized(b"m"))
    bench.write_batch.run()

    assert other.replies == [(0, b"OK")]
    assert len(bench.broker.topics) < count / 2
    rounds = await applied(busy)
    assert rounds >= count / MAX_NEW_TOPICS - 2
    assert busy.replies == [(0, b"OK")] * count
