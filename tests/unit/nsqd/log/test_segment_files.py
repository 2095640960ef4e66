"""The folder of a topic at start: several segments, and what may remain of them after damage."""

import errno
import random

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk
from nsqd.log.gaps import Gap, Why
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion
from nsqd.log.segment_files import UNREADABLE
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage import checkpoint
from tests.support.disks import FaultyDisk
from tests.support.engine import Node
from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import FIRST, Shop, noted, stored, zero
from tests.unit.nsqd.replication.replica_end import DATA

BODY = b"x" * 3000


@pytest.fixture
def shop(tmp_path):
    """Four segments of two appends of one message each; the last is the newest."""
    shop = Shop(tmp_path)
    shop.new(segment=5000)
    for _ in range(8):
        shop.publish(BODY)
    yield shop
    shop.store.appender.close()


def all_of_it(shop):
    return CheckpointPosition(
        shop.store.segments.end, shop.store.segments.notes, shop.store.segments.end, shop.store.segments.end
    )


def sequences(shop):
    return sorted(shop.bodies())


def lost(shop):
    return [gap for gap in shop.gaps() if gap.is_loss]


def test_segments_and_their_records_are_found_in_order(shop):
    shop.note(b"note")
    shop.publish(b"last")

    found = shop.reopen()

    assert [segment.number for segment in found.segments] == [1, 2, 3, 4, 5]
    assert stored(found) == [
        *[(FIRST + 2 * n, FIRST + 2 * n + 2, 0) for n in range(4)],
        (FIRST + 8, FIRST + 9, 0),
    ]
    assert noted(found) == [(1, b"note")]
    assert shop.warnings == []


def test_leftovers_of_unfinished_work_are_removed_and_other_files_kept(shop):
    others = {"adopting", "notes of the operator.log"}
    leftovers = {"00000002.1.log.new", "00000009.log.new", "00000001.index.tmp", "checkpoint.0.tmp"}
    for name in others | leftovers:
        (shop.folder / name).write_bytes(b"half")

    shop.reopen()

    assert set(shop.names()) & (others | leftovers) == others
    assert len(sequences(shop)) == 8


# --- a torn end


def test_torn_newest_segment_is_truncated_and_log_continues(shop):
    Disk().truncate(shop.log(4), 4000)

    shop.reopen()
    more = shop.publish(b"more")

    assert shop.bodies() == {**dict.fromkeys(range(FIRST, FIRST + 7), BODY), more.first: b"more"}
    assert lost(shop) == []
    assert "the end was not written completely" in shop.warnings[0]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_unwritten_append_is_gap_and_later_ones_are_kept(shop, number):
    zero(shop.log(number), 4000, 6000)

    found = shop.reopen()

    torn = FIRST + 2 * number - 1
    assert sequences(shop) == [seq for seq in range(FIRST, FIRST + 8) if seq != torn]
    assert lost(shop) == [Gap(torn, torn + 1, Why.REMOVED)]
    # The message is pending, so it counts as lost.
    assert any(first <= torn < end for first, end, _ in stored(found))


@pytest.mark.parametrize("number", [3, 4])
def test_segment_torn_at_its_first_append_is_removed(shop, number):
    zero(shop.log(number), 500, 6300)

    shop.reopen()
    more = shop.publish(b"more").first

    torn = range(FIRST + 2 * number - 2, FIRST + 2 * number)
    assert sequences(shop) == sorted({*range(FIRST, FIRST + 8), more} - ({*torn} - {more}))
    assert lost(shop) == ([Gap(FIRST + 4, FIRST + 6, Why.REMOVED)] if number == 3 else [])
    assert not shop.log(number).exists()
    assert shop.log(5).exists()


def test_durable_messages_are_never_cut_off(shop):
    mark = all_of_it(shop)
    zero(shop.log(2), 4000, 6000)

    shop.reopen(mark)

    assert sequences(shop) == [seq for seq in range(FIRST, FIRST + 8) if seq != FIRST + 3]
    assert lost(shop) == [Gap(FIRST + 3, FIRST + 4, Why.DAMAGED)]
    assert "up to 1 messages from 3eb on are lost: damaged" in shop.warnings[0]


