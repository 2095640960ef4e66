"""The frame parser with any split of the stream and any garbage."""

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.frames import (
    FRAME_ERROR,
    FRAME_MESSAGE,
    FRAME_RESPONSE,
    FrameError,
    FrameParser,
    encode_frame,
)
from nsqclient.wire.message import MessageRecord

frames = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=20)


def cut(stream: bytes, positions: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(position % (len(stream) + 1) for position in positions)})
    return [stream[start:end] for start, end in pairwise(edges)]


@given(frames, st.lists(st.integers(min_value=0)))
def test_any_split_of_stream_gives_the_same_frames(sent, positions):
    parser = FrameParser()
    stream = b"".join(encode_frame(frame_type, data) for frame_type, data in sent)

    received = [frame for piece in cut(stream, positions) for frame in parser.feed(piece)]

    assert received == sent


runs = st.lists(
    st.one_of(
        st.just((FRAME_RESPONSE, b"OK")),
        st.tuples(st.sampled_from([FRAME_RESPONSE, FRAME_ERROR]), st.binary(max_size=30)),
        st.tuples(st.just(FRAME_MESSAGE), st.binary(min_size=26, max_size=300)),
    ),
    max_size=30,
)


@given(runs, st.lists(st.integers(min_value=0)))
def test_any_split_gives_the_same_oks_messages_and_other_frames(sent, positions):
    parser = FrameParser(message=lambda *parts: parts, source="nsqd")
    stream = b"".join(encode_frame(frame_type, data) for frame_type, data in sent)
    messages: list[tuple[object, ...]] = []
    others: list[tuple[int, bytes]] = []

    for piece in cut(stream, positions):
        found: list[tuple[int, bytes]] = []
        oks = parser.feed_run(piece, 5.0, messages, found)
        others += [(FRAME_RESPONSE, b"OK")] * oks + found

    records = [MessageRecord.decode(data) for kind, data in sent if kind == FRAME_MESSAGE]
    assert messages == [(one.timestamp_ns, one.attempts, one.id, one.body, "nsqd", 5.0) for one in records]
    assert others == [frame for frame in sent if frame[0] != FRAME_MESSAGE]


@given(frames, st.lists(st.integers(min_value=0)))
def test_frames_taken_singly_leave_bytes_behind_them_unparsed(sent, positions):
    parser = FrameParser()
    stream = b"".join(encode_frame(frame_type, data) for frame_type, data in sent)

    received = []
    for piece in cut(stream, positions):
        while found := parser.feed(piece, single=True):
            received += found
            piece = b""

    assert received == sent
    assert parser.rest() == b""


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0)))
def test_garbage_gives_messages_or_frame_error(garbage, positions):
    parser = FrameParser(message=lambda *parts: parts)

    with contextlib.suppress(FrameError):
        for piece in cut(garbage, positions):
            parser.feed_run(piece, 5.0, [], [])


@given(frames)
def test_frames_arrive_with_their_last_byte(sent):
    parser = FrameParser()

    for frame_type, data in sent:
        stream = encode_frame(frame_type, data)
        assert all(parser.feed(stream[at : at + 1]) == [] for at in range(len(stream) - 1))
        assert parser.feed(stream[-1:]) == [(frame_type, data)]


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_garbage_gives_frames_or_frame_error(pieces):
    parser = FrameParser(max_frame_bytes=100)

    try:
        received = [frame for piece in pieces for frame in parser.feed(piece)]
    except FrameError:
        return

    # The frames that were read are exactly the bytes that were sent, except for an unfinished end.
    encoded = b"".join(encode_frame(frame_type, data) for frame_type, data in received)
    assert b"".join(pieces).startswith(encoded)


@given(
    st.builds(
        MessageRecord,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**16 - 1),
        st.binary(min_size=16, max_size=16),
        st.binary(max_size=500),
    )
)
def test_message_reads_as_it_was_encoded(message):
    assert MessageRecord.decode(message.encode()) == message


@given(st.binary(max_size=25))
def test_message_shorter_than_its_header_is_refused(data):
    with pytest.raises(ValueError, match="shorter than its header"):
        MessageRecord.decode(data)
