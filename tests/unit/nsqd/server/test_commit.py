"""Staged messages are in their file, with reserved numbers, before any reply, or are never delivered."""

import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.server.write_batch import NotStored
from tests.support.disks import FullDisk
from tests.support.turns import Bench
from tests.support.wire import sized


async def test_ok_means_that_message_is_in_its_file(tmp_path):
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
        bench.connect().says(b"PUB t\n" + sized(b"hello"))

    await bench.rest()

    (segment,) = (tmp_path / "t.topic").glob("*.log")
    content = segment.read_bytes()
    # One append for the note that the topic was created, one for all messages.
    assert bench.appends("t") == 2
    assert content.count(b"hello") == 5


async def test_full_disk_is_error_of_publishers_and_stores_no_message(tmp_path):
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


async def test_number_is_reserved_on_disk_before_message_gets_it(tmp_path):
    order = []

    class Watched(Disk):
        def write_at(self, fd, data, offset):
            order.append("reserve")
            super().write_at(fd, data, offset)

        def append(self, fd, pieces):
            order.append("append")
            super().append(fd, pieces)

    bench = Bench(tmp_path, Watched())
    bench.broker.sequences.reserved = 0
    bench.data.reservation.sequences = bench.broker.sequences

    bench.connect().says(b"PUB t\n" + sized(b"m"))
    await bench.rest()

    assert order == ["reserve", "append"]
    assert bench.broker.sequences.reserved > bench.broker.topics["t"].log.next_seq


async def test_message_is_not_stored_without_reservation(tmp_path):
    class NoReservation(Disk):
        def write_at(self, fd, data, offset):
            raise OSError(errno.EIO, "Input/output error")

    bench = Bench(tmp_path, NoReservation())
    bench.broker.sequences.reserved = 0
    bench.data.reservation.sequences = bench.broker.sequences
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"m"))

    await bench.rest()

    assert client.replies == [(1, b"E_PUB_FAILED PUB failed input/output error")]
    assert not list(tmp_path.glob("*/*.log"))


class OneReplica(Disk):
    """A disk, and the one replica that every publish needs; a *slow* replica is disconnected at an append."""

    slow = False
    in_sync = True
    replicates = True
    appends = 0

    @property
    def primary(self):
        return self

    def append(self, fd, pieces):
        super().append(fd, pieces)
        self.appends += 1
        self.in_sync = self.in_sync and not self.slow

    def lacks(self, _store):
        return "" if self.in_sync else "0 of 1 replicas are in sync"

    def wait(self, _store, **_more):
        return None

    def flush(self):
        pass


async def test_replica_disconnected_at_append_means_no_ok(tmp_path):
    replica = OneReplica()
    bench = Bench(tmp_path, replica, replicas=replica)
    publisher, reader = bench.connect(), bench.connect()
    reader.says(b"SUB t c\nRDY 10\n")
    publisher.says(b"PUB t\n" + sized(b"one"))
    await bench.rest()
    replica.slow = True
    publisher.says(b"PUB t\n" + sized(b"two"))
    await bench.rest()

    assert publisher.replies == [(0, b"OK"), (1, b"E_PUB_FAILED PUB failed 0 of 1 replicas are in sync")]
    # It is stored here, and is given out.
    assert reader.session.consumer.message_count == 2


async def test_refused_publish_leaves_notes_of_other_clients(tmp_path):
    replica = OneReplica()
    bench = Bench(tmp_path, replica, replicas=replica)
    publisher, reader = bench.connect(), bench.connect()
    reader.says(b"SUB t c\nRDY 1\n")
    publisher.says(b"PUB t\n" + sized(b"one"))
    await bench.rest()
    topic = bench.broker.topics["t"]
    (message_id,) = [data[10:26] for kind, data in reader.replies if kind == 2]
    replica.in_sync = False

    publisher.says(b"PUB t\n" + sized(b"two"))
    by_http = bench.write_batch.stored(topic)
    bench.broker.pause_channel(topic, topic.channels["c"], paused=True)
    reader.says(b"REQ " + message_id + b" 60000\n")
    paused = bench.write_batch.note_stored(topic, durable=True)
    await bench.rest()

    assert publisher.replies[-1] == (1, b"E_PUB_FAILED PUB failed 0 of 1 replicas are in sync")
    with pytest.raises(NotStored, match="0 of 1 replicas are in sync"):
        await by_http
    await paused
    (segment,) = (tmp_path / "t.topic").glob("*.log")
    content = segment.read_bytes()
    assert b'{"note":"pause","channel":"c"}' in content
    assert b'{"note":"defer","channel":"c","messages":' in content
    assert b"two" not in content


async def test_note_is_stored_when_replica_is_disconnected_at_its_append(tmp_path):
    replica = OneReplica()
    bench = Bench(tmp_path, replica, replicas=replica)
    topic = bench.broker.topic("t", 1)
    await bench.rest()
    replica.slow = True

    topic.stage(b"one", 1)
    published = bench.write_batch.stored(topic)
    bench.broker.pause_topic(topic, paused=True)
    paused = bench.write_batch.note_stored(topic)
    await bench.rest()

    with pytest.raises(NotStored, match="0 of 1 replicas are in sync"):
        await published
    await paused


async def test_refusal_does_not_wait_for_fsync_of_note(tmp_path):
    replica = OneReplica()
    bench = Bench(tmp_path, replica, sync_every=1, replicas=replica)
    topic = bench.broker.topic("t", 1)
    await bench.rest()
    replica.in_sync = False
    publisher = bench.connect()

    publisher.says(b"PUB t\n" + sized(b"one"))
    bench.broker.pause_topic(topic, paused=True)
    bench.write_batch.run()

    assert publisher.replies == [(1, b"E_PUB_FAILED PUB failed 0 of 1 replicas are in sync")]
    await bench.fsync.synced()


async def test_notes_fail_together_with_refused_publish_on_full_disk(tmp_path):
    class FullWithoutReplica(OneReplica, FullDisk):
        pass

    replica = FullWithoutReplica(room=1000)
    bench = Bench(tmp_path, replica, replicas=replica)
    topic = bench.broker.topic("t", 1)
    await bench.rest()
    replica.in_sync, replica.room = False, 0

    topic.stage(b"one", 1)
    bench.broker.pause_topic(topic, paused=True)
    paused = bench.write_batch.note_stored(topic, durable=True)
    await bench.rest()

    with pytest.raises(NotStored, match="no space left on device"):
        await paused


async def test_publishers_of_round_share_one_append_with_replicas(tmp_path):
    replica = OneReplica()
    bench = Bench(tmp_path, replica, replicas=replica)
    publishers = [bench.connect() for _ in range(3)]
    for publisher in publishers:
        publisher.says(b"PUB t\n" + sized(b"one"))
    await bench.rest()

    assert [one.replies for one in publishers] == [[(0, b"OK")]] * 3
    assert replica.appends == 1