@pytest.mark.parametrize(
    ("file", "lost_from", "lost_to"), [(2, 3, 4), (3, 4, 6)], ids=["end of a file", "name of a file"]
)
def test_loss_before_later_file_is_gap_and_pending(shop, file, lost_from, lost_to):
    if file == 2:
        # The size of the file had not reached the disk: it ends behind a whole append.
        shop.log(2).write_bytes(shop.log(2).read_bytes()[:-3082])
    else:
        shop.log(3).unlink()

    found = shop.reopen(CheckpointPosition(FIRST + 2, 0, FIRST + 2, FIRST + 2))

    start, end = FIRST + lost_from, FIRST + lost_to
    assert sequences(shop) == [seq for seq in range(FIRST, FIRST + 8) if not start <= seq < end]
    assert lost(shop) == [Gap(start, end, Why.REMOVED)]
    assert (start, end, 0) in stored(found)


def test_crash_while_an_end_is_cut_costs_no_more(shop):
    zero(shop.log(2), 4000, 6300)
    zero(shop.log(4), 4000, 6300)
    shop.store.appender.close()
    for calls in range(60):
        disk = FaultyDisk()
        budget = calls

        def before(name, args, disk=disk):
            nonlocal budget
            if name in {"remove", "truncate", "rename", "sync_folder"}:
                budget -= 1
                if budget < 0:
                    raise OSError(errno.EIO, "killed")

        disk.before = before
        try:
            shop.reopen(disk=disk)
        except OSError:
            shop.reopen()
        else:
            break
        assert sequences(shop) == [seq for seq in range(FIRST, FIRST + 7) if seq != FIRST + 3]
        assert lost(shop) == [Gap(FIRST + 3, FIRST + 4, Why.REMOVED)]
    assert calls == 2


# --- segments after a failure


def test_note_known_to_checkpoint_is_synced_unless_it_is_marked_as_synced(shop):
    assert shop.sync() is None
    shop.note(b"defer")
    # It is unknown whether the checkpoint reached the disk: the next start may have an older one.
    mark = shop.mark()
    assert mark.notes == 1

    for syncs in (1, 0):
        disk = FaultyDisk()
        shop.reopen(mark, disk)
        assert disk.calls.count("sync") == syncs
        assert noted(shop.found) == []
        mark = shop.mark()


