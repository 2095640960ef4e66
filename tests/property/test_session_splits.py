"""However the network cuts the byte stream, the session does the same; garbage is answered."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqcore.wire.frames import FrameParser
from tests.support.engine import Node


def sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


bodies = st.binary(min_size=1, max_size=60)
commands = st.one_of(
    bodies.map(lambda body: b"PUB t\n" + sized(body)),
    bodies.map(lambda body: b"PUB other\r\n" + sized(body)),
    st.lists(bodies, min_size=1, max_size=6).map(
        lambda some: b"MPUB t\n" + sized(struct.pack(">I", len(some)) + b"".join(map(sized, some)))
    ),
    st.tuples(st.integers(0, 50), bodies).map(lambda pair: b"DPUB t %d\n" % pair[0] + sized(pair[1])),
    st.integers(0, 20).map(lambda count: b"RDY %d\n" % count),
    st.sampled_from([b"NOP\n", b"SUB t c\n", b"CLS\n", b"IDENTIFY\n" + sized(b"{}")]),
    st.just(b"FIN 0123456789abcdef\n"),
)
streams = st.lists(commands, max_size=12).map(b"".join)


def outcome(pieces: list[bytes]) -> tuple[list[tuple[int, bytes]], bool, dict[str, int]]:
    node = Node(max_msg_size=100)
    session, _ = node.session()
    replies = b""
    for piece in pieces:
        session.receive(piece, node.now_ns)
        replies += session.take_replies()
    session.end_of_stream(node.now_ns)
    replies += session.take_replies()
    node.turn()
    published = {name: topic.message_count for name, topic in node.broker.topics.items()}
    return FrameParser().feed(replies), session.closing, published


@given(streams, st.lists(st.integers(0, 2000), max_size=8))
def test_any_split_of_the_stream_gives_the_same_answers(stream, cuts):
    stream = b"  V2" + stream
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    assert outcome(pieces) == outcome([stream])


@given(streams)
@settings(max_examples=30)
def test_byte_by_byte_is_the_same_too(stream):
    stream = b"  V2" + stream

    assert outcome([stream[n : n + 1] for n in range(len(stream))]) == outcome([stream])


@given(st.binary(max_size=300), streams)
def test_garbage_is_answered_with_at_most_one_error_that_closes(garbage, stream):
    frames, _, _ = outcome([b"  V2" + stream + garbage])

    fatal = [data for kind, data in frames if kind == 1 and not data.startswith(b"E_FIN_FAILED")]
    assert len(fatal) <= 1
    assert not fatal or frames[-1][1] == fatal[0]
