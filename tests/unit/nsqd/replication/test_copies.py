"""The copies on disk: their records, their changes, and what a crash between two steps leaves."""

import errno
import json
import random
from contextlib import suppress

import pytest

from nsqd.log.disk import make_folders
from nsqd.replication.copies import Copies
from nsqd.storage.checkpoint import Sealed, with_serial
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.nsqd.replication.replica_end import DATA, ORIGIN, REPLICA
from tests.unit.nsqd.replication.stream_pair import StreamPair

OTHER = b"x" * 16
APPEND = b"an append"


class Crash(BaseException):
    """The process ends at this call."""


@pytest.fixture
def copies():
    return Copies(SimulatedDisk(DATA), DATA)


def make(copies, *, owner=ORIGIN):
    """A replica with one topic."""
    record = copies.new(ORIGIN, owner, origin_node_id=3)
    record.epoch, record.seen, record.index = 2, 4, 1
    record.holders[OTHER] = "other:4150"
    copies.create(record)
    path = copies.folder(record, "t").path
    make_folders(copies.disk, path)
    fd = copies.disk.create(path / "00000001.log")
    copies.disk.append(fd, [APPEND])
    copies.disk.close(fd)
    return record


def again(disk):
    copies = Copies(disk, DATA)
    return copies, copies.scan()


def shown(record):
    return {
        name: getattr(record, name)
        for name in (
            *("origin", "owner", "number", "origin_node_id", "epoch", "seen", "index", "holders"),
            *("promoted", "opened", "is_stored"),
        )
    }


def test_record_is_found_as_it_was_saved(copies):
    record = make(copies)
    record.opened, record.seen = True, 9
    copies.save(record)

    _, (found,) = again(copies.disk.after_power_cut(random.Random(1)))

    assert shown(found) == shown(record)
    assert found.path == DATA / "replicas" / ORIGIN.hex() / f"{ORIGIN.hex()}.1"


def test_new_copy_has_number_of_its_own(copies):
    first, second = make(copies), make(copies)
    copies.drop(second)

    after, (found,) = again(copies.disk)

    assert (first.number, second.number, found.number) == (1, 2, 1)
    assert after.next_number() == 3


def test_new_copy_is_not_saved_before_it_is_made(copies):
    record = copies.new(ORIGIN, ORIGIN)

    copies.save(record)

    assert again(copies.disk)[1] == []
    copies.create(record)
    assert record.is_stored


def test_replica_enters_stream_of_another_owner(copies):
    record = make(copies)
    record.owner = OTHER

    copies.enter(record)

    assert record.path == DATA / "replicas" / OTHER.hex() / f"{ORIGIN.hex()}.1"
    after, (found,) = again(copies.disk.after_power_cut(random.Random(1)))
    assert shown(found) == shown(record)
    assert after.topics(found) == ["t"]


def test_promoted_copy_is_found_under_its_epoch(copies):
    record = make(copies)

    copies.promote(record, 7)

    assert record.path == DATA / "owned" / f"{ORIGIN.hex()}.7.1"
    assert (record.promoted, record.epoch, record.seen) == (True, 7, 7)
    disk = copies.disk.after_power_cut(random.Random(1))
    _, (found,) = again(disk)
    assert shown(found) == shown(record)
    # Its files were synced.
    assert disk.read_file(record.path / "t.topic" / "00000001.log") == APPEND


def test_epoch_of_promoted_copy_is_raised_in_its_folder(copies):
    record = make(copies)
    copies.promote(record, 7)
    path = record.path

    copies.promote(record, 9)

    assert record.path == path
    _, (found,) = again(copies.disk.after_power_cut(random.Random(1)))
    assert (found.promoted, found.epoch, found.seen) == (True, 9, 9)


def test_dropped_copy_is_not_found_and_its_folder_is_removed_later(copies):
    record = make(copies)

    copies.drop(record)
    copies.save(record)

    after, found = again(copies.disk.after_power_cut(random.Random(1)))
    assert found == []
    assert len(after.removable) == 1
    after.remove_deleted()
    assert after.disk.names(DATA / "replicas" / ORIGIN.hex()) == []


