"""Any bytes, whole or in any split, are commands or a ProtocolError, and the state is one of the table.

A fatal error comes at most once, is the last frame, and closes the connection. The split makes no difference
to the frames, to the state, or to the messages that are published to each topic. Neither does it matter how
late the auth server answers, and whether the grants have expired by then.
"""

import struct
from dataclasses import dataclass
from itertools import zip_longest

from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.frames import FrameParser
from nsqd.engine.topic import Topic
from nsqd.log.frames import Block
from nsqd.protocol.auth import parse_authorizations
from nsqd.protocol.batch import SLICE_MESSAGES
from nsqd.protocol.session import MAGIC
from nsqd.protocol.states import State
from tests.support.engine import Node

GRANTED = (
    b'{"ttl":1,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}'
)
NOT_FATAL = (b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED")


def sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def batch(bodies: list[bytes]) -> bytes:
    return struct.pack(">I", len(bodies)) + b"".join(map(sized, bodies))


numbers = st.one_of(
    st.integers(-2, 5000), st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64, 10**30])
).map(lambda number: b"%d" % number)
names = st.sampled_from([b"t", b"u#ephemeral", b"", b"$", b"t" * 65, b"c"])
# Long bodies as well as short ones: where a short body is copied, a long one is not.
bodies = st.binary(min_size=1, max_size=120) | st.builds(
    lambda pattern, size: (pattern * size)[:size],
    st.binary(min_size=1, max_size=9),
    st.integers(4000, 20_000),
)
# Headers before bodies, as in PUB_EXT, some of them wrong.
extended = st.one_of(
    st.tuples(st.sampled_from([b"", b"{}", b'{"a":"b"}', b"[]", b'{"a":1}']), bodies).map(
        lambda of: struct.pack(">H", len(of[0])) + of[0] + of[1]
    ),
    bodies,
)
lengths = st.sampled_from([0, 1, 5, 16_000, 16_001, 2**31 - 1, 2**31, 2**32 - 1]).map(
    lambda length: struct.pack(">I", length)
)
identities = st.sampled_from(
    [
        b"{}",
        b"{",
        b"[]",
        b'{"feature_negotiation":true}',
        b'{"heartbeat_interval":-1}',
        b'{"sample_rate":50}',
        b'{"extend_support":true}',
    ]
)
ids = st.sampled_from([b"0123456789abcdef", b"short", b"\n" * 16, b"x" * 16])
commands = st.one_of(
    st.tuples(names, bodies).map(lambda pair: b"PUB %b\n" % pair[0] + sized(pair[1])),
    st.tuples(names, numbers, bodies).map(lambda of: b"DPUB %b %b\n" % of[:2] + sized(of[2])),
    st.tuples(names, st.lists(bodies, max_size=8)).map(lambda of: b"MPUB %b\n" % of[0] + sized(batch(of[1]))),
    st.integers(1, 2 * SLICE_MESSAGES).map(lambda count: b"MPUB t\n" + sized(batch([b"x"] * count))),
    st.tuples(names, lengths, bodies).map(lambda of: b"MPUB %b\n" % of[0] + of[1] + of[2]),
    st.tuples(names, extended).map(lambda pair: b"PUB_EXT %b\n" % pair[0] + sized(pair[1])),
    st.tuples(names, st.lists(extended, max_size=8)).map(
        lambda of: b"MPUB_EXT %b 0\n" % of[0] + sized(batch(of[1]))
    ),
    st.tuples(extended, st.integers(30, 2 * SLICE_MESSAGES)).map(
        lambda of: b"MPUB_EXT t\n" + sized(batch([of[0]] * of[1]))
    ),
    st.tuples(names, lengths).map(lambda pair: b"PUB %b\n" % pair[0] + pair[1]),
    st.tuples(names, names).map(lambda pair: b"SUB %b %b\n" % pair),
    numbers.map(lambda number: b"RDY %b\r\n" % number),
    st.tuples(st.sampled_from([b"FIN", b"REQ", b"TOUCH"]), ids, numbers).map(lambda of: b"%b %b %b\n" % of),
    identities.map(lambda body: b"IDENTIFY\n" + sized(body)),
    bodies.map(lambda secret: b"AUTH\n" + sized(secret)),
    st.sampled_from([b"NOP\n", b"CLS\n", b"\n", b" \n", b"NOP x\r\n", b"x" * 17_000]),
    st.binary(max_size=40),
)
streams = st.tuples(
    st.sampled_from([MAGIC, MAGIC, MAGIC, b"", b"  V1"]), st.lists(commands, max_size=10)
).map(lambda of: of[0] + b"".join(of[1]))


@dataclass(frozen=True)
class Outcome:
    frames: list[tuple[int, bytes]]
    closing: bool
    state: State
    counts: dict[str, int]
    # The frames of all messages by topic; empty with an auth server, because the answers take time.
    published: dict[str, bytes]


# Before each piece: whether the server does its part, and whether the grants have expired by then.
Moments = list[tuple[bool, bool]]


def frames_of(topic: Topic) -> bytes:
    """The frames of the published messages that are in memory, joined over the blocks."""
    # Of more than 10,000 messages without a channel a log that is only in memory drops the oldest.
    frames, seq = b"", max(topic.log.next_seq - topic.message_count, topic.log.resident_from)
    while isinstance(block := topic.log.read(seq), Block):
        frames += block.frames(seq, block.next)
        seq = block.next
    assert seq == topic.log.next_seq
    return frames


def outcome(pieces: list[bytes], *, auth: bool, moments: Moments) -> Outcome:
    """Return what a session, with a simulated server, makes of the pieces and of the end after them."""
    node = Node(max_msg_size=16_000, max_body_size=64 << 10, auth_required=auth)
    session, _ = node.session()
    replies = b""

    def served() -> bytes:
        """Do the server's part: answer auth questions, apply slices, take replies."""
        out = b""
        while session.is_blocked():
            if session.query is not None:
                session.authorized(parse_authorizations(GRANTED, node.now_ns), node.now_ns)
            else:
                session.resume(node.now_ns)
            out += session.take_replies()
            node.turn()
        out += session.take_replies()
        node.turn()
        return out

    for piece, (serves, expires) in zip_longest(pieces, moments[: len(pieces)], fillvalue=(True, False)):
        if auth and expires:
            node.now_ns += 2_000_000_000
        session.receive(piece, node.now_ns)
        if serves:
            replies += served()
        assert session.state in State
    session.end_of_stream(node.now_ns)
    replies += served()
    topics = node.broker.topics
    counts = {name: topic.message_count for name, topic in topics.items()}
    published = {} if auth else {name: frames_of(topic) for name, topic in topics.items()}
    return Outcome(FrameParser().feed(replies), session.closing, session.state, counts, published)


@given(
    streams,
    st.lists(st.integers(0, 40_000), max_size=6),
    st.booleans(),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=7, max_size=7),
)
def fuzz(stream: bytes, cuts: list[int], auth: bool, moments: Moments) -> None:
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    whole = outcome([stream], auth=auth, moments=[])

    assert whole.closing
    errors = [data for kind, data in whole.frames if kind == 1]
    assert all(error.startswith(b"E_") for error in errors)
    fatal = [error for error in errors if not error.startswith(NOT_FATAL)]
    assert not fatal or (len(fatal) == 1 and whole.frames[-1][1] == fatal[0])
    assert outcome(pieces, auth=auth, moments=moments) == whole
