"""The frames between a home and a keeper, to bytes and back."""

import dataclasses

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.replication.fields import MAX_RANGES, BadFrame
from nsqd.replication.frames import (
    Ack,
    Appends,
    Ask,
    Begin,
    CopiedFile,
    CopiedTopic,
    CopyState,
    Deleted,
    Fellow,
    FellowCopy,
    FellowHello,
    Fellows,
    FilePart,
    Finished,
    Gone,
    Had,
    HandOver,
    Have,
    Hello,
    Leaves,
    Offer,
    Refuse,
    Remove,
    Rename,
    Seal,
    StartTls,
    StillHere,
    StillOut,
    SyncCopy,
    Taken,
    Told,
    Welcome,
)
from nsqd.replication.framing import (
    KINDS,
    MAX_DATA,
    MAX_FRAME,
    SHAPES,
    FrameReader,
    appends_head,
    encode,
    in_parts,
)

IDENTITY = bytes(range(16))
SAMPLES = [
    Hello(IDENTITY, 17, 3, "one:4150", b"secret", strict=True),
    Hello(IDENTITY, 17, 3, "two:4150", stands_in=True),
    Welcome(IDENTITY, 1023, "two:4150", 4, ("orders", "bills")),
    Refuse(Refuse.DISK, "the disk is full"),
    StartTls(),
    CopiedTopic(7, "orders"),
    Have(7, (CopiedFile("00000001.log", 5, 160, 3, 10, 2), CopiedFile("checkpoint.0", 0, 77))),
    Begin(4, (7, 9)),
    Deleted("orders"),
    CopyState(7, CopyState.LINKED),
    Appends(7, "00000002.log", 160, b"data"),
    FilePart(7, "00000001.2.log.new", 0, xxh3_64_intdigest(b"part"), b"part"),
    Rename(7, "00000001.2.log.new", "00000001.2.log"),
    Remove(7, "00000001.log"),
    Seal(7, "00000002.log", 1 << 40),
    SyncCopy(),
    StillHere(),
    Ack(1 << 50, 5),
    Had(7, ((1, 5), (5, 9))),
    Finished(7, "billing", 1 << 62, ((1, 5),)),
    StillOut(7, "billing", ()),
    Ask(IDENTITY, 3),
    Told(),
    Gone(7),
    Offer(1 << 40),
    HandOver(9),
    Taken(),
    FellowHello(IDENTITY, 17, "one:4150", bytes(16), b"secret"),
    Fellows((Fellow(1, "one:4150"), Fellow(2, "two:4150"))),
    FellowCopy(2, 3),
    Leaves(True),
]


def read(data: bytes) -> list[object]:
    return list(FrameReader().feed(data))


def framed(kind: int, fields: bytes) -> bytes:
    return (1 + len(fields)).to_bytes(4, "little") + bytes([kind]) + fields


def test_every_kind_has_a_sample():
    assert {type(one) for one in SAMPLES} == set(KINDS.values())


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_all_of_a_frame_is_in_its_shape(frame):
    assert {name for name, _ in SHAPES[type(frame)]} == {one.name for one in dataclasses.fields(frame)}


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_read_as_it_was_written(frame):
    assert read(encode(frame)) == [frame]


def test_frames_are_found_however_the_bytes_come():
    data = b"".join(map(encode, SAMPLES))
    for size in (1, 2, 7, 64, len(data)):
        reader, found = FrameReader(), []
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
        assert found == SAMPLES
        assert reader.position == len(data)


def test_the_position_stands_behind_the_frame_that_was_given():
    reader, end = FrameReader(), 0
    for frame in reader.feed(b"".join(map(encode, SAMPLES))):
        end += len(encode(frame))
        assert reader.position == end


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_a_frame_that_is_cut_anywhere_is_no_frame(frame):
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
def test_a_frame_with_more_than_its_fields_is_refused(frame):
    with pytest.raises(BadFrame, match="longer than what it holds"):
        read(framed(frame.KIND, encode(frame)[5:] + b"\0"))


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1, (1 << 32) - 1])
def test_a_size_that_no_frame_has_ends_the_connection_at_once(size):
    with pytest.raises(BadFrame, match=f"a frame of {size} bytes is none"):
        read(size.to_bytes(4, "little") + b"\1")


def test_a_kind_that_is_not_known_is_refused():
    with pytest.raises(BadFrame, match="there is no frame of kind 200"):
        read(framed(200, b""))


def test_a_hello_of_another_version_says_so_whatever_follows():
    (found,) = read(framed(Hello.KIND, b"\2\0what a later version says"))

    assert found.version == 2


def test_many_ranges_go_in_several_frames_and_none_in_one():
    ranges = [(n, n + 1) for n in range(0, 2 * (MAX_RANGES + 1), 2)]

    assert [len(part) for part in in_parts(ranges)] == [MAX_RANGES, 1]
    assert list(in_parts([])) == [()]
    assert len(encode(Had(1, tuple(ranges[:MAX_RANGES])))) < MAX_FRAME


def test_what_is_appended_need_not_be_copied_to_be_sent():
    data = b"x" * MAX_DATA
    frame = Appends(7, "00000002.log", 160, data)

    assert appends_head(7, "00000002.log", 160, len(data)) + data == encode(frame)
    assert read(encode(frame)) == [frame]
