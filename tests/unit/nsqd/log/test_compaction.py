import errno
from pathlib import Path

import pytest

from nsqd.engine.state import wanted_of
from nsqd.log.disk import Disk
from nsqd.log.gaps import EVERYTHING, Gap, Why
from nsqd.log.layout import APPEND_HEADER_BYTES, FILE_HEADER_BYTES
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.topic_log import TopicLog
from tests.support.disks import DyingDisk, FaultyDisk
from tests.support.engine import Node
from tests.support.stores import FIRST, Shop, deferred, flip, stored, wanting

NEWEST = (FIRST + 100, FIRST + 101)
DURABLE = CheckpointPosition(FIRST + 101, 0, FIRST + 101, FIRST + 101)


class Ledger(Shop):
    """A closed segment of ten appends of ten messages, and a newer one of a single message."""

    segment_bytes = 4400

    def fill(self, disk=None):
        self.new(disk)
        for n in range(10):
            self.publish(*[b"%d" % (n * 10 + m) for m in range(10)])
        self.store.appender.seal()
        self.publish(b"newest")
        assert self.sync() is None
        return self

    def compact(self, *pending):
        """Compact as the server does; returns the bytes saved."""
        if not self.store.cleaner.needs_compaction(self.store.checkpoints.covered_notes):
            return 0
        return super().compact(*pending)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path).fill()
    yield ledger
    ledger.store.appender.close()


def bodies(*numbers):
    return {FIRST + n: b"%d" % n for n in numbers} | {FIRST + 100: b"newest"}


def losses(ledger):
    return [gap for gap in ledger.gaps() if gap.is_loss]


def test_compaction_retains_pending_messages(ledger):
    assert ledger.compact((FIRST + 15, FIRST + 17), (FIRST + 99, FIRST + 101)) > 3000
    assert {one.header.log_id for one in ledger.store.segments} == {ledger.store.appender.log_id}
    for mark in (None, DURABLE, CheckpointPosition()):
        assert ledger.bodies() == bodies(15, 16, 99)
        assert losses(ledger) == []
        if mark is not None:
            ledger.reopen(mark)
    assert ledger.log(2).exists()
    assert not ledger.log(1).exists()


def test_segment_with_many_pending_messages_is_not_compacted(ledger):
    assert ledger.compact((FIRST, FIRST + 60)) == 0
    assert len(ledger.bodies()) == 101


