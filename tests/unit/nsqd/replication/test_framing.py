"""The frames between two nodes, to bytes and back."""

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.replication.fields import MAX_RANGES, BadFrame
from nsqd.replication.frames import (
    Ack,
    Appends,
    ChannelState,
    CopiedFile,
    CopyId,
    CopyKind,
    DeleteTopic,
    Draining,
    FilePart,
    Have,
    Hello,
    Holder,
    Log,
    Ping,
    Proof,
    Ready,
    Refuse,
    Remove,
    Rename,
    Seal,
    Snapshot,
    StartTls,
    Status,
    Sync,
    TakeOver,
    Topic,
)
from nsqd.replication.framing import KINDS, MAX_DATA, MAX_FRAME, FrameReader, appends_head, encode

ONE, TWO = bytes(range(16)), bytes(range(16, 32))
HOLDERS = (Holder(ONE, "one:4150"), Holder(TWO, ""))
SAMPLES = [
    Hello(ONE, 17, TWO, bytes(16), 3, "one:4150", bytes(range(32)), features=1 << 63),
    Proof(bytes(range(32))),
    Refuse(Refuse.DISK, "the disk is full"),
    StartTls(),
    Log(1, ONE, 1 << 60, 3, 1, strict=True, holders=HOLDERS),
    Log(2, TWO, 0, 0, 0, strict=False, holders=()),
    Topic(1, 7, "orders"),
    Have(7, (CopiedFile("00000001.log", 5, 160, 3, 10, 2), CopiedFile("checkpoint.0", 0, 77))),
    Ready(1, has_copy=True, others=2),
    Snapshot(1, resume=True),
    Appends(7, "00000002.log", 160, b"data"),
    FilePart(7, "00000001.2.log.new", 0, xxh3_64_intdigest(b"part"), b"part"),
    Rename(7, "00000001.2.log.new", "00000001.2.log"),
    Remove(7, "00000001.log"),
    Seal(7, "00000002.log", 1 << 40),
    DeleteTopic(ONE, "orders", 1 << 50),
    Sync(),
    Ping(),
    Ack(1 << 50, 5),
    Status(
        *(ONE, 3, CopyKind.PROMOTED, 5, 6, TWO, 7, 4),
        full=True,
        last=True,
        counted=(CopyId(TWO, 2),),
        holders=HOLDERS,
    ),
    ChannelState(ONE, 3, "orders", "billing", 1 << 62, live=True, more=False, finished=((1, 5),), pending=()),
    ChannelState(
        ONE, 3, "orders", "", 0, live=False, more=True, finished=((1, 5), (7, 9)), pending=((5, 7),)
    ),
    TakeOver(1, 1 << 40),
    Draining(True),
]


def read(data: bytes) -> list[object]:
    return list(FrameReader().feed(data))


def framed(kind: int, fields: bytes) -> bytes:
    return (1 + len(fields)).to_bytes(4, "little") + bytes([kind]) + fields


def test_kinds_of_frames_have_samples():
    assert {type(one) for one in SAMPLES} == set(KINDS.values())


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_frame_round_trips(frame):
    assert read(encode(frame)) == [frame]


def test_frames_are_found_in_pieces_of_any_size():
    data = b"".join(map(encode, SAMPLES))
    for size in (1, 2, 7, 64, len(data)):
        reader, found = FrameReader(), []
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
        assert found == SAMPLES
        assert reader.position == len(data)


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_truncated_frame_is_refused(frame):
    whole = encode(frame)
    for end in range(1, len(whole) - 4):
        cut = (end).to_bytes(4, "little") + whole[4 : 4 + end]
        try:
            found = read(cut)
        except BadFrame:
            continue
        # A frame that ends with data just has less of it.
        assert isinstance(found[0], Appends | FilePart)


@pytest.mark.parametrize(
    "frame",
    [one for one in SAMPLES if not isinstance(one, Appends | FilePart)],
    ids=lambda frame: type(frame).__name__,
)
def test_frame_with_excess_bytes_is_refused(frame):
    with pytest.raises(BadFrame, match="longer than what it holds"):
        read(framed(frame.KIND, encode(frame)[5:] + b"\0"))


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1, (1 << 32) - 1])
def test_invalid_size_is_refused(size):
    with pytest.raises(BadFrame, match=f"a frame of {size} bytes is none"):
        read(size.to_bytes(4, "little") + b"\1")


def test_unknown_kind_is_refused():
    with pytest.raises(BadFrame, match="there is no frame of kind 200"):
        read(framed(200, b""))


def test_hello_of_other_versions_is_read_whatever_follows_versions():
    (found,) = read(framed(Hello.KIND, b"\x07\0\x09\0fields of a later version"))

    assert (found.min_version, found.max_version) == (7, 9)


@pytest.mark.parametrize("versions", [b"\2\0\3\0", b"\3\0\4\0"], ids=["and an earlier", "and a later"])
def test_hello_with_common_version_is_read_completely(versions):
    whole = encode(SAMPLES[0])
    (found,) = read(whole[:5] + versions + whole[9:])

    assert found.identity == ONE
    assert 3 in (found.min_version, found.max_version)


def test_largest_channel_state_fits_into_frame():
    ranges = tuple((n, n + 1) for n in range(0, 2 * MAX_RANGES, 2))
    frame = ChannelState(ONE, 1, "t", "c", 1, live=True, more=True, finished=ranges, pending=ranges)

    assert len(encode(frame)) < MAX_FRAME
    assert read(encode(frame)) == [frame]


@pytest.mark.parametrize("ranges", [((5, 5),), ((5, 4),), ((1, 3), (2, 5)), ((5, 7), (1, 2))])
def test_ranges_that_are_empty_or_out_of_order_are_refused(ranges):
    frame = ChannelState(ONE, 1, "t", "c", 1, live=True, more=False, finished=ranges, pending=())

    with pytest.raises(BadFrame):
        read(encode(frame))


@pytest.mark.parametrize("name", ["../x", "copy.json", "00000001.log/..", "", "00000001.log.tmp"])
def test_file_that_is_no_part_of_copy_is_refused(name):
    with pytest.raises(BadFrame):
        read(encode(Remove(7, name)))


def test_head_of_append_is_written_without_its_data():
    data = b"x" * MAX_DATA
    frame = Appends(7, "00000002.log", 160, data)

    assert appends_head(7, "00000002.log", 160, len(data)) + data == encode(frame)
    assert read(encode(frame)) == [frame]
