"""Damage to a copy, or a torn end, is found."""

import random

import pytest

from nsqd.log.tail_records import CheckpointPosition
from nsqd.replication.frames import Appends, CopiedFile, Have, Seal, Snapshot, Sync
from tests.support.stores import Shop
from tests.unit.nsqd.replication.replica_end import FIRST, Shelf, part, primary_file


@pytest.mark.parametrize("place", [3, 170, 215, 230, -1])
def test_append_with_wrong_bit_is_refused_and_not_written(shelf, shop, sent, place):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    first, second = sent.frames
    shelf.send(first)
    data = bytearray(second.data)
    data[place % len(data)] ^= 4

    shelf.send(Appends(1, FIRST, second.offset, bytes(data)))

    assert "damaged" in shelf.refused.sentence
    assert shelf.content(FIRST) == first.data
    shelf.connect()
    segment = shop.store.segments[0]
    known = CopiedFile(FIRST, segment.header.salt, len(first.data), segment.first, segment.first + 1, 0)
    assert Have(1, (known,)) in shelf.begin()
    shelf.send(second)
    assert shelf.content(FIRST) == primary_file(shop)


@pytest.mark.parametrize("seed", range(8))
def test_power_cut_leaves_sound_beginning_that_is_reported(shelf, shop, sent, seed):
    shelf.begin()
    for number in range(30):
        shop.publish(b"%d" % number * 300)
    shelf.send(*sent.frames[:10], Sync())
    shelf.send(*sent.frames[10:])

    after = Shelf(shelf.disk.after_power_cut(random.Random(seed)))
    (have,) = [one for one in after.begin(resume=True) if isinstance(one, Have)]

    (found,) = have.files
    ends = [frame.offset + len(frame.data) for frame in sent.frames]
    assert found.size in ends[9:]
    assert primary_file(shop).startswith(after.content(FIRST))
    after.send(*[frame for frame in sent.frames if frame.offset >= found.size])
    assert after.content(FIRST) == primary_file(shop)


def test_append_that_is_damaged_at_primary_is_copied_as_it_is(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = bytearray(primary_file(shop))
    whole[-1] ^= 1

    shelf.send(part(FIRST, 0, bytes(whole)), Seal(1, FIRST, len(whole)))

    assert shelf.end.refused is None
    assert shelf.content(FIRST) == bytes(whole)


@pytest.fixture
def damage(shelf, shop, sent):
    """Returns a function that damages appends of six; returns the replica after a restart, and its answer."""

    def restart(*places):
        shelf.begin()
        for number in range(6):
            shop.publish(b"%d" % number * 100)
        shelf.send(*sent.frames)
        fd = shelf.disk.open_write(shelf.folder() / FIRST)
        for place in places:
            frame = sent.frames[place]
            shelf.disk.write_at(fd, b"\xff", frame.offset + len(frame.data) - 1)
        shelf.disk.close(fd)
        after = Shelf(shelf.disk.killed())
        (have,) = [one for one in after.begin_negotiation() if isinstance(one, Have)]
        return after, shelf.folder(), have.files[0]

    return restart


@pytest.mark.parametrize("places", [(2,), (2, 4), (2, 5)])
def test_messages_behind_damage_are_reported_and_stay_in_copy(damage, shop, sent, places):
    after, folder, file = damage(*places)

    assert file.size == sent.frames[2].offset
    last = 5 if 5 not in places else 4
    assert (file.first, file.next_seq) == (
        shop.store.segments.first_seq,
        shop.store.segments.first_seq + last + 1,
    )
    after.send(Snapshot(1, resume=False))
    again = Shop(folder.parent)
    again.new(after.disk)
    again.store.recover(CheckpointPosition())
    again.encoder.skip_to(again.store.segments.end)
    assert len(again.bodies()) == 6 - len(places)


def test_stream_that_resumes_replaces_damage_and_everything_behind_it(damage, shop, sent):
    after, _, file = damage(2)
    whole = primary_file(shop)

    after.send(Snapshot(1, resume=True))
    assert after.content(FIRST) == whole[: file.size]
    after.send(part(FIRST, file.size, whole[file.size :]), Seal(1, FIRST, len(whole)), Sync())

    assert after.content(FIRST) == whole
    assert "00000001.index" in after.names()
