"""Index entries of which one bit was flipped: what the data file says is believed."""

from nsqd.engine.block import Block, Encoder, frames_size
from nsqd.engine.ids import MessageIds
from nsqd.storage.segment import ENTRY_BYTES, Entry, decode_entry, encode_entry, repair

START = 5000


def block_of(*bodies: bytes) -> Block:
    return Encoder(MessageIds(1), 100).bodies(list(bodies), 10**18)


def damaged(block: Block, bit: int) -> Entry:
    raw = bytearray(encode_entry(block, START + len(block.data)))
    raw[bit // 8] ^= 1 << bit % 8
    return decode_entry(bytes(raw), 0, START)


def test_a_whole_entry_matches_its_data_and_no_damaged_one_does():
    block = block_of(b"one", b"three", b"x" * 300)
    assert decode_entry(encode_entry(block, START + len(block.data)), 0, START).matches(block.data)
    assert not any(damaged(block, bit).matches(block.data) for bit in range(ENTRY_BYTES * 8))


def test_any_flipped_bit_of_the_end_is_mended():
    block = block_of(b"one", b"three", b"x" * 300)
    following = block_of(b"the next append").data
    for bit in range(64):
        mended = repair(damaged(block, bit), block.data + following)
        assert mended is not None
        assert (mended.end, mended.first, mended.next) == (START + len(block.data), 100, 103)
        assert mended.matches(block.data)


def test_other_damage_is_not_mended_and_never_taken_for_something_else():
    block = block_of(b"one", b"three")
    for bit in range(64, ENTRY_BYTES * 8):
        mended = repair(damaged(block, bit), block.data)
        assert mended is None or mended.matches(block.data)


def test_frames_are_counted_only_when_they_are_all_there():
    data = block_of(b"one", b"three").data
    assert frames_size(data, 2) == len(data)
    assert frames_size(data + b"more", 2) == len(data)
    assert frames_size(data, 3) == 0
    assert frames_size(data[:-1], 2) == 0
    assert frames_size(b"\0" * 100, 1) == 0
