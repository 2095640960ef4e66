import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.log.segment_index import MAX_HOLES, holes_in, largest
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST, Shop, flip

# The sequence at which a restart continued.
LATER = FIRST + (1 << 40)


class Merged(Shop):
    """Two files that became one: it has two messages of the first file and all behind the skipped numbers."""

    segment_bytes = 4400

    def fill(self, disk=None):
        self.new(disk)
        for n in range(10):
            self.publish(*[b"%d" % (n * 10 + m) for m in range(10)])
        self.encoder.skip_to(LATER)
        self.store.appender.seal()
        self.publish(b"later", b"and more")
        self.store.appender.seal()
        self.publish(b"newest")
        assert self.sync() is None
        assert self.compact((FIRST + 15, FIRST + 17), (LATER, LATER + 3)) > 0
        return self

    @property
    def segment(self):
        (found,) = self.store.segments.compacted_from(0)
        return found


@pytest.fixture
def log(tmp_path):
    log = Merged(tmp_path).fill()
    yield log
    log.store.appender.close()


HOLES = [(FIRST, FIRST + 15), (FIRST + 17, LATER)]


def test_holes_are_finished_and_skipped_numbers(log):
    assert log.store.segments.extents() == [(FIRST, LATER + 3)]
    assert holes_in(Disk(), log.segment) == HOLES


def test_file_whose_index_is_lost_is_read_for_it(log):
    Disk().remove(log.segment.index_path)

    assert holes_in(Disk(), log.segment) == HOLES


@pytest.mark.parametrize("indexed", [True, False])
def test_damaged_messages_are_not_missing(log, indexed):
    if not indexed:
        Disk().remove(log.segment.index_path)
    data = log.segment.path.read_bytes()
    flip(log.segment.path, data.index(b"later") * 8)

    assert holes_in(Disk(), log.segment) == HOLES


def test_holes_of_unreadable_file_are_unknown(log):
    Disk().remove(log.segment.index_path)
    disk = FaultyDisk()
    disk.faults["open_read"] = errno.EMFILE

    assert holes_in(disk, log.segment) == []


def test_start_knows_it_as_well(log):
    log.reopen(log.mark())

    assert holes_in(Disk(), log.segment) == HOLES


def test_compacted_from_has_files_behind_place(log):
    assert log.store.segments.compacted_from(LATER + 1) == [log.segment]
    assert log.store.segments.compacted_from(LATER + 2) == []


def test_largest_holes_count():
    holes = [(10 * n, 10 * n + 1 + (n == 7)) for n in range(MAX_HOLES + 5)]

    found = largest(holes)

    assert len(found) == MAX_HOLES
    assert (70, 72) in found
    assert found == sorted(found)
