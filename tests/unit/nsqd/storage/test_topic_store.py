from pathlib import Path

import pytest

from nsqd.engine.block import Encoder
from nsqd.engine.ids import MessageIds
from nsqd.storage.disk import Disk
from nsqd.storage.topic_store import TopicStore, topic_folder
from tests.support.disks import FullDisk, ReadOnlyFolder

FIRST = 1000


@pytest.fixture
def encoder():
    return Encoder(MessageIds(1), FIRST)


class Shop:
    """Opens the same folder again and again, as restarts do."""

    def __init__(self, folder):
        self.folder = folder
        self.warnings = []

    def open(self, disk=None, max_segment_bytes=1 << 20):
        return TopicStore(disk or Disk(), self.folder, max_segment_bytes, self.warnings.append)


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "t.topic")


def sequences(store, start):
    """Every sequence that can still be read from *start* on."""
    found = []
    while (block := store.block_from(start)) is not None:
        found += range(max(start, block.first), block.next)
        start = block.next
    return found


def test_a_new_store_finds_what_the_old_one_wrote(shop, encoder):
    store = shop.open()
    for _ in range(5):
        store.append([encoder.bodies([b"a", b"b"], 1)])
    store.close()

    store = shop.open()
    _, cut = store.recover()

    assert not cut
    assert (store.first_seq, store.next_seq) == (FIRST, FIRST + 10)
    assert sequences(store, FIRST) == list(range(FIRST, FIRST + 10))


def test_files_roll_at_their_size_and_all_are_read(shop, encoder):
    store = shop.open(max_segment_bytes=100)
    for _ in range(10):
        store.append([encoder.bodies([b"x" * 60], 1)])

    assert len(list(shop.folder.glob("*.log"))) == 5
    assert sequences(store, FIRST + 3) == list(range(FIRST + 3, FIRST + 10))
    store.close()


def test_segments_nobody_needs_are_removed_but_never_the_newest(shop, encoder):
    store = shop.open(max_segment_bytes=100)
    for _ in range(10):
        store.append([encoder.bodies([b"x" * 60], 1)])

    assert store.drop_below(FIRST + 5) == 2
    assert store.first_seq == FIRST + 4
    store.drop_below(FIRST + 10)
    assert store.first_seq == FIRST + 8
    assert len(list(shop.folder.iterdir())) == 2
    store.close()


def test_a_large_newest_segment_goes_when_all_of_it_is_acknowledged(shop, encoder):
    store = shop.open(max_segment_bytes=10 << 20)
    store.append([encoder.bodies([b"x" * 1_100_000], 1)])
    store.drop_below(FIRST + 1)
    assert list(shop.folder.iterdir()) == []

    store.append([encoder.bodies([b"next"], 1)])

    assert sequences(store, FIRST) == [FIRST + 1]
    store.close()


def test_on_a_full_disk_the_write_fails_and_the_next_one_needs_no_restart(shop, encoder):
    disk = FullDisk(room=1000)
    store = shop.open(disk)
    store.append([encoder.bodies([b"kept"], 1)])
    with pytest.raises(OSError, match="No space left"):
        store.append([encoder.bodies([b"x" * 2000], 1)])
    with pytest.raises(OSError, match="No space left"):
        store.append([encoder.bodies([b"x" * 2000], 1)])
    assert len(list(shop.folder.glob("*.log"))) == 1

    disk.room = 100_000
    store.append([encoder.bodies([b"after"], 1)])
    store.close()

    store = shop.open()
    store.recover()
    assert sequences(store, FIRST) == [FIRST, FIRST + 3]


def test_a_folder_that_takes_no_files_fails_the_write(shop, encoder):
    with pytest.raises(OSError, match="Read-only"):
        shop.open(ReadOnlyFolder()).append([encoder.bodies([b"a"], 1)])


def test_a_damaged_append_is_named_and_the_rest_is_delivered(shop, encoder):
    store = shop.open()
    blocks = [encoder.bodies([b"number %d" % n], 1) for n in range(3)]
    store.append(blocks)
    store.close()
    path = next(shop.folder.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(blocks[0].data) + 36] ^= 0x80
    path.write_bytes(content)

    store = shop.open()
    store.recover()

    assert sequences(store, FIRST) == [FIRST, FIRST + 2]
    assert "checksum mismatch" in shop.warnings[0]


def test_syncing_covers_what_was_appended_and_runs_anywhere(shop, encoder):
    store = shop.open()
    assert store.begin_sync() is None
    store.append([encoder.bodies([b"a"], 1)])
    sync = store.begin_sync()
    assert store.begin_sync() is None
    store.close()

    sync()


def test_a_sync_covers_segments_that_were_closed_since_the_last_one(shop, encoder):
    synced = []

    class Watched(Disk):
        def sync(self, fd):
            synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    store = shop.open(Watched(), max_segment_bytes=100)
    for _ in range(3):
        store.append([encoder.bodies([b"x" * 100], 1)])

    store.begin_sync()()

    assert sorted(synced) == sorted(path.name for path in shop.folder.iterdir())
    assert store.begin_sync() is None
    store.close()


def test_deleting_a_store_leaves_nothing(shop, encoder):
    store = shop.open()
    store.append([encoder.bodies([b"a"], 1)])

    store.delete()

    assert list(shop.folder.parent.iterdir()) == []
    assert store.block_from(FIRST) is None


@pytest.mark.parametrize("name", ["..", ".", "a.b", "-"])
def test_no_topic_name_leads_out_of_the_data_path(tmp_path, name):
    assert topic_folder(tmp_path, name).resolve().parent == tmp_path