def test_deleted_topic_is_not_found_and_its_folder_is_removed_later(copies):
    record = make(copies)

    copies.delete_topic(record, "t", 1 << 62)
    copies.delete_topic(record, "t", 1 << 62)

    assert copies.topics(record) == []
    after, _ = again(copies.disk.after_power_cut(random.Random(1)))
    assert len(after.removable) == 1
    after.remove_deleted()
    assert after.disk.names(record.path) == ["copy.json"]


def test_folder_that_cannot_be_removed_delays_no_other(copies):
    first, second = DATA / "1.deleted", DATA / "2.deleted"
    copies.removable[:] = [first, second]
    for folder in (first, second):
        copies.disk.make_folder(folder)
    copies.disk.fail(errno.EACCES, "remove_folder")

    with pytest.raises(OSError, match="Permission"):
        copies.remove_deleted()
    assert copies.removable == [first]
    copies.remove_deleted()

    assert copies.removable == []


# --- a crash at each call ---


def promote(copies, record):
    copies.promote(record, 7)


def enter(copies, record):
    record.owner, record.epoch, record.seen = OTHER, 5, 5
    copies.enter(record)


def drop(copies, record):
    copies.drop(record)


def save(copies, record):
    record.seen = 9
    copies.save(record)


CHANGES = [promote, enter, drop, save]


def crash_at(change, call):
    """The disk after the process has ended in a change at this call; None if there are fewer calls."""
    disk = SimulatedDisk(DATA)
    copies = Copies(disk, DATA)
    record = make(copies)
    disk.sync_all()
    start = len(disk.calls)

    def before(one):
        if one.number == start + call:
            raise Crash

    disk.before_call = before
    try:
        change(copies, record)
    except Crash:
        disk.before_call = lambda _call: None
        return disk
    return None


@pytest.mark.parametrize("change", CHANGES)
def test_crash_between_two_steps_leaves_one_valid_copy(change):
    call = 0
    kinds = set()
    while (disk := crash_at(change, call)) is not None:
        cuts = [disk.after_power_cut(random.Random(seed)) for seed in range(6)]
        for after in (disk.killed(), *cuts):
            copies, found = again(after)
            assert copies.problems == {}
            assert len(found) == 1 or (change is drop and not found)
            for record in found:
                assert copies.topics(record) == ["t"]
                assert after.read_file(record.path / "t.topic" / "00000001.log") == APPEND
                # Before the folder is renamed it is a replica under the epoch of its owner.
                epochs = {7} if record.promoted else {2, 5} if change is enter else {2}
                assert record.epoch in epochs
                change(copies, record)
                kinds.add(record.promoted)
            copies.remove_deleted()
            assert len(again(after)[1]) == (change is not drop)
        call += 1

    assert call >= 3
    assert kinds == ({True} if change is promote else {False})


def test_crash_while_copy_is_made_leaves_it_or_nothing():
    call = 0
    while True:
        disk = SimulatedDisk(DATA)
        copies = Copies(disk, DATA)

        def before(one, call=call):
            if one.number == call:
                raise Crash

        disk.before_call = before
        try:
            copies.create(copies.new(ORIGIN, OTHER))
            break
        except Crash:
            disk.before_call = lambda _call: None
        for after in (disk.killed(), disk.after_power_cut(random.Random(call))):
            later, found = again(after)
            assert later.problems == {}
            assert len(found) <= 1
            later.remove_deleted()
            later.create(later.new(ORIGIN, OTHER))
            assert len(again(after)[1]) == 1 + len(found)
        call += 1

    assert call > 5


@pytest.mark.parametrize("change", CHANGES)
def test_change_that_failed_at_call_is_completed_by_the_next_attempt(change):
    disk = SimulatedDisk(DATA)
    copies = Copies(disk, DATA)
    make(copies)
    volume = disk.volume
    call = 0
    while True:
        disk = SimulatedDisk(volume=volume.copy())
        copies, (record,) = again(disk)
        fault = disk.fail(errno.EIO, call=len(disk.calls) + call)
        try:
            change(copies, record)
        except OSError:
            disk.heal()
            change(copies, record)
        if fault.times:
            break
        after, found = again(disk.after_power_cut(random.Random(call)))
        assert after.problems == {}
        assert [shown(one) for one in found] == ([] if change is drop else [shown(record)])
        call += 1

    assert call >= 3


