"""A handshake with any peer ends done or with a reason, and done only between two members."""

import dataclasses
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import Hello, Ping, Proof, Refuse, StartTls, Sync
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.handshake import (
    ACCEPTOR,
    CONNECTOR,
    MAX_HANDSHAKE_FRAME,
    Handshake,
    Incarnations,
    proof,
)

SECRET = b"s" * 32
ALICE = Hello(b"a" * 16, 7, b"A" * 16, b"@" * 16, 1, "alice:4150", b"1" * 32)
BOB = Hello(b"b" * 16, 3, b"B" * 16, b"#" * 16, 2, "bob:4150", b"2" * 32)
RIGHT = Proof(proof(SECRET, CONNECTOR, encode(ALICE), encode(BOB), b""))

identities = st.binary(min_size=16, max_size=16)
nonces = st.binary(min_size=32, max_size=32)
versions = st.integers(0, 4)
hellos = st.builds(
    Hello,
    identities | st.sampled_from((ALICE.identity, BOB.identity)),
    st.integers(0, (1 << 64) - 1),
    identities,
    identities,
    st.integers(0, 1023),
    st.text(max_size=20),
    nonces,
    min_version=versions,
    max_version=versions,
    features=st.integers(0, (1 << 64) - 1),
)
frames = st.one_of(
    hellos,
    st.builds(Proof, nonces),
    st.builds(Refuse, st.integers(0, 255), st.text(max_size=20)),
    st.sampled_from((ALICE, BOB, RIGHT, Ping(), Sync(), StartTls())),
)


def side(role):
    return Handshake(role, ALICE if role == CONNECTOR else BOB, lambda: (SECRET,), Incarnations())


def feed(handshake, reader, data):
    """What a connection does with the bytes that it receives, until the handshake has an end."""
    answers = []
    with suppress(BadFrame):
        for frame in reader.feed(data):
            answers += handshake.take(frame)
            if handshake.done or handshake.problem:
                break
    return answers


@given(st.sampled_from((CONNECTOR, ACCEPTOR)), st.lists(frames | st.binary(max_size=80), max_size=6))
@example(ACCEPTOR, [ALICE, RIGHT])
@example(ACCEPTOR, [encode(ALICE) + encode(RIGHT)])
def test_handshake_with_any_peer_is_done_only_after_its_proof(role, sent):
    handshake = side(role)
    handshake.first_frames()
    reader = FrameReader(MAX_HANDSHAKE_FRAME)
    data = b""
    for one in sent:
        piece = one if isinstance(one, bytes) else encode(one)
        data += piece
        for answer in feed(handshake, reader, piece):
            encode(answer)
        if handshake.done or handshake.problem:
            break

    if handshake.done:
        assert role == ACCEPTOR
        assert data.startswith(encode(ALICE) + encode(RIGHT))
    ended = bool(handshake.problem)
    assert ended == (handshake.refusal is not None or handshake.refused_by_peer is not None) or (
        role == CONNECTOR and handshake.peer is not None and handshake.peer.identity == ALICE.identity
    )


class Wire:
    """A connection in memory between two honest members, through a stranger."""

    def __init__(self):
        self.sides = (side(CONNECTOR), side(ACCEPTOR))
        self.readers = [FrameReader(MAX_HANDSHAKE_FRAME) for _ in self.sides]
        self.wires = [b"".join(map(encode, self.sides[0].first_frames())), b""]

    def deliver(self, sender, size, change):
        """Give some bytes of a sender to the other side, changed."""
        data, self.wires[sender] = self.wires[sender][:size], self.wires[sender][size:]
        receiver = 1 - sender
        if not self.sides[receiver].done:
            answers = feed(self.sides[receiver], self.readers[receiver], change(data))
            self.wires[receiver] += b"".join(map(encode, answers))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 200)), max_size=60))
def test_handshake_is_done_however_bytes_arrive(steps):
    wire = Wire()
    for sender, size in [*steps, *[(0, 1 << 10), (1, 1 << 10)] * 4]:
        wire.deliver(sender, size, lambda data: data)

    assert all(one.done for one in wire.sides)
    assert [one.peer for one in wire.sides] == [BOB, ALICE]


@given(st.integers(0, 1), st.integers(min_value=0), st.integers(1, 255))
def test_handshake_is_not_done_when_one_byte_is_changed(sender, at, flip):
    """The side that receives the changed byte never counts its peer as a member."""
    wire = Wire()
    position = at % (len(encode((ALICE, BOB)[sender])) + len(encode(RIGHT)))
    passed = 0

    def change(data):
        nonlocal passed
        inside = position - passed
        passed += len(data)
        if 0 <= inside < len(data):
            data = data[:inside] + bytes([data[inside] ^ flip]) + data[inside + 1 :]
        return data

    for _ in range(5):
        for one in (0, 1):
            wire.deliver(one, 1 << 10, change if one == sender else lambda data: data)

    assert not wire.sides[1 - sender].done


@given(hellos.map(lambda hello: dataclasses.replace(hello, min_version=3, max_version=3)))
def test_hello_is_the_same_bytes_after_it_was_read(hello):
    """The proof covers the hello as it was sent; the receiver encodes it again."""
    data = encode(hello)
    (read,) = FrameReader(MAX_HANDSHAKE_FRAME).feed(data)

    assert encode(read) == data