def test_messages_after_failed_append_are_retained(shop):
    disk = FaultyDisk()
    shop.reopen(all_of_it(shop), disk)
    shop.publish(BODY)
    disk.faults.update(append=errno.EIO, truncate_open=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        shop.publish(b"refused")
    disk.faults.clear()
    with shop.log(5).open("ab") as file:
        file.write(b"half of what was refused")
    kept = shop.publish(b"kept")
    assert shop.sync() is None

    shop.reopen()

    assert shop.bodies()[kept.first] == b"kept"
    assert b"refused" not in shop.bodies().values()
    assert lost(shop) == []
    assert shop.warnings == []


# --- dropped messages


def test_finished_unsynced_messages_leave_no_hole(tmp_path):
    node = Node()
    topic = node.topic()
    topic.skip_to(FIRST + 4)
    shop = Shop(tmp_path)
    shop.new(segment=5000)
    for _ in range(8):
        shop.publish(BODY)
    # Nothing was synced. Nothing is pending in the first two segments, and both checkpoints say so.
    topic.backlog.extend(FIRST + 4, FIRST + 8)
    noted_before = checkpoint.decode(checkpoint.encoder(topic, 1, shop.mark())()).checkpoint_position
    assert shop.drop(topic.low_water(), shop.store.segments.notes) == 2

    shop.reopen(noted_before)

    assert sequences(shop) == list(range(FIRST + 4, FIRST + 8))
    assert shop.warnings == []


@pytest.mark.parametrize("remaining", [0, 2])
def test_segments_dropped_before_checkpoint_take_no_others(shop, remaining):
    mark = CheckpointPosition(FIRST, 0, FIRST, FIRST)
    assert shop.drop(FIRST + 8 - 2 * remaining, shop.store.segments.notes) == (2 if remaining else 3)
    kept = shop.publish(b"kept")
    assert shop.sync() is None

    shop.reopen(mark)

    assert shop.bodies()[kept.first] == b"kept"
    assert len(sequences(shop)) == (5 if remaining else 3)


# --- files that are gone or are not ours


@pytest.mark.parametrize(
    ("gone", "gap"),
    [([2], (2, 4)), ([4], (6, 8)), ([1, 2, 3, 4], (0, 8))],
    ids=["in the middle", "the newest", "all"],
)
def test_durable_files_that_were_removed_are_one_gap(shop, gone, gap):
    mark = all_of_it(shop)
    for number in gone:
        shop.log(number).unlink()

    shop.reopen(mark)

    start, end = FIRST + gap[0], FIRST + gap[1]
    assert lost(shop) == [Gap(start, end, Why.REMOVED)]
    assert sequences(shop) == [seq for seq in range(FIRST, FIRST + 8) if not start <= seq < end]
    assert shop.store.segments.losses() == (lost(shop) if len(gone) < 4 else [])
    assert shop.store.segments.extents() == [
        part for part in ((FIRST, start), (end, FIRST + 8)) if part[0] < part[1]
    ]
    assert shop.publish(b"more").first == FIRST + 8


def test_missing_oldest_file_leaves_uncovered_messages_missing(shop):
    checkpoint_of_one = CheckpointPosition(FIRST + 1, 0, FIRST + 1, FIRST + 1)
    for number in (1, 2):
        shop.log(number).unlink()

    found = shop.reopen(checkpoint_of_one)

    assert stored(found) == [(FIRST + 1, FIRST + 4, 0), *[(FIRST + n, FIRST + n + 2, 0) for n in (4, 6)]]
    assert lost(shop) == [Gap(FIRST, FIRST + 4, Why.REMOVED)]


def test_missing_oldest_file_without_checkpoint_is_a_loss(shop):
    shop.log(1).unlink()

    found = shop.reopen()

    assert stored(found) == [(FIRST + n, FIRST + n + 2, 0) for n in (2, 4, 6)]
    (warning,) = shop.warnings
    assert "00000002.log: what was stored before it is lost, and no checkpoint tells of it" in warning


def test_file_that_is_no_log_is_put_aside_and_what_was_in_it_is_missed(shop):
    mark = all_of_it(shop)
    shop.log(2).write_bytes(b"another's" * 100)

    shop.reopen(mark)

    assert lost(shop) == [Gap(FIRST + 2, FIRST + 4, Why.REMOVED)]
    assert "00000002.log is put aside" in shop.warnings[0]
    assert "00000002.log.unreadable" in shop.names()


@pytest.mark.parametrize("known", [0, 2, 8], ids=["no mark", "a mark in front of it", "a mark behind all"])
@pytest.mark.parametrize(("source", "place"), [(s, p) for s in range(1, 5) for p in range(1, 5) if s != p])
def test_file_in_place_of_another_costs_only_messages_of_that_one(shop, source, place, known):
    shop.sync()
    content = shop.log(source).read_bytes()
    shop.log(place).write_bytes(content)
    gone = {FIRST + 2 * place - 2, FIRST + 2 * place - 1}
    mark = CheckpointPosition(FIRST + known, 0, FIRST + known, FIRST + 8) if known else None

    found = shop.reopen(mark)

    assert set(sequences(shop)) == set(range(FIRST, FIRST + 8)) - gone
    happened = [seq for first, end, _ in stored(found) for seq in range(first, end)]
    assert len(set(happened)) == len(happened)
    assert any("put aside: it is not from this place of the log" in warning for warning in shop.warnings)
    # The file is kept for inspection, and no later start warns about it.
    assert any(name.endswith(UNREADABLE) for name in shop.names())
    shop.warnings.clear()
    shop.reopen(shop.mark())
    assert shop.warnings == []
    assert set(sequences(shop)) == set(range(FIRST, FIRST + 8)) - gone


def test_overlapping_file_of_another_log_is_put_aside(shop, tmp_path):
    shop.publish(b"a", b"b", b"c", b"d")
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other")
    other.encoder.skip_to(FIRST + 10)
    other.new()
    other.publish(b"foreign")
    other.store.appender.close()
    shop.log(6).write_bytes(other.log(1).read_bytes())

    found = shop.reopen()

    assert "00000006.log is put aside" in shop.warnings[0]
    assert sequences(shop) == list(range(FIRST, FIRST + 12))
    assert stored(found)[-1] == (FIRST + 8, FIRST + 12, 0)


def test_compacted_file_in_place_of_older_one_covers_none_between(shop):
    shop.sync()
    shop.compact((FIRST, FIRST + 4), (FIRST + 5, FIRST + 8))
    (compacted,) = shop.folder.glob("*.1.log")
    assert compacted.name > shop.log(3).name[:8]
    shop.log(1).write_bytes(compacted.read_bytes())

    shop.reopen(CheckpointPosition(FIRST + 8, 0, FIRST + 8, FIRST + 8))

    assert sequences(shop) == [FIRST + 2, FIRST + 3, FIRST + 5, FIRST + 6, FIRST + 7]


def test_file_whose_header_is_zeros_goes_only_when_nothing_else_is_in_it(shop):
    zero(shop.log(2), 0, 512)
    shop.log(4).write_bytes(bytes(10_000))

    shop.reopen()

    assert shop.log(2).with_name(shop.log(2).name + UNREADABLE).stat().st_size > 512
    assert not shop.log(4).exists()
    assert sequences(shop) == [FIRST, FIRST + 1, FIRST + 4, FIRST + 5]


def test_file_of_newer_version_stops_start_and_nothing_is_touched(shop):
    names = shop.names()
    content = bytearray(shop.log(2).read_bytes())
    copy = FILE_HEADER_BYTES // 2
    for at in (0, copy):
        content[at + 8] = 3
        check = xxh3_64_intdigest(bytes(content[at : at + copy - 8]))
        content[at + copy - 8 : at + copy] = check.to_bytes(8, "little")
    shop.log(2).write_bytes(content)

    with pytest.raises(NewerVersion):
        shop.reopen()

    assert shop.names() == names


# --- generations


@pytest.mark.parametrize(("again", "kept"), [(1, 2), (2, 5)], ids=["older generation", "covered file"])
def test_file_that_compacted_one_replaces_is_removed(shop, again, kept):
    assert shop.sync() is None
    before = shop.log(again).read_bytes()
    mark = all_of_it(shop)
    shop.compact((FIRST + kept, FIRST + 8))
    assert not shop.log(again).exists()
    shop.log(again).write_bytes(before)

    shop.reopen(mark)

    assert not shop.log(again).exists()
    assert sequences(shop) == list(range(FIRST + kept, FIRST + 8))
    assert {gap.why for gap in shop.gaps()} == {Why.COMPACTED}


@pytest.mark.parametrize("content", [b"", b"another's" * 100], ids=["empty", "not a log"])
def test_newer_generation_without_messages_gives_way_to_older(shop, content):
    (shop.folder / "00000001.1.log").write_bytes(content)

    shop.reopen(all_of_it(shop))

    assert len(sequences(shop)) == 8
    assert "00000001.1.log" not in shop.names()


# --- faults of the disk


@pytest.mark.parametrize(
    "call", ["names", "open_read", "read", "size", "open_write", "write_at", "sync", "sync_folder"]
)
def test_start_that_meets_fault_says_so_and_the_next_one_finds_everything(shop, call):
    with pytest.raises(OSError, match="Too many open files"):
        shop.reopen(disk=FaultyDisk(**{call: errno.EMFILE}))

    shop.reopen()
    assert len(sequences(shop)) == 8


def test_messages_above_mark_are_synced_at_start(shop):
    disk = FaultyDisk()

    shop.reopen(CheckpointPosition(FIRST + 2, 0, FIRST + 2, FIRST + 2), disk)

    assert disk.calls.count("sync") == 3
    assert disk.calls.count("sync_folder") == 2
    assert shop.store.segments.synced == FIRST + 8


@pytest.mark.parametrize("durable", [0, 1])
def test_tail_of_failed_fsync_is_durable_after_the_next_start(durable):
    disk = SimulatedDisk(DATA)
    shop = Shop(DATA)
    shop.new(disk)
    shop.publish(BODY)
    if durable:
        assert shop.sync() is None
    mark, durable_size = shop.mark(), durable and shop.store.segments[-1].size
    shop.publish(BODY, BODY)
    disk.fail(errno.EIO, "sync")
    assert shop.sync() is not None
    killed = disk.killed()

    shop.reopen(mark, killed)

    written = sum(call.detail for call in killed.calls if call.operation == "write_at")
    assert written == shop.store.segments[-1].size - durable_size
    for seed in range(20):
        shop.reopen(mark, killed.after_power_cut(random.Random(seed)))
        assert sequences(shop) == [FIRST, FIRST + 1, FIRST + 2]
