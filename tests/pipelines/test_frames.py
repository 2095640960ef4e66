"""Message frames become columns, whatever their sizes, and other bytes are refused."""

import random

import numpy as np
import pytest

from nsqclient.wire.frames import FRAME_MESSAGE, FRAME_RESPONSE, FrameError, FrameParser, encode_frame
from nsqclient.wire.message import MessageRecord
from pyspark_nsq.source.frames import decode_frames

SEQUENCE = 1_700_000_000_123_456
NODE = 617


def message(number, body):
    return MessageRecord(
        1_763_632_801_000_000_000 + number, 1, b"%016x" % (NODE << 54 | SEQUENCE + number), body
    )


def frames_of(messages):
    return b"".join(encode_frame(FRAME_MESSAGE, each.encode()) for each in messages)


def one_by_one(frames):
    """The messages that the wire parser, which goes frame by frame, finds in the same bytes."""
    return [MessageRecord.decode(data) for _, data in FrameParser().feed(frames)]


SIZES = {
    "nothing": [],
    "one size": [200] * 500,
    "one message": [5],
    "no bodies": [0] * 100,
    "mixed": [random.Random(7).randrange(3000) for _ in range(500)],
    # The total length is a multiple of the first frame's length.
    "a multiple": [100, 50, 150],
    "large at the end": [*[10] * 50, 100_000],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_columns_equal_messages_of_wire_parser(sizes):
    draw = random.Random(3)
    frames = frames_of(message(n, draw.randbytes(size)) for n, size in enumerate(sizes))
    expected = one_by_one(frames)

    found = decode_frames(frames)

    assert found.bodies.to_pylist() == [each.body for each in expected]
    assert found.ids == b"".join(each.id for each in expected)
    assert found.timestamps_us.tolist() == [each.timestamp_ns // 1000 for each in expected]
    assert found.attempts.tolist() == [each.attempts for each in expected]
    assert found.sequences.tolist() == list(range(SEQUENCE, SEQUENCE + len(sizes)))


def test_bodies_that_look_like_frames_stay_bodies():
    inner = frames_of([message(9, b"inner")])
    frames = frames_of([message(0, inner), message(1, inner * 3), message(2, b"")])

    assert decode_frames(frames).bodies.to_pylist() == [inner, inner * 3, b""]


@pytest.mark.parametrize("sizes", [[20, 20, 20], [20, 30, 40]], ids=["one size", "mixed"])
def test_frames_cut_anywhere_are_refused(sizes):
    frames = frames_of(message(n, b"x" * size) for n, size in enumerate(sizes))
    whole = set(np.cumsum([34 + size for size in sizes]).tolist())
    for length in range(1, len(frames)):
        if length not in whole:
            with pytest.raises(FrameError):
                decode_frames(frames[:length])


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (encode_frame(FRAME_RESPONSE, b"O" * 30), "is not a message"),
        (frames_of([message(0, b"x")]) + encode_frame(FRAME_RESPONSE, b"O" * 30), "is not a message"),
        (encode_frame(FRAME_MESSAGE, b"short"), "shorter than the 34 bytes"),
        (frames_of([message(0, b"x" * 90)]) + encode_frame(FRAME_MESSAGE, b"short"), "shorter than"),
        (
            encode_frame(FRAME_MESSAGE, MessageRecord(0, 1, b"not hexadecimal!", b"").encode()),
            "not hexadecimal",
        ),
        (b"\xff\xff\xff\xff", "the last frame lacks"),
        (b"\x00\x00\x00\x00" * 10, "shorter than"),
    ],
    ids=["response", "response later", "short", "short later", "id", "size", "zeros"],
)
def test_bytes_that_are_no_messages_are_refused(frames, reason):
    with pytest.raises(FrameError, match=reason):
        decode_frames(frames)


def test_damaged_frames_are_refused_or_equal_messages_of_wire_parser():
    draw = random.Random(11)
    good = frames_of(message(n, b"x" * n) for n in range(20))
    for _ in range(2000):
        damaged = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(good))] = draw.randrange(256)
        try:
            found = decode_frames(bytes(damaged))
        except FrameError:
            continue
        expected = one_by_one(bytes(damaged))
        assert found.bodies.to_pylist() == [each.body for each in expected]
        assert found.ids == b"".join(each.id for each in expected)
