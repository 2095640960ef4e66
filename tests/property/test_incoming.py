"""However nsqd's bytes are cut into reads, the client sees the same; garbage is a FrameError."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient._incoming import Incoming
from nsqclient.wire.frames import FRAME_ERROR, FRAME_MESSAGE, FRAME_RESPONSE, OK, FrameError, encode_frame
from nsqclient.wire.message import MessageRecord

messages = st.builds(
    MessageRecord,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 65535),
    st.binary(min_size=16, max_size=16),
    st.binary(max_size=60),
)
frames = st.one_of(
    messages.map(lambda message: (FRAME_MESSAGE, message.encode())),
    st.just((FRAME_RESPONSE, OK)),
    st.tuples(st.sampled_from([FRAME_RESPONSE, FRAME_ERROR, 7]), st.binary(max_size=30)),
)
cuts = st.lists(st.integers(0, 4000), max_size=30)


def pieces(stream: bytes, where: list[int]) -> list[bytes]:
    at = sorted({0, len(stream), *(one for one in where if one < len(stream))})
    return [stream[start:end] for start, end in itertools.pairwise(at)]


def fed(stream: list[bytes]) -> tuple[list[tuple], list[tuple[int, bytes]]]:
    """The messages, and all other frames in their order."""
    incoming = Incoming(None)  # type: ignore[arg-type] # nobody answers here
    deliveries, others = [], []
    for piece in stream:
        found = []
        oks = incoming.feed(piece, 5.0, deliveries, found)
        others += [(FRAME_RESPONSE, OK)] * oks + found
    assert all(one.received_at == 5 and not one.answered for one in deliveries)
    return [(one.timestamp_ns, one.attempts, one.id, one.body) for one in deliveries], others


@given(st.lists(frames, max_size=30), cuts)
def test_any_cut_of_the_stream_gives_the_same(sent, where):
    stream = b"".join(encode_frame(*frame) for frame in sent)

    received, others = fed(pieces(stream, where))

    decoded = [MessageRecord.decode(data) for frame_type, data in sent if frame_type == FRAME_MESSAGE]
    assert received == [(one.timestamp_ns, one.attempts, one.id, one.body) for one in decoded]
    assert others == [frame for frame in sent if frame[0] != FRAME_MESSAGE]


@given(st.lists(frames, max_size=10), cuts)
def test_in_the_handshake_frames_come_one_by_one_and_nothing_is_lost(sent, where):
    incoming = Incoming(None)  # type: ignore[arg-type]
    found = []
    for piece in pieces(b"".join(encode_frame(*frame) for frame in sent), where):
        incoming.hold(piece)
        while frame := incoming.frame(b""):
            found.append(frame)

    assert found == sent
    assert incoming.rest() == b""


@given(st.binary(max_size=300), cuts)
def test_garbage_is_frames_or_a_frame_error(garbage, where):
    with contextlib.suppress(FrameError):
        fed(pieces(garbage, where))


@pytest.mark.parametrize("size", [0, 3, 1001, 2**32 - 1])
def test_a_size_out_of_range_is_refused_before_it_is_waited_for(size):
    incoming = Incoming(None, max_frame_bytes=1000)  # type: ignore[arg-type]
    with pytest.raises(FrameError, match="out of range 4-1000"):
        incoming.feed(size.to_bytes(4) + bytes(4), 0, [], [])


def test_a_message_shorter_than_its_header_is_refused():
    with pytest.raises(FrameError, match="shorter than its header"):
        fed([encode_frame(FRAME_MESSAGE, bytes(25))])
