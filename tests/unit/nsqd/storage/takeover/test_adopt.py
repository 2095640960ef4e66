"""A start on a data path that the original left."""

import struct

import pytest

from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.log.disk import Disk
from nsqd.log.ids import MessageIds
from nsqd.storage.data_path import DataPath, StorageOptions, store_of
from nsqd.storage.metadata import Metadata, TopicMetadata
from nsqd.storage.takeover.diskqueue import Record, find_queues

NOW = 1_700_000_000_000_000_000


def record(body, attempts=0, timestamp=NOW - 5):
    payload = struct.pack(">qH16s", timestamp, attempts, b"18e9b0ab63e4a84c") + body
    return struct.pack(">i", len(payload)) + payload


def write_queue(path, name, *files, meta=None):
    for number, content in enumerate(files):
        (path / f"{name}.diskqueue.{number:06d}.dat").write_bytes(content)
    if meta is not None:
        (path / f"{name}.diskqueue.meta.dat").write_text(meta)


def bodies(path, name):
    warnings = []
    queue = find_queues(Disk(), path).get(name)
    return [record.body for record in queue.records(Disk(), warnings.append)] if queue else [], warnings


def test_records_keep_their_timestamp_and_attempts(tmp_path):
    write_queue(tmp_path, "t", record(b"x", attempts=3))

    assert list(find_queues(Disk(), tmp_path)["t"].records(Disk(), pytest.fail)) == [Record(NOW - 5, 3, b"x")]


def test_reading_goes_on_where_meta_file_says_across_files(tmp_path):
    first = record(b"read") + record(b"one")
    write_queue(tmp_path, "t", b"gone", first, record(b"two"), meta=f"2\n1,{len(record(b'read'))}\n2,31\n")

    assert bodies(tmp_path, "t") == ([b"one", b"two"], [])


def test_disk_queue_without_meta_file_is_taken_whole(tmp_path):
    write_queue(tmp_path, "t", record(b"one") + record(b"two"))

    assert bodies(tmp_path, "t") == ([b"one", b"two"], [])


