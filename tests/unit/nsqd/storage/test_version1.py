"""Segments of version 1 are rewritten at start, whatever interrupts that."""

import contextlib
import errno

import pytest

from nsqd.engine.block import Encoder
from nsqd.engine.gaps import Why
from nsqd.engine.ids import MessageIds
from nsqd.storage.recovery import Mark
from tests.support.disks import DyingDisk, FaultyDisk, FullDisk
from tests.support.stores import FIRST, NODE_ID, Shop, deferred, flip, stored
from tests.support.version1 import version_1_segment

ENTRY_BYTES = 32
MAGIC_BYTES = 8


class Old(Shop):
    """A folder of version 1 with three segments, opened by version 2."""

    def __init__(self, data_path):
        data_path.mkdir(exist_ok=True)
        super().__init__(data_path)
        self.new()
        one = [self.batch(b"a%d" % n) for n in range(3)]
        two = [self.batch(b"b", b"bb"), deferred(self.encoder, b"later"), self.batch(b"c")]
        self.encoder.skip_to(FIRST + 100)
        three = [self.batch(b"after a crash")]
        self.paths = [version_1_segment(self.folder, blocks) for blocks in (one, two, three)]
        self.whole = {
            FIRST: b"a0",
            FIRST + 1: b"a1",
            FIRST + 2: b"a2",
            FIRST + 3: b"b",
            FIRST + 4: b"bb",
            FIRST + 5: b"later",
            FIRST + 6: b"c",
            FIRST + 100: b"after a crash",
        }

    def batch(self, *bodies):
        return self.encoder.bodies(list(bodies), 1)


@pytest.fixture
def old(tmp_path):
    return Old(tmp_path)


def test_all_messages_are_there_and_the_old_files_are_gone(old):
    old.reopen()

    assert old.bodies() == old.whole
    assert old.names() == ["00000001.log", "00000002.log", "00000003.log"]
    assert old.warnings == []


def test_deferred_messages_keep_their_due_time_and_all_starts_tell_the_same(old):
    for _ in range(2):
        assert stored(old.reopen()) == [
            (FIRST, FIRST + 3, 0),
            (FIRST + 3, FIRST + 5, 0),
            (FIRST + 5, FIRST + 6, 99),
            (FIRST + 6, FIRST + 7, 0),
            (FIRST + 100, FIRST + 101, 0),
        ]


def test_numbers_that_version_1_skipped_are_no_loss(old):
    old.reopen()

    assert [gap.why for gap in old.gaps()] == [Why.UNUSED]
    assert old.store.losses() == []


def test_the_node_that_wrote_them_is_remembered(old):
    old.reopen()

    assert old.store.origins() == {NODE_ID}


def test_new_messages_go_behind_them(old):
    old.reopen()
    more = old.publish(b"new")
    old.reopen()

    assert old.bodies() == old.whole | {more.first: b"new"}


def test_the_checkpoint_of_version_1_covers_what_it_covered(old):
    found = old.reopen(Mark(FIRST + 5, 0, FIRST + 5, 0))

    assert stored(found) == [
        (FIRST + 5, FIRST + 6, 99),
        (FIRST + 6, FIRST + 7, 0),
        (FIRST + 100, FIRST + 101, 0),
    ]


def test_a_second_start_has_nothing_to_do(old):
    old.reopen()
    names = old.names()
    old.reopen()

    assert (old.names(), old.bodies()) == (names, old.whole)


def test_a_compacted_segment_counts_instead_of_the_one_it_was_made_from(old):
    kept = Encoder(MessageIds(NODE_ID), FIRST + 1).bodies([b"a1"], 1)
    version_1_segment(old.folder, [kept], first=FIRST, generation=1)

    old.reopen()

    assert old.bodies() == {seq: body for seq, body in old.whole.items() if seq not in {FIRST, FIRST + 2}}
    assert [gap for gap in old.gaps() if gap.is_loss] == []


