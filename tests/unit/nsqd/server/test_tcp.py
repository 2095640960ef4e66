"""What a connection asks of its transport."""

import asyncio
import gc
from collections import Counter

from nsqd.engine.topic import Refused
from nsqd.log.cursor import Cursor
from nsqd.protocol.session import MAX_NEW_TOPICS, Session
from nsqd.server.heartbeats import Heartbeats
from nsqd.server.read_quantum import FIRST, MAX_BYTES
from nsqd.server.tcp import LONG_BYTES, MAX_LOGGED, ClientConnection, LongBodies
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


async def test_long_commands_are_applied_before_next_read(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    count = MAX_BYTES // len(TOUCH)

    client.connection.data_received(b"SUB t c\n" + TOUCH * count)
    begun = len(client.session.replies)
    rounds = await applied(client)

    assert client.wire.calls == ["pause", "resume"]
    assert begun < count / 2
    assert rounds > 2
    assert len(client.replies) == 1 + count


async def test_clients_are_served_between_portions_of_another(tmp_path):
    bench = Bench(tmp_path)
    busy, other = Client(bench, Heard()), Client(bench)
    busy.connection.data_received(b"SUB t c\n" + TOUCH * (MAX_BYTES // len(TOUCH)))

    other.connection.data_received(b"PUB t\n\0\0\0\1x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [body for _, body in other.replies] == [b"OK"]
    assert busy.wire.calls == ["pause"]
    await applied(busy)


async def test_commands_applied_in_portions_keep_their_order(tmp_path):
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


async def test_commands_before_the_end_of_stream_are_applied(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    count = MAX_BYTES // len(TOUCH)
    client.connection.data_received(b"SUB t c\n" + TOUCH * count)

    client.connection.eof_received()
    await asyncio.sleep(0)

    assert (len(client.replies), client.closed) == (1 + count, True)


async def test_rest_of_commands_is_dropped_when_client_is_gone(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    client.connection.data_received(b"SUB t c\n" + TOUCH * (MAX_BYTES // len(TOUCH)))

    client.connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert client.wire.calls == ["pause"]


async def test_layer_granted_behind_very_much_is_read_from(tmp_path):
    bench = Bench(tmp_path)
    client = Client(bench, Heard())
    # The turn comes before anything that the connection asks of the loop.
    bench.write_batch.request_turn()
    pub = b"PUB t\n\0\0\0\1x"
    identify = b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"deflate":true}')

    client.connection.data_received(pub * (FIRST // len(pub) - 20) + identify + TOUCH * 99)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await bench.rest()

    assert client.wire.calls.count("pause") == client.wire.calls.count("resume")
    assert client.wire.get_protocol() is not client.connection


async def test_stream_of_another_node_is_handed_over_complete(tmp_path):
    bench = Bench(tmp_path)
    handed = []
    bench.clients.accept_peer = lambda _, data: handed.append(data)
    connection = ClientConnection(bench.clients)
    wire = Heard()
    connection.connection_made(wire)
    stream = bytes(range(256)) * (2 * FIRST // 256)

    connection.data_received(b"  R2" + stream)

    assert (handed, wire.calls) == ([stream], [])


async def test_client_that_has_sent_little_is_not_paused(tmp_path):
    client = Client(Bench(tmp_path), Heard())

    client.connection.data_received(b"SUB t c\n" + b"TOUCH 0000000000000000\n" * 1000)
    await asyncio.sleep(0)

    assert client.wire.calls == []


async def test_ended_consumer_and_publisher_leave_no_object(tmp_path):
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


class Full:
    """A bound that admits nothing."""

    def admit(self, _count, _size):
        raise Refused("full")


class Socket(Heard):
    """A transport that reads as its protocol wants it."""

    def hears(self, data):
        while data:
            if isinstance(self.get_protocol(), LongBodies):
                room = self.get_protocol().get_buffer(-1)
                count = min(len(room), len(data))
                room[:count] = data[:count]
                self.get_protocol().buffer_updated(count)
            else:
                count = min(FIRST - 1, len(data))
                self.get_protocol().data_received(data[:count])
            data = data[count:]


async def test_long_messages_are_received_in_place_until_another_command(tmp_path):
    client = Client(Bench(tmp_path), Socket())
    client.wire.set_protocol(client.connection)
    first, second = b"1" * 150_000, b"2" * 150_000

    client.wire.hears(b"PUB t\n" + sized(b"short"))
    client.wire.hears(b"PUB t\n" + sized(first) + b"PUB t\n" + sized(second))
    received_by = client.wire.get_protocol()
    client.wire.hears(b"NOP\nSUB t c\nRDY 9\n")
    await client.bench.rest()

    assert isinstance(received_by, LongBodies)
    assert client.wire.get_protocol() is client.connection
    assert client.bench.broker.topics["t"].message_bytes == 300_005
    assert [body for kind, body in client.replies if kind == 0] == [b"OK"] * 4


async def test_long_messages_let_others_have_their_turn(tmp_path):
    client = Client(Bench(tmp_path), Socket())
    client.wire.set_protocol(client.connection)
    command = b"PUB t\n" + sized(b"m" * 150_000)
    client.wire.hears(b"PUB t\n" + sized(b"short") + 2 * command)
    client.wire.calls.clear()

    client.wire.hears(LONG_BYTES // 150_000 * command)

    assert client.wire.calls == ["pause"]
    assert await applied(client) == 1


async def test_connection_that_closes_behind_long_message_is_not_paused(tmp_path):
    client = Client(Bench(tmp_path), Socket())
    client.wire.set_protocol(client.connection)
    client.wire.hears(b"PUB t\n" + sized(b"short") + (b"PUB t\n" + sized(b"m" * LONG_BYTES))[:-1])
    client.wire.calls.clear()
    client.bench.broker.topics["t"].bind(Full())
    client.connection.session.forget_publish_lines()

    client.wire.hears(b"m")

    assert client.replies[-1] == (1, b"E_PUB_FAILED PUB failed full")
    assert client.closed
    assert client.wire.calls == []


async def test_end_of_stream_within_long_message_is_answered(tmp_path):
    client = Client(Bench(tmp_path), Socket())
    client.wire.set_protocol(client.connection)
    client.wire.hears(b"PUB t\n" + sized(b"short") + (b"PUB t\n" + sized(b"m" * 150_000))[:-1])
    assert isinstance(client.wire.get_protocol(), LongBodies)

    client.wire.get_protocol().eof_received()
    await client.bench.rest()

    assert client.replies[-1] == (1, b"E_BAD_MESSAGE PUB failed to read message body")
    assert client.closed


async def test_errors_of_turn_are_logged_up_to_number_and_counted(tmp_path, monkeypatch):
    client = Client(Bench(tmp_path), Heard())
    logged = []
    monkeypatch.setattr(client.bench.clients.log, "error", lambda text, *args: logged.append(text % args))

    client.says(b"SUB t c\n" + TOUCH * (MAX_LOGGED + 2) + b"\xff\n")
    await client.bench.rest()

    assert len(logged) == MAX_LOGGED + 1
    assert logged[-1].endswith("] - and 3 more")

    other = client.bench.connect()
    other.says(b"\xff\n")
    await client.bench.rest()
    assert logged[-1].endswith("] - E_INVALID invalid command \\udcff")