@pytest.mark.parametrize(
    "damage", [b"\0\0\0\x05", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0", record(b"cut")[:-1]]
)
def test_damage_costs_the_rest_of_its_file_and_is_named(tmp_path, damage):
    write_queue(tmp_path, "t", record(b"one") + damage, record(b"two"))

    found, warnings = bodies(tmp_path, "t")

    assert found == [b"one", b"two"]
    assert "000000.dat: no message at 33" in warnings[0]


def test_topic_is_not_taken_for_one_whose_name_begins_alike(tmp_path):
    write_queue(tmp_path, "t:c", record(b"channel"))
    write_queue(tmp_path, "t.diskqueue", record(b"odd name"))

    assert bodies(tmp_path, "t") == ([], [])


class Start:
    """One life of an nsqd on the data path; *disk* may end it early."""

    def __init__(self, path, listed=(), disk=None):
        self.warnings = []
        self.data = DataPath(path, StorageOptions(), self.warnings.append, disk)
        self.broker = Broker(MessageIds(1), Limits(), self.data.create_log)
        self.topics = self.broker.topics
        self.data.restore(self.broker, Metadata(list(listed)), NOW)

    def close(self):
        for topic in self.topics.values():
            store_of(topic).appender.close()

    def pending(self, channel):
        """(attempts, body, timestamp) of a channel's backlog."""
        found = []
        for start, end in channel.backlog.pending.ranges():
            for seq in range(start, end):
                block = channel.log.read(seq)
                found.append(
                    (
                        channel.backlog.attempts.get(seq, 0),
                        block.frames(seq, seq + 1)[34:],
                        block.timestamp_ns(seq),
                    )
                )
        return found

    def bodies(self, channel):
        return [body for _, body, _ in self.pending(channel)]


LISTED = [
    TopicMetadata("t", False, [("a", False), ("b", True), ("e#ephemeral", False)]),
    TopicMetadata("alone"),
]


def test_topics_and_channels_owe_what_their_queues_held(tmp_path):
    write_queue(tmp_path, "t", record(b"not distributed yet"))
    write_queue(tmp_path, "t:a", record(b"for a") + record(b"tried", attempts=2))
    write_queue(tmp_path, "alone", record(b"no channel"))

    start = Start(tmp_path, LISTED)

    a, b = start.topics["t"].channels["a"], start.topics["t"].channels["b"]
    assert start.pending(a) == [
        (0, b"for a", NOW - 5),
        (2, b"tried", NOW - 5),
        (0, b"not distributed yet", NOW - 5),
    ]
    assert start.bodies(b) == [b"not distributed yet"]
    assert (a.paused, b.paused) == (False, True)
    assert start.topics["alone"].backlog.pending.count == 1
    assert "took over 4 messages" in start.warnings[0]
    assert (start.topics["t"].message_count, a.message_count) == (0, 0)  # they were not published here


def test_second_start_takes_nothing_twice(tmp_path):
    write_queue(tmp_path, "t:a", record(b"once"))
    Start(tmp_path, LISTED).close()

    start = Start(tmp_path, LISTED)

    assert start.bodies(start.topics["t"].channels["a"]) == [b"once"]
    assert start.warnings == []
    assert (tmp_path / "t:a.diskqueue.000000.dat.adopted").exists()


class Stops(Disk):
    """Ends the process after *n* changes of the disk."""

    def __init__(self, n):
        self.left = n

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise Stopped

    def append(self, fd, pieces):
        self._step()
        super().append(fd, pieces)

    def replace(self, path, content, *, durable):
        self._step()
        super().replace(path, content, durable=durable)

    def rename(self, path, target):
        self._step()
        super().rename(path, target)

    def remove(self, path):
        self._step()
        super().remove(path)


class Stopped(Exception):
    """The process is gone."""


def test_adoption_interrupted_anywhere_takes_everything_once(tmp_path):
    for steps in range(100):
        path = tmp_path / str(steps)
        path.mkdir()
        write_queue(path, "t", record(b"for all"))
        write_queue(path, "t:a", record(b"1") + record(b"2"), record(b"3"), meta="3\n0,0\n1,31\n")
        try:
            Start(path, LISTED, Stops(steps)).close()
            finished = True
        except Stopped:
            finished = False

        again = Start(path, LISTED)

        channels = again.topics["t"].channels
        assert sorted(again.bodies(channels["a"])) == [b"1", b"2", b"3", b"for all"], steps
        assert again.bodies(channels["b"]) == [b"for all"], steps
        assert not list(path.glob("*.dat")), steps
        again.close()
        if finished:
            break
    assert finished
    assert steps > 5


def test_file_that_came_after_interrupted_adoption_is_read_too(tmp_path):
    write_queue(tmp_path, "t:a", record(b"first"))
    for steps in range(100):
        try:
            Start(tmp_path, LISTED, Stops(steps)).close()
        except Stopped:
            if (tmp_path / "t.topic" / "adopting").exists() and b"true" in (
                tmp_path / "t.topic" / "adopting"
            ).read_bytes():
                break
    # All was taken over, but no file was renamed yet. Now the original runs again and writes another file.
    (tmp_path / "t:a.diskqueue.000001.dat").write_bytes(record(b"second"))

    start = Start(tmp_path, LISTED)

    assert start.bodies(start.topics["t"].channels["a"]) == [b"first", b"second"]
    assert not list(tmp_path.glob("*.dat"))


def test_files_of_original_that_ran_again_are_adopted(tmp_path):
    write_queue(tmp_path, "t:a", record(b"once"))
    Start(tmp_path, LISTED).close()
    write_queue(tmp_path, "t:a", record(b"written by the original since"))

    start = Start(tmp_path, LISTED)

    assert start.bodies(start.topics["t"].channels["a"]) == [b"once", b"written by the original since"]


def test_queues_of_unlisted_topic_are_named_and_adopted_when_it_is_made(tmp_path):
    write_queue(tmp_path, "o", record(b"orphan"))
    write_queue(tmp_path, "t:gone", record(b"of a channel"))
    start = Start(tmp_path, LISTED)
    assert "no topic o is known" in start.warnings[0]
    assert "no channel t/gone is known" in start.warnings[1]
    start.close()

    again = Start(tmp_path, [*LISTED, TopicMetadata("o", False, [("c", False)])])

    assert again.bodies(again.topics["o"].channels["c"]) == [b"orphan"]