def test_a_compaction_that_did_not_come_to_its_end_does_not_count(old):
    path = version_1_segment(old.folder, [old.batch(b"half")], first=FIRST, generation=1)
    path.with_suffix(".index").unlink()

    old.reopen()

    assert old.bodies() == old.whole
    assert old.names() == ["00000001.log", "00000002.log", "00000003.log"]


# --- interruptions


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("sooner", [3, 12])
def test_a_rewrite_killed_at_any_call_and_once_more_is_gone_on_with(tmp_path, compacted, sooner):
    killed = 0
    for calls in range(300):
        old = Old(tmp_path / str(calls))
        if compacted:
            version_1_segment(
                old.folder, [Encoder(MessageIds(1), FIRST + 1).bodies([b"a1"], 1)], first=FIRST, generation=1
            )
            del old.whole[FIRST], old.whole[FIRST + 2]
        try:
            old.reopen(disk=DyingDisk(calls))
        except OSError:
            killed += 1
            with contextlib.suppress(OSError):
                old.reopen(disk=DyingDisk(max(5, calls - sooner)))
            old.reopen()
            assert old.bodies() == old.whole, calls
            assert [name for name in old.names() if len(name) > 14] == [], calls
            firsts = [segment.first for segment in old.found.segments]
            assert firsts == sorted(set(firsts))
            continue
        assert killed > 20
        return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("call", ["create", "append", "sync", "rename", "sync_folder", "remove", "read_file"])
def test_a_rewrite_that_fails_stops_the_start_and_the_next_one_goes_on(old, call):
    with pytest.raises(OSError, match="Input/output error"):
        old.reopen(disk=FaultyDisk(**{call: errno.EIO}))

    old.reopen()
    assert old.bodies() == old.whole


def test_on_a_full_disk_nothing_old_is_lost(old):
    with pytest.raises(OSError, match="No space left"):
        old.reopen(disk=FullDisk(room=400))

    old.reopen()
    assert old.bodies() == old.whole


# --- damage


def test_a_flipped_bit_of_the_data_costs_its_append_and_is_named(old):
    flip(old.paths[0], 8 * 40)

    old.reopen()

    assert old.bodies() == {seq: body for seq, body in old.whole.items() if seq != FIRST + 1}
    assert "checksum mismatch at 36, 1 messages are lost" in old.warnings[0]


def test_any_flipped_bit_of_an_index_costs_at_most_one_append(old):
    for path in [path.with_suffix(".index") for path in old.paths]:
        size = path.stat().st_size
        for bit in range(0, size * 8, 29):
            again = Old(old.folder.parent / f"{path.name}-{bit}")
            flip(again.folder / path.name, bit)
            again.reopen()
            assert len(again.whole.keys() - again.bodies().keys()) <= 2, (path.name, bit)
            assert again.bodies().items() <= again.whole.items()


def test_a_torn_end_is_left_out(old):
    path = old.paths[2]
    path.write_bytes(path.read_bytes()[:-5])

    old.reopen()

    del old.whole[FIRST + 100]
    assert old.bodies() == old.whole
    assert "the end was not written completely" in old.warnings[0]


def test_data_behind_the_last_entry_was_never_stored(old):
    with old.paths[2].open("ab") as file:
        file.write(b"half an append")

    old.reopen()

    assert old.bodies() == old.whole


def test_a_segment_without_its_index_holds_nothing_that_counts(old):
    old.paths[2].with_suffix(".index").unlink()

    old.reopen()

    del old.whole[FIRST + 100]
    assert old.bodies() == old.whole
    assert old.names() == ["00000001.log", "00000002.log"]


def test_large_segments_are_rewritten_in_pieces(tmp_path):
    shop = Shop(tmp_path)
    shop.new()
    blocks = [shop.encoder.bodies([b"x" * 300_000], 1) for _ in range(12)]
    version_1_segment(shop.folder, blocks)
    disk = FaultyDisk()

    shop.reopen(disk=disk)

    assert disk.calls.count("append") == 3
    assert len(shop.bodies()) == 12
