"""One turn: what is stored before what is answered, and what happens when it cannot be stored."""

import struct
import time

import pytest

from nsqcore.service.logs import Log, LogLevel
from nsqcore.wire.frames import FrameParser
from nsqd.engine.broker import Broker
from nsqd.engine.ids import MessageIds
from nsqd.engine.limits import Limits
from nsqd.engine.session import Session
from nsqd.server.health import Health
from nsqd.server.tcp import Connection
from nsqd.server.turn import NotStored, Turn
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.disk import Disk
from tests.support.disks import BrokenSync, FullDisk
from tests.support.engine import Outlet


def sized(body):
    return struct.pack(">I", len(body)) + body


class Bench:
    """A turn over a real data path, and connections that keep what they would send."""

    def __init__(self, path, disk=None, sync_every=2500):
        self.health = Health()
        self.data = DataPath(path, StorageOptions(), lambda _: None, disk or Disk())
        self.broker = Broker(MessageIds(1), Limits(), self.data)
        self.events = []
        self.turn = Turn(
            self.broker,
            self.data,
            self.health,
            Log("[test] ", LogLevel.FATAL),
            sync_every=sync_every,
            on_event=self.events.append,
        )

    def connect(self):
        return Client(self)

    async def rest(self):
        """Let the turn and its fsyncs come to an end."""
        self.turn.run()
        await self.turn.synced()


class Client:
    """What a connection is to the turn, with a list in place of the socket."""

    def __init__(self, bench):
        self.bench = bench
        self.session = Session(bench.broker, Outlet(), "", lambda _: lambda: True)
        self.session.receive(b"  V2", 0)
        self.sent = b""
        self.closed = False

    def says(self, data):
        self.session.receive(data, time.time_ns())
        self.bench.turn.ask_for(self)

    def not_stored(self, topic, reason):
        self.session.not_stored(topic, reason)

    def answer(self):
        if self.session.out:
            self.sent += self.session.take_replies()
        self.closed = self.closed or self.session.closing

    # The rules of holding replies back are the connection's own; they are used, not copied.
    _held = 0
    peer = "client"

    def hold_answer(self):
        return Connection.hold_answer(self)

    def _log_errors(self):
        self.session.errors.clear()

    @property
    def _transport(self):
        return self

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True

    @property
    def replies(self):
        return FrameParser().feed(self.sent)


async def test_an_ok_means_that_the_message_is_in_its_file(tmp_path):
    bench = Bench(tmp_path)
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"hello"))
    assert client.replies == []

    await bench.rest()

    assert client.replies == [(0, b"OK")]
    (segment,) = (tmp_path / "t.topic").glob("*.log")
    assert segment.read_bytes().endswith(b"hello")


async def test_publishers_of_one_turn_share_one_append(tmp_path):
    bench = Bench(tmp_path)
    for _ in range(5):
        bench.connect().says(b"PUB t\n" + sized(b"x"))

    await bench.rest()

    (index,) = (tmp_path / "t.topic").glob("*.index")
    assert index.stat().st_size == 8 + 32


async def test_on_a_full_disk_publishers_get_the_reason_others_their_answer_and_nobody_the_message(tmp_path):
    disk = FullDisk(room=1000)
    bench = Bench(tmp_path, disk)
    publisher, other, reader = bench.connect(), bench.connect(), bench.connect()
    reader.says(b"SUB t c\nRDY 10\n")
    publisher.says(b"PUB t\n" + sized(b"x" * 2000))
    other.says(b"NOP\nPUB t#ephemeral\n" + sized(b"in memory"))

    await bench.rest()

    assert publisher.replies == [(1, b"E_PUB_FAILED PUB failed no space left on device")]
    assert publisher.closed
    assert other.replies == [(0, b"OK")]
    assert str(bench.health) == "NOK - no space left on device"
    assert reader.session.consumer.message_count == 0

    disk.room = 10_000
    again = bench.connect()
    again.says(b"PUB t\n" + sized(b"fits"))
    await bench.rest()
    assert again.replies == [(0, b"OK")]
    assert bench.health.ok
    assert reader.session.consumer.message_count == 1


async def test_http_publishers_hear_of_success_and_failure(tmp_path):
    disk = FullDisk(room=1000)
    bench = Bench(tmp_path, disk)
    topic = bench.broker.topic("t", 1)
    topic.publish(b"fits", 1)
    await bench.turn.stored(topic)
    topic.publish(b"x" * 2000, 1)

    with pytest.raises(NotStored, match="no space left on device"):
        await bench.turn.stored(topic)


async def test_in_strict_mode_replies_wait_for_the_fsync_and_keep_their_order(tmp_path):
    bench = Bench(tmp_path, sync_every=1)
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"1"))
    bench.turn.run()
    client.says(b"FOO\n")
    bench.turn.run()
    assert client.replies == []

    await bench.turn.synced()

    assert client.replies == [(0, b"OK"), (1, b"E_INVALID invalid command FOO")]
    assert client.closed
    assert bench.turn.sync_count >= 1


async def test_in_strict_mode_those_who_publish_nothing_wait_for_nobody(tmp_path):
    bench = Bench(tmp_path, sync_every=1)
    publisher, reader = bench.connect(), bench.connect()
    publisher.says(b"PUB t\n" + sized(b"1"))
    reader.says(b"SUB t c\n")

    bench.turn.run()

    assert (publisher.replies, reader.replies) == ([], [(0, b"OK")])
    await bench.turn.synced()


async def test_in_strict_mode_a_failed_fsync_is_no_ok(tmp_path):
    bench = Bench(tmp_path, BrokenSync(), sync_every=1)
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"1"))
    topic = bench.broker.topic("u", 1)
    topic.publish(b"by http", 1)
    stored = bench.turn.stored(topic)

    await bench.rest()

    assert client.replies == [(1, b"E_PUB_FAILED PUB failed input/output error")]
    assert client.closed
    with pytest.raises(NotStored, match="input/output error"):
        await stored
    assert "NOK" in str(bench.health)


async def test_created_topics_are_told_before_their_messages_move(tmp_path):
    bench = Bench(tmp_path)
    bench.connect().says(b"SUB t c\nPUB t\n" + sized(b"1"))

    await bench.rest()

    assert [event.change.value for event in bench.events] == ["topic created", "channel created"]


async def test_the_first_client_that_waits_is_answered_at_once_the_others_share(tmp_path):
    bench = Bench(tmp_path)
    clients = [bench.connect() for _ in range(4)]
    for client in clients:
        client.session.receive(b"PUB t\n" + sized(b"x"), time.time_ns())
        bench.turn.ask_for(client, waits=True)
    assert [client.replies for client in clients] == [[(0, b"OK")], [], [], []]

    await bench.rest()

    assert [client.replies for client in clients] == [[(0, b"OK")]] * 4
    (index,) = (tmp_path / "t.topic").glob("*.index")
    assert index.stat().st_size == 8 + 2 * 32
