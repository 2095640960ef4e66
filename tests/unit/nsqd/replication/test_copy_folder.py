"""What is written to the files of a copy, and what is refused."""

import errno
import random

import pytest

from nsqd.log.layout import FILE_MAGIC, append_header
from nsqd.replication.frames import Appends, FilePart, Have, Refuse, Rename, Seal, Sync
from nsqd.replication.framing import encode
from nsqd.storage.checkpoint import Sealed
from tests.unit.nsqd.replication.replica_end import DATA, FIRST, SECOND, Shelf, part, primary_file
from tests.unit.nsqd.replication.stream_pair import StreamPair

NEWER = FILE_MAGIC.replace(b"\x02", b"\x03") + bytes(200)


def have(answers):
    """The files that a replica has reported of its one topic."""
    (found,) = [one for one in answers if isinstance(one, Have)]
    return found.files


def test_copy_has_bytes_of_primary(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one", b"two", notes=(b"a note",))
    shop.publish(b"three")

    shelf.send(*sent.frames)

    assert shelf.content(FIRST) == primary_file(shop)


@pytest.mark.parametrize("offset", [0, 1, 100_000])
def test_append_that_does_not_join_is_refused(shelf, shop, sent, offset):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    shelf.send(sent.frames[0])

    shelf.send(Appends(1, FIRST, offset, sent.frames[1].data))

    assert shelf.refused.code == Refuse.DAMAGED
    assert shelf.content(FIRST) == sent.frames[0].data


def test_log_that_begins_in_middle_is_refused(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")

    shelf.send(sent.frames[1])

    assert "no such file" in shelf.refused.sentence


def test_part_that_was_damaged_on_its_way_is_refused(shelf, shop):
    shelf.begin()
    shop.publish(b"one")

    shelf.send(FilePart(1, FIRST, 0, 5, primary_file(shop)))

    assert "damaged on its way" in shelf.refused.sentence
    assert shelf.names() == []


def test_rename_of_file_to_name_of_another_is_refused(shelf):
    shelf.begin()

    shelf.send(part("checkpoint.0.tmp", 0, b"x"), Rename(1, "checkpoint.0.tmp", "00000001.log"))

    assert shelf.refused.code == Refuse.DAMAGED
    assert shelf.disk.names(DATA) == ["replicas"]


def test_incomplete_file_is_not_reported_and_is_removed_by_the_next_start(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(part("00000001.1.log.new", 0, primary_file(shop)))

    shelf.connect()
    assert have(shelf.begin()) == ()
    after = Shelf(shelf.disk.killed())
    assert have(after.begin()) == ()
    assert after.names() == []


def test_full_disk_keeps_what_was_written_before(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"x" * 9000)
    shelf.send(sent.frames[0])
    shelf.disk.fail(errno.ENOSPC, "append", partial=100)

    shelf.send(sent.frames[1])

    assert shelf.refused == Refuse(Refuse.DISK, "the replica's disk: no space left on device")
    shelf.connect()
    (file,) = have(shelf.begin())
    assert file.size == len(sent.frames[0].data)
    shelf.send(sent.frames[1])
    assert shelf.content(FIRST) == primary_file(shop)


# --- checkpoints ---


@pytest.fixture(scope="module")
def checkpoints():
    """The contents of real checkpoints, oldest first."""
    node = StreamPair().origin
    node.channel()
    found = []
    for number in range(9):
        node.publish(b"%d" % number)
        node.store().checkpoints.restart_chains()
        node.checkpoint()
        found.append(node.disk.read_file(DATA / "t.topic" / f"checkpoint.{number % 2}"))
    return found


def checkpoint(content, slot):
    return part(f"checkpoint.{slot}.tmp", 0, content), Rename(
        1, f"checkpoint.{slot}.tmp", f"checkpoint.{slot}"
    )


def newest(shelf, topic="t"):
    """The serial of the newest checkpoint, once incomplete files are settled."""
    shelf.copies.finish_files(shelf.record)
    found = [name for name in shelf.names() if name in ("checkpoint.0", "checkpoint.1")]
    serials = []
    for name in found:
        try:
            serials.append(Sealed(shelf.content(name), topic).serial)
        except Exception:  # noqa: BLE001 - a power cut may have damaged it
            continue
    return max(serials, default=None)


def test_checkpoint_grows_and_is_replaced(shelf):
    shelf.begin()

    shelf.send(*checkpoint(b"whole", 0), Sync())
    shelf.send(part("checkpoint.0", 5, b" and more"))
    assert shelf.content("checkpoint.0") == b"whole and more"
    shelf.send(*checkpoint(b"other", 1), Sync())
    shelf.send(*checkpoint(b"new", 0), Sync())

    assert shelf.content("checkpoint.0") == b"new"
    assert shelf.names() == ["checkpoint.0", "checkpoint.1"]


def test_checkpoint_whose_name_is_not_durable_is_not_relied_on(shelf, checkpoints):
    shelf.begin()
    shelf.send(*checkpoint(checkpoints[0], 0), Sync())
    temporary, rename = checkpoint(checkpoints[1], 1)
    shelf.send(temporary, Sync())
    shelf.send(rename)

    shelf.send(*checkpoint(checkpoints[2], 0))

    assert shelf.content("checkpoint.0") == checkpoints[0]
    assert shelf.content("checkpoint.0.new") == checkpoints[2]


@pytest.mark.parametrize("seed", range(6))
def test_checkpoint_that_kill_has_left_is_synced_before_it_gets_its_name(shelf, checkpoints, seed):
    shelf.begin()
    shelf.send(*checkpoint(checkpoints[0] * 20, 0), Sync())
    shelf.send(*checkpoint(checkpoints[2] * 20, 0))
    after = Resumed(shelf.disk.killed())
    assert after.names() == ["checkpoint.0"]

    later = Resumed(after.disk.after_power_cut(random.Random(seed)))

    assert newest(later) == Sealed(checkpoints[2]).serial


class Resumed(Shelf):
    """A replica that has started again, and into which the stream has resumed."""

    def __init__(self, disk):
        super().__init__(disk)
        self.begin(resume=True)


def test_checkpoint_grows_before_it_has_its_final_name(shelf, checkpoints):
    shelf.begin()
    shelf.send(*checkpoint(checkpoints[0], 0), Sync())

    shelf.send(*checkpoint(checkpoints[2], 0), part("checkpoint.0", len(checkpoints[2]), b"more"))
    shelf.send(Sync())

    assert shelf.content("checkpoint.0") == checkpoints[2] + b"more"


@pytest.mark.parametrize("syncs", [0, 1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_power_cut_leaves_checkpoint_that_was_durable_or_newer_one(shelf, checkpoints, seed, syncs):
    rng = random.Random(seed)
    shelf.begin()
    durable = None
    for number, content in enumerate(checkpoints):
        shelf.send(*checkpoint(content, number % 2))
        if syncs and rng.random() < syncs / 2:
            shelf.send(Sync())
            durable = Sealed(content).serial

    after = Resumed(shelf.disk.after_power_cut(rng))

    if durable is not None:
        assert newest(after) >= durable


def test_frames_sync_nothing_in_thread_of_caller(shelf, shop, sent, checkpoints):
    shelf.begin("t", "u")
    shop.publish(b"one")
    for number, content in enumerate(checkpoints):
        shelf.send(*checkpoint(content, number % 2))
    frames = [*sent.frames, Seal(1, FIRST, len(primary_file(shop))), *checkpoint(checkpoints[0], 0), Sync()]
    shelf.disk.calls.clear()

    shelf.end.receive(b"".join(map(encode, frames)))

    called = {call.operation for call in shelf.disk.calls}
    assert "append" in called
    assert not called & {"sync", "sync_folder", "truncate", "make_folder"}


# --- files of a newer format ---


def test_file_of_newer_format_is_kept_and_begins_new_copy(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(*sent.frames)
    old = shelf.folder()
    fd = shelf.disk.create(old / SECOND)
    shelf.disk.append(fd, [NEWER])
    shelf.disk.close(fd)
    after = Shelf(shelf.disk.killed())

    files = {one.name: one for one in have(after.begin(resume=True))}

    assert after.copies.folder(after.record, "t").files[SECOND].problem == "log format 3 is not known"
    assert (files[SECOND].salt, files[SECOND].size) == (0, len(NEWER))
    assert after.disk.read_file(old / SECOND) == NEWER


def test_newer_flag_in_middle_of_file_keeps_file(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    shelf.send(sent.frames[0])
    newer = newer_append(sent.frames[1].data, shop.store.segments[0].header.salt)
    fd = shelf.disk.open_append(shelf.folder() / FIRST)
    shelf.disk.append(fd, [newer])
    shelf.disk.close(fd)
    after = Shelf(shelf.disk.killed())

    after.begin(resume=True)

    assert "is not known" in after.copies.folder(after.record, "t").files[FIRST].problem
    assert after.content(FIRST) == sent.frames[0].data + newer


def newer_append(data, salt):
    """An append with a flag that this version does not know."""
    return append_header(salt, 5, 1, 0, data, flags=0x0040) + data


@pytest.mark.parametrize("frame", [part(SECOND, 0, b"x" * 300), Seal(1, SECOND, 5)])
def test_frame_for_file_of_newer_format_is_refused(shelf, frame):
    shelf.begin()
    path = shelf.folder() / SECOND
    fd = shelf.disk.create(path)
    shelf.disk.append(fd, [NEWER])
    shelf.disk.close(fd)
    after = Shelf(shelf.disk.killed())
    after.begin(resume=True)

    after.send(frame)

    assert after.refused.code == Refuse.DAMAGED
    assert after.disk.read_file(path) == NEWER
