"""Compressed streams with any split, any writes and any damage."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.compression import MAX_CHUNK, CorruptStream, Deflate, Snappy
from tests.property.test_frames import cut

KINDS = {"deflate": lambda: Deflate(6), "snappy": Snappy}
STREAM_HEADER = b"\xff\x06\x00\x00sNaPpY"

kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
writes = st.lists(st.binary(min_size=1, max_size=400), max_size=12)


def pieces(codec):
    return list(iter(codec.read, b""))


@kinds
@given(sent=writes, positions=st.lists(st.integers(min_value=0)))
def test_compressed_stream_reads_the_same_for_any_split(make, sent, positions):
    here, there = make(), make()
    stream = b"".join(here.compress(data) for data in sent)

    received = b""
    for part in cut(stream, positions):
        there.feed(part)
        received += b"".join(pieces(there))

    assert received == b"".join(sent)


@kinds
@given(sent=writes)
def test_compressed_writes_are_readable_immediately(make, sent):
    here, there = make(), make()

    for data in sent:
        there.feed(here.compress(data))
        assert b"".join(pieces(there)) == data


@kinds
@pytest.mark.parametrize("size", [MAX_CHUNK - 1, MAX_CHUNK, MAX_CHUNK + 1, 3 * MAX_CHUNK, 10_000_000])
@pytest.mark.parametrize(
    "content", [lambda size: b"\0" * size, random.Random(1).randbytes], ids=["zeros", "noise"]
)
def test_long_input_is_read_in_pieces_of_bounded_size(make, content, size):
    data = content(size)
    here, there = make(), make()

    there.feed(here.compress(data))
    read = pieces(there)

    assert max(map(len, read)) <= MAX_CHUNK
    assert b"".join(read) == data


@kinds
@given(garbage=st.lists(st.binary(max_size=200), max_size=10))
def test_garbage_is_read_as_something_or_is_corrupt_stream(make, garbage):
    codec = make()
    try:
        for part in garbage:
            codec.feed(part)
            pieces(codec)
    except CorruptStream:
        return


@kinds
@given(data=st.binary(min_size=1, max_size=300), at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_flipped_bit_ends_in_corrupt_stream_or_in_other_bytes_than_a_crash(make, data, at, bit):
    here, there = make(), make()
    stream = bytearray(here.compress(data))
    stream[at % len(stream)] ^= 1 << bit

    there.feed(bytes(stream))
    try:
        read = b"".join(pieces(there))
    except CorruptStream:
        return
    if make is Snappy:
        # Every chunk has a checksum: only a chunk that became padding, or is incomplete, raises no error.
        assert read in {b"", data}


def test_deflate_is_raw_and_each_write_ends_with_empty_block():
    stream = Deflate(1).compress(b"hello")

    assert stream.endswith(b"\x00\x00\xff\xff")
    assert zlib.decompressobj(-15).decompress(stream) == b"hello"


def test_empty_block_alone_is_nothing():
    codec = Deflate(6)
    codec.feed(zlib.compressobj(6, zlib.DEFLATED, -15).flush(zlib.Z_SYNC_FLUSH))
    assert pieces(codec) == []


def test_ended_deflate_stream_is_read_to_its_end():
    sender = zlib.compressobj(6, zlib.DEFLATED, -15)
    codec = Deflate(6)
    codec.feed(sender.compress(b"last words") + sender.flush())

    assert codec.read() == b"last words"
    with pytest.raises(CorruptStream, match="deflate: end of stream"):
        codec.read()


def test_snappy_begins_with_its_stream_header_once():
    codec = Snappy()
    first, second = codec.compress(b"one"), codec.compress(b"two")

    assert first.startswith(STREAM_HEADER)
    assert STREAM_HEADER not in second


def test_padding_and_repeated_stream_header_are_no_content():
    here, there = Snappy(), Snappy()
    stream = here.compress(b"one")
    padding = b"\xfe\x00\x01\x00" + bytes(256)

    for part in cut(
        stream + padding + b"\x80\x00\x00\x00" + STREAM_HEADER + here.compress(b"two"), [40, 100]
    ):
        there.feed(part)

    assert b"".join(pieces(there)) == b"onetwo"


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x01\x05\x00\x00abcdx", "no stream header"),
        (b"IDENTIFY\n", "no stream header"),
        (b"\xff\x06\x00\x00sNaPpX", "bad stream header"),
        (b"\xff\x07\x00\x00", "bad stream header"),
        (STREAM_HEADER + b"\x02\x05\x00\x00abcdx", "unknown chunk"),
        (STREAM_HEADER + b"\x01\x05\x00\x00abcdx", "bad checksum"),
        (STREAM_HEADER + b"\x00\xff\xff\xff", "chunk too long"),
        # A block that declares a length of one MiB.
        (STREAM_HEADER + b"\x00\x0a\x00\x00abcd\x80\x80\x40\x00a\x00", "unsupported chunk length"),
    ],
)
def test_snappy_stream_against_its_rules_is_corrupt(stream, reason):
    codec = Snappy()
    codec.feed(stream)
    with pytest.raises(CorruptStream, match=reason):
        codec.read()
