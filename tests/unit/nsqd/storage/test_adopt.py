"""A data path as the original leaves it is started on."""

import struct

import pytest

from nsqd.engine.broker import Broker
from nsqd.engine.ids import MessageIds
from nsqd.engine.limits import Limits
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.diskqueue import Record, find_queues
from nsqd.storage.metadata import TopicMetadata

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
    queue = find_queues(path).get(name)
    return [record.body for record in queue.records(warnings.append)] if queue else [], warnings


def test_records_keep_their_timestamp_and_attempts(tmp_path):
    write_queue(tmp_path, "t", record(b"x", attempts=3))

    assert list(find_queues(tmp_path)["t"].records(pytest.fail)) == [Record(NOW - 5, 3, b"x")]


def test_reading_goes_on_where_the_meta_file_says_across_files(tmp_path):
    first = record(b"read") + record(b"one")
    write_queue(tmp_path, "t", b"gone", first, record(b"two"), meta=f"2\n1,{len(record(b'read'))}\n2,31\n")

    assert bodies(tmp_path, "t") == ([b"one", b"two"], [])


def test_without_a_meta_file_everything_is_taken(tmp_path):
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


def test_a_topic_is_not_taken_for_one_whose_name_begins_alike(tmp_path):
    write_queue(tmp_path, "t:c", record(b"channel"))
    write_queue(tmp_path, "t.diskqueue", record(b"odd name"))

    assert bodies(tmp_path, "t") == ([], [])


class Start:
    def __init__(self, path, listed):
        self.warnings = []
        self.data = DataPath(path, StorageOptions(), self.warnings.append)
        self.broker = Broker(MessageIds(1), Limits(), self.data)
        self.data.restore(self.broker, listed, NOW)
        self.topics = self.broker.topics

    def owed(self, channel):
        """(attempts, body) of everything a channel owes."""
        found = []
        for span in channel.pending:
            for seq in range(span.start, span.end):
                block = channel.log.block_from(seq)
                found.append(
                    (channel.attempts.get(seq, 0), block.frames(seq, seq + 1)[34:], block.timestamp_ns(seq))
                )
        return found


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
    assert start.owed(a) == [
        (0, b"for a", NOW - 5),
        (2, b"tried", NOW - 5),
        (0, b"not distributed yet", NOW - 5),
    ]
    assert [body for _, body, _ in start.owed(b)] == [b"not distributed yet"]
    assert (a.paused, b.paused) == (False, True)
    assert start.topics["alone"].backlog.depth == 1
    assert "took over 4 messages" in start.warnings[0]


def test_a_second_start_takes_nothing_twice(tmp_path):
    write_queue(tmp_path, "t:a", record(b"once"))
    Start(tmp_path, LISTED).data.close()

    start = Start(tmp_path, LISTED)

    assert start.topics["t"].channels["a"].depth == 1
    assert start.warnings == []
    assert (tmp_path / "t:a.diskqueue.000000.dat.adopted").exists()


def test_an_interrupted_adoption_is_done_again_or_finished(tmp_path):
    write_queue(tmp_path, "t:a", record(b"once"))
    unfinished = tmp_path / "t.topic.adopting"
    unfinished.mkdir()
    (unfinished / "0000.log").write_bytes(b"half")
    Start(tmp_path, LISTED).data.close()
    # as if the process had died between the rename of the folder and that of the old file
    (tmp_path / "t:a.diskqueue.000000.dat.adopted").rename(tmp_path / "t:a.diskqueue.000000.dat")
    (tmp_path / "t.topic" / "adopting").touch()

    start = Start(tmp_path, LISTED)

    assert start.topics["t"].channels["a"].depth == 1
    assert not unfinished.exists()
    assert not list(tmp_path.glob("*.dat"))


def test_newer_files_of_the_original_beside_our_log_are_not_passed_over(tmp_path):
    write_queue(tmp_path, "t:a", record(b"once"))
    Start(tmp_path, LISTED).data.close()
    write_queue(tmp_path, "t:a", record(b"written by the original since"))

    with pytest.raises(OSError, match="also disk queue files of the original"):
        Start(tmp_path, LISTED)
