"""An authorized session does the same, however the stream is cut and however late the auth server is."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.frames import FrameParser
from nsqd.protocol.auth import parse_authorizations
from tests.support.engine import Node
from tests.support.wire import sized

ANSWER = (
    b'{"ttl":1,"authorizations":[{"topic":"^t$","channels":[".*"],"permissions":["publish","subscribe"]}]}'
)


bodies = st.binary(min_size=1, max_size=40)
commands = st.one_of(
    bodies.map(lambda body: b"PUB t\n" + sized(body)),
    bodies.map(lambda body: b"MPUB t\n" + sized(struct.pack(">I", 1) + sized(body))),
    bodies.map(lambda body: b"DPUB t 5\n" + sized(body)),
    st.sampled_from([b"NOP\n", b"SUB t c\n", b"RDY 1\n", b"PUB other\n" + sized(b"x")]),
)
streams = st.lists(commands, max_size=8).map(lambda some: b"  V2AUTH\n" + sized(b"s") + b"".join(some))
# Before each piece: whether the auth server answers open requests, and whether the ttl has passed by then.
steps = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=9, max_size=9)


def outcome(pieces: list[bytes], moments: list[tuple[bool, bool]]) -> tuple[list[tuple[int, bytes]], int]:
    node = Node(auth_required=True)
    session, _ = node.session()
    replies = b""

    def answer() -> None:
        while session.query is not None:
            session.authorized(parse_authorizations(ANSWER, node.now_ns), node.now_ns)

    for piece, (answered, late) in zip(pieces, moments, strict=False):
        if answered:
            answer()
        if late:
            node.now_ns += 2_000_000_000
        session.receive(piece, node.now_ns)
        replies += session.take_replies()
    session.end_of_stream(node.now_ns)
    answer()
    replies += session.take_replies()
    node.turn()
    return FrameParser().feed(replies), sum(topic.message_count for topic in node.broker.topics.values())


@given(streams, st.lists(st.integers(0, 400), max_size=8), steps)
def test_cuts_and_late_answers_change_nothing(stream, cuts, moments):
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    assert outcome(pieces, moments) == outcome([stream], [(False, False)])