@pytest.mark.parametrize("batch", [1, 2, 8, 200])
@pytest.mark.parametrize("size", [1, 8, 12, 20, 60])
@pytest.mark.parametrize("step", [2, 3, 5, 20])
def test_compaction_of_scattered_short_messages_makes_no_file_larger(tmp_path, batch, size, step):
    shop = Shop(tmp_path)
    shop.new(segment=1 << 17)
    while len(shop.store.segments) < 2:
        shop.publish(*[b"x" * size] * batch)
    assert shop.sync() is None
    segment = shop.store.segments[0]
    job = shop.store.cleaner.begin_compaction(
        wanting(*[(seq, seq + 1) for seq in range(FIRST, segment.next, step)]), EVERYTHING
    )
    job.run()

    assert shop.store.cleaner.end_compaction(job) > (segment.size // 4 if step == 20 else -1)
    shop.store.appender.close()


def test_segment_without_pending_messages_keeps_only_its_end(ledger):
    ledger.compact((FIRST + 100, FIRST + 101))

    for _ in range(3):
        assert ledger.bodies() == bodies()
        assert ledger.gaps() == [Gap(FIRST, FIRST + 100, Why.COMPACTED)]
        ledger.reopen(DURABLE)
    assert ledger.compact(NEWEST) == 0


def test_small_segment_is_not_worth_it(ledger):
    store = TopicLog(Disk(), ledger.folder, 1 << 20, pytest.fail)
    store.recover(DURABLE)

    job = store.cleaner.begin_compaction(wanting((FIRST, FIRST + 1), NEWEST), store.checkpoints.covered_notes)
    job.run()

    assert store.cleaner.end_compaction(job) == 0
    store.appender.close()


def test_compaction_skips_newest_and_unsynced_segments(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.new(segment=1)
    ledger.publish(b"a")
    ledger.publish(b"b")
    assert not ledger.store.cleaner.needs_compaction(ledger.store.checkpoints.covered_notes)

    running = ledger.store.appender.begin_sync()
    assert not ledger.store.cleaner.needs_compaction(ledger.store.checkpoints.covered_notes)

    running.run(Disk())
    ledger.store.appender.end_sync(running, None)
    assert ledger.compact((FIRST + 1, FIRST + 2)) > 0
    assert ledger.bodies() == {FIRST + 1: b"b"}
    ledger.store.appender.close()


def test_compaction_ignores_segments_closed_while_it_runs(ledger):
    job = ledger.begin_compaction()
    ledger.store.appender.seal()
    more = ledger.publish(b"more")
    ledger.sync()
    job.run()
    ledger.store.cleaner.end_compaction(job)

    assert ledger.bodies() == bodies() | {more.first: b"more"}


def test_segment_with_note_that_checkpoint_does_not_have_is_left_alone(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.new(segment=1)
    ledger.publish(b"a", notes=(b"note",))
    ledger.publish(b"b")
    ledger.sync()

    assert not ledger.store.cleaner.needs_compaction(ledger.store.checkpoints.covered_notes)
    ledger.store.appender.close()


def test_segment_can_be_compacted_again(ledger):
    ledger.compact((FIRST + 10, FIRST + 40))
    assert "00000001.1.log" in ledger.names()

    assert ledger.compact((FIRST + 11, FIRST + 12)) > 0

    assert [name for name in ledger.names() if name.startswith("00000001")] == [
        "00000001.2.index",
        "00000001.2.log",
    ]
    ledger.reopen(DURABLE)
    assert ledger.bodies() == bodies(11)


def test_compaction_keeps_due_time_of_cut_deferred_batch(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.new()
    ledger.publish(*[b"x"] * 90)
    later = deferred(ledger.encoder, *[b"%d" % number for number in range(10)])
    ledger.store.appender.append([later], [], later.first)
    ledger.store.appender.seal()
    ledger.sync()
    first = later.first

    ledger.compact((first + 2, first + 4), (first + 9, first + 10))

    found = stored(ledger.reopen(CheckpointPosition(FIRST, 0, FIRST + 100, FIRST)))
    assert found == [(first + 2, first + 4, 99), (first + 9, first + 10, 99)]
    assert ledger.bodies() == {first + 2: b"2", first + 3: b"3", first + 9: b"9"}


def test_compaction_does_not_hide_damaged_pending_messages(ledger):
    flip(ledger.log(1), 8 * (FILE_HEADER_BYTES + APPEND_HEADER_BYTES + 100))

    assert ledger.compact((FIRST + 5, FIRST + 6)) == 0

    assert losses(ledger) == [Gap(FIRST, FIRST + 10, Why.DAMAGED)]
    assert "is not compacted" in ledger.warnings[0]


def test_removed_file_does_not_block_compaction_of_others(ledger):
    for n in range(10):
        ledger.publish(b"%d" % n * 3000)
    ledger.store.appender.seal()
    ledger.publish(b"newest")
    assert ledger.sync() is None
    gone, there = (FIRST + 15, FIRST + 16), (FIRST + 105, FIRST + 106)
    ledger.log(1).unlink()

    assert ledger.compact(gone, there) == 0
    assert "00000001.log is not compacted" in ledger.warnings[0]
    assert ledger.compact(gone, there) > 0

    assert losses(ledger) == [Gap(FIRST, FIRST + 100, Why.REMOVED)]
    assert ledger.bodies()[FIRST + 105] == b"4" * 3000


def test_damage_in_finished_messages_does_not_stop_compaction(ledger):
    flip(ledger.log(1), 8 * (FILE_HEADER_BYTES + APPEND_HEADER_BYTES + 100))

    assert ledger.compact((FIRST + 15, FIRST + 16)) > 0
    assert ledger.bodies() == bodies(15)


# --- interruptions


def test_compaction_killed_at_any_call_happened_or_did_not(tmp_path):
    for calls in range(100):
        (tmp_path / str(calls)).mkdir()
        ledger = Ledger(tmp_path / str(calls)).fill()
        ledger.reopen(DURABLE)
        ledger.store.segments.disk = DyingDisk(calls)
        try:
            ledger.compact((FIRST + 15, FIRST + 16), NEWEST)
        except OSError:
            for mark in (DURABLE, CheckpointPosition()):
                ledger.reopen(mark)
                found = ledger.bodies()
                assert found in (bodies(*range(100)), bodies(15)), calls
                assert losses(ledger) == []
            assert not [name for name in ledger.names() if name.endswith((".new", ".tmp"))]
            # The file that was newest before may have been merged with it into one.
            assert len([name for name in ledger.names() if name.endswith(".log")]) <= 2
            ledger.compact((FIRST + 15, FIRST + 16), NEWEST)
            assert ledger.bodies() == bodies(15)
            continue
        assert calls > 5
        return
    pytest.fail("it never came to an end")


def test_start_removes_what_was_put_together_when_name_of_that_is_durable(tmp_path):
    disk = FaultyDisk()
    ledger = Ledger(tmp_path).fill(disk)
    ledger.reopen(DURABLE, disk)
    disk.faults["sync_folder"] = errno.EIO
    ledger.compact((FIRST + 15, FIRST + 16), NEWEST)
    assert {"00000001.log", "00000001.1.log"} <= set(ledger.names())
    disk.faults.clear()
    disk.calls.clear()

    ledger.reopen(DURABLE, disk)

    assert ledger.bodies() == bodies(15)
    assert not ledger.log(1).exists()
    calls = [call for call in disk.calls if call in {"sync_folder", "remove"}]
    # The old file and its index are removed after the folder is synced.
    assert calls[:3] == ["sync_folder", "remove", "remove"]


@pytest.mark.parametrize("call", ["create", "append", "sync", "rename", "open_read", "read"])
def test_compaction_that_fails_leaves_segment_and_no_descriptor(tmp_path, call):
    disk = FaultyDisk()
    ledger = Ledger(tmp_path).fill(disk)
    names = ledger.names()
    for _ in range(5):
        disk.faults[call] = errno.EMFILE
        with pytest.raises(OSError, match="Too many open files"):
            ledger.compact((FIRST + 15, FIRST + 16))
        disk.faults.clear()
        assert ledger.names() == names
        assert len(ledger.bodies()) == 101

    open_files = [path.resolve() for path in Path("/proc/self/fd").iterdir()]
    assert sum(path.parent == ledger.folder for path in open_files) == 1
    assert ledger.compact((FIRST + 15, FIRST + 16)) > 0
    assert ledger.bodies() == bodies(15)
    ledger.store.appender.close()


def test_segment_dropped_during_compaction_removes_its_copy(ledger):
    job = ledger.begin_compaction((FIRST + 5, FIRST + 6))
    job.run()
    assert ledger.drop(FIRST + 100, 0) == 1

    assert ledger.store.cleaner.end_compaction(job) == 0
    ledger.store.cleaner.remove_files()
    assert ledger.names() == ["00000002.log"]


def test_segment_dropped_before_its_read_leaves_no_copy_and_is_no_damage(ledger):
    job = ledger.begin_compaction((FIRST + 5, FIRST + 6))
    ledger.drop(FIRST + 100, 0)

    job.run()
    assert ledger.store.cleaner.end_compaction(job) == 0
    assert ledger.names() == ["00000002.log"]
    assert ledger.warnings == []


def test_topic_deleted_during_compaction_is_skipped(ledger):
    job = ledger.begin_compaction((FIRST + 5, FIRST + 6))
    job.run()
    deleted = ledger.store.delete()
    names = sorted(path.name for path in deleted.iterdir())

    assert ledger.store.cleaner.end_compaction(job) == 0
    assert sorted(path.name for path in deleted.iterdir()) == names


def test_deleted_log_is_not_compacted(ledger):
    ledger.store.delete()

    assert not ledger.store.cleaner.needs_compaction(ledger.store.checkpoints.covered_notes)


def test_claim_while_compaction_runs_cancels_it(ledger):
    job = ledger.begin_compaction((FIRST + 5, FIRST + 6))
    assert ledger.store.cleaner.claim() == [(FIRST, FIRST + 101)]
    job.run()

    assert ledger.store.cleaner.end_compaction(job) == 0
    assert ledger.bodies() == bodies(*range(100))
    assert ledger.names() == ["00000001.index", "00000001.log", "00000002.log"]


# --- a channel is created during a compaction and gets stored messages


class WatchedDisk(Disk):
    """Calls *before* when a copy is about to get its final name."""

    def rename(self, source, target):
        if source.name.endswith(".new"):
            self.before()
        super().rename(source, target)


def test_claim_before_copy_has_name_cancels_compaction(tmp_path):
    class Syncing(Disk):
        def sync(self, fd):
            super().sync(fd)
            if armed:
                given.extend(ledger.store.cleaner.claim())

    armed, given = [], []
    ledger = Ledger(tmp_path).fill(Syncing())
    armed.append(True)

    assert ledger.compact((FIRST + 5, FIRST + 6)) == 0
    assert given == [(FIRST, FIRST + 101)]
    assert ledger.bodies() == bodies(*range(100))
    assert not list(ledger.folder.glob("*.new"))
    ledger.store.appender.close()


def test_claim_after_decision_has_only_copied_messages(tmp_path):
    ledger = Ledger(tmp_path).fill(disk := WatchedDisk())
    given = []
    disk.before = lambda: given.extend(ledger.store.cleaner.claim())

    assert ledger.compact((FIRST + 5, FIRST + 6), (FIRST + 30, FIRST + 32)) > 0
    assert given == [(FIRST + 5, FIRST + 6), (FIRST + 30, FIRST + 32), NEWEST]
    assert ledger.bodies() == bodies(5, 30, 31)
    ledger.store.appender.close()


@pytest.mark.parametrize("call", ["sync_folder", "replace"])
def test_copy_that_has_its_name_counts_at_once_whatever_else_fails(tmp_path, call):
    """The copy counts at the next start. It needs the messages that a channel gets during the compaction."""
    ledger = Ledger(tmp_path).fill(disk := FaultyDisk())
    disk.faults[call] = errno.EIO
    ledger.compact((FIRST + 5, FIRST + 6))
    disk.faults.clear()
    # If the folder was not synced, a power cut may undo the rename, so the old files are kept.
    kept = call == "sync_folder"
    assert ("00000001.log" in ledger.names()) == kept
    assert ledger.bodies() == bodies(5)

    ledger.reopen()
    assert ledger.bodies() == bodies(5)
    assert "00000001.log" not in ledger.names()
    ledger.store.appender.close()


# --- pending messages


def test_wanted_has_unfinished_messages_of_all_channels():
    node = Node()
    channel, other = node.channel(), node.channel("other")
    node.publish(*[b"x"] * 10)
    first = node.topic().log.next_seq - 10
    other.commit(first + 10)
    consumer, _ = node.subscribe(channel, rdy=3)
    channel.requeue(first, consumer, 10**12, node.now_ns)
    channel.finish([first + 1], consumer, node.now_ns)
    pending = wanted_of(node.topic())
    channel.empty()

    assert pending.ranges(0, EVERYTHING) == [(first, first + 1), (first + 2, first + 10)]


def test_topic_backlog_is_pending():
    node = Node()
    node.publish(b"1", b"2")
    end = node.topic().log.next_seq

    assert wanted_of(node.topic()).ranges(0, EVERYTHING) == [(end - 2, end)]
