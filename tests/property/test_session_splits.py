"""A session does the same however the network cuts the byte stream; garbage gets an answer."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqclient.wire.frames import FrameParser
from nsqd.engine.topic import Topic
from nsqd.log.frames import Block
from tests.support.engine import Node
from tests.support.wire import sized

# Long bodies as well as short ones: where a short body is copied, a long one is not.
bodies = st.binary(min_size=1, max_size=60) | st.builds(
    lambda pattern, size: (pattern * size)[:size],
    st.binary(min_size=1, max_size=9),
    st.integers(4000, 20_000),
)
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


def frames_of(topic: Topic) -> bytes:
    """The frames of all published messages, joined over the blocks."""
    frames = b""
    seq = topic.log.next_seq - topic.message_count
    while isinstance(block := topic.log.read(seq), Block):
        frames += block.frames(seq, block.next)
        seq = block.next
    assert seq == topic.log.next_seq
    return frames


def outcome(pieces: list[bytes]) -> tuple[list[tuple[int, bytes]], bool, dict[str, bytes]]:
    node = Node(max_msg_size=16_000)
    session, _ = node.session()
    replies = b""
    for piece in pieces:
        session.receive(piece, node.now_ns)
        replies += session.take_replies()
    session.end_of_stream(node.now_ns)
    replies += session.take_replies()
    node.turn()
    published = {name: frames_of(topic) for name, topic in node.broker.topics.items()}
    return FrameParser().feed(replies), session.closing, published


@given(streams, st.lists(st.integers(0, 60_000), max_size=8))
def test_session_answers_the_same_for_any_split(stream, cuts):
    stream = b"  V2" + stream
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    assert outcome(pieces) == outcome([stream])


@given(streams)
@settings(max_examples=10, deadline=None)
def test_byte_by_byte_is_the_same_too(stream):
    stream = b"  V2" + stream

    assert outcome([stream[n : n + 1] for n in range(len(stream))]) == outcome([stream])


@given(st.binary(max_size=300), streams)
def test_garbage_is_answered_with_at_most_one_error_that_closes(garbage, stream):
    frames, _, _ = outcome([b"  V2" + stream + garbage])

    fatal = [data for kind, data in frames if kind == 1 and not data.startswith(b"E_FIN_FAILED")]
    assert len(fatal) <= 1
    assert not fatal or frames[-1][1] == fatal[0]


@given(
    st.lists(st.integers(4096, 16_000), min_size=2, max_size=12),
    st.lists(st.integers(0, 160_000), max_size=6),
)
def test_long_messages_arrive_whole_wherever_read_ends(sizes, cuts):
    stream = b"  V2" + b"".join(b"PUB t\n" + sized(bytes([65 + n]) * size) for n, size in enumerate(sizes))
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    replies, closing, published = outcome(pieces)

    assert (replies, closing) == ([(0, b"OK")] * len(sizes), True)
    bodies = [data[26:] for _, data in FrameParser().feed(published["t"])]
    assert bodies == [bytes([65 + n]) * size for n, size in enumerate(sizes)]