# --- records that cannot be used ---


def spoil(copies, record, change):
    path = record.path / "copy.json"
    content = copies.disk.read_file(path)
    copies.disk.replace(path, change(content), durable=True)


def newer(content):
    return json.dumps(json.loads(content) | {"version": 2}).encode()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda content: content[:-9], "copy.json is damaged: "),
        (lambda content: content.replace(b'"epoch": 2', b'"epoch": 3'), "its checksum is wrong"),
        (lambda _content: b"[]", "'list' object has no attribute"),
        (lambda _content: b"", "copy.json is damaged: "),
        (newer, "copy.json has version 2, this nsqd knows 1"),
    ],
)
def test_copy_with_damaged_record_is_kept_and_reported(copies, change, problem):
    record, sound = make(copies), make(copies)
    spoil(copies, record, change)

    after, (found,) = again(copies.disk)

    assert found.number == sound.number
    assert problem in after.problems[record.path]
    assert after.removable == []
    assert after.disk.read_file(record.path / "t.topic" / "00000001.log") == APPEND
    assert after.next_number() == 3


@pytest.mark.parametrize("problem", ["copy.json cannot be read: input/output error", "copy.json is missing"])
def test_copy_without_readable_record_is_kept_and_reported(copies, problem):
    record = make(copies)
    if "missing" in problem:
        copies.disk.remove(record.path / "copy.json")
    else:
        copies.disk.fail(errno.EIO, "read", "*copy.json")

    after, found = again(copies.disk)

    assert found == []
    assert after.problems == {record.path: problem}


def test_other_names_are_left_alone(copies):
    make(copies, owner=REPLICA)
    for path in (DATA / "replicas" / "notes", DATA / "owned"):
        copies.disk.make_folder(path)
    copies.disk.make_folder(DATA / "owned" / "mine")

    after, found = again(copies.disk)

    assert len(found) == 1
    assert after.removable == []
    assert after.problems == {}


# --- checkpoints that others have numbered ---


@pytest.fixture(scope="module")
def checkpoints():
    """Two checkpoints of one topic, with the serial numbers 8 and 9."""
    node = StreamPair().origin
    node.channel()
    found = []
    for number in range(2):
        node.publish(b"%d" % number)
        node.store().checkpoints.restart_chains()
        node.checkpoint()
        path = DATA / "t.topic" / f"checkpoint.{number}"
        found.append(with_serial(node.disk.read_file(path), 8 + number))
    return found


@pytest.fixture
def numbered(copies, checkpoints):
    """The folder of a copy with these checkpoints."""
    folder = copies.folder(make(copies), "t")
    for number, content in enumerate(checkpoints):
        copies.disk.replace(folder.path / f"checkpoint.{number}", content, durable=True)
    copies.disk.sync_folder(folder.path)
    folder.load()
    return folder


def states(disk, folder):
    names = [name for name in disk.names(folder.path) if name in ("checkpoint.0", "checkpoint.1")]
    return {name: Sealed(disk.read_file(folder.path / name), "t").state() for name in names}


def test_stream_counts_its_checkpoints_from_the_first_on(copies, numbered, checkpoints):
    numbered.restart_serials()

    (state,) = states(copies.disk, numbered).values()
    assert state.serial == 0
    assert state.checkpoint_position == Sealed(checkpoints[1]).state().checkpoint_position
    assert sorted(name for name in numbered.files if name.startswith("checkpoint")) == ["checkpoint.1"]


@pytest.mark.parametrize("call", range(12))
def test_newest_checkpoint_survives_while_serials_restart(copies, numbered, checkpoints, call):
    copies.disk.fail(errno.EIO, call=len(copies.disk.calls) + call)
    with suppress(OSError):
        numbered.restart_serials()

    for seed in range(5):
        found = states(copies.disk.after_power_cut(random.Random(seed)), numbered).values()
        newest = max(found, key=lambda one: one.serial)
        assert newest.checkpoint_position == Sealed(checkpoints[1]).state().checkpoint_position
