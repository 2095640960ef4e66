"""Damage to a copy, or a cut end, is found."""

import random

import pytest

from nsqd.replication.frames import (
    Appends,
    CopiedFile,
    Have,
    Refuse,
    Seal,
    SyncCopy,
)
from tests.support.copied import (
    FIRST,
    Shelf,
    home_file,
    part,
    refused,
)
from tests.support.stores import Shop


@pytest.mark.parametrize("place", [3, 170, 215, 230, -1])
def test_a_wrong_bit_is_refused_and_nothing_of_it_is_written(shelf, shop, said, place):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    first, second = said.frames
    shelf.say(first)
    data = bytearray(second.data)
    data[place % len(data)] ^= 4

    answers = shelf.say(Appends(1, FIRST, second.offset, bytes(data)))

    assert "damaged" in refused(answers).sentence
    assert shelf.link.closing
    assert shelf.content(FIRST) == first.data
    shelf.connect()
    assert Have(1, (CopiedFile(FIRST, *_known(shop, len(first.data), 1)),)) in shelf.begin()
    shelf.say(second)
    assert shelf.content(FIRST) == home_file(shop)


def _known(shop: Shop, size: int, messages: int) -> tuple[int, int, int, int, int]:
    segment = shop.store.segments[0]
    return segment.header.salt, size, segment.first, segment.first + messages, 0


@pytest.mark.parametrize("seed", range(20))
def test_what_a_power_cut_has_left_of_a_copy_is_told_as_far_as_it_is_sound(shelf, shop, said, seed):
    shelf.begin()
    for number in range(30):
        shop.publish(b"%d" % number * 300)
    shelf.say(*said.frames[:10], SyncCopy())
    shelf.say(*said.frames[10:])

    after = Shelf(shelf.disk.after_power_cut(random.Random(seed)))
    (have,) = [one for one in after.begin() if isinstance(one, Have)]

    (found,) = have.files
    ends = [frame.offset + len(frame.data) for frame in said.frames]
    assert found.size in ends[9:]
    assert home_file(shop).startswith(after.content(FIRST))
    after.say(*[frame for frame in said.frames if frame.offset >= found.size])
    assert after.content(FIRST) == home_file(shop)


def test_a_part_that_is_damaged_at_home_is_copied_as_it_is(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = bytearray(home_file(shop))
    whole[-1] ^= 1

    answers = shelf.say(part(FIRST, 0, bytes(whole)), Seal(1, FIRST, len(whole)))

    assert not [one for one in answers if isinstance(one, Refuse)]
    assert shelf.content(FIRST) == bytes(whole)
