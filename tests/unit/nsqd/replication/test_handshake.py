"""Two sides of a handshake, with honest and with other peers."""

import dataclasses
from itertools import pairwise

import pytest

from nsqd.replication.frames import Hello, Ping, Proof, Refuse, StartTls
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.handshake import (
    ACCEPTOR,
    CONNECTOR,
    MAX_HANDSHAKE_FRAME,
    Handshake,
    Incarnations,
    parse_secrets,
    proof,
)

SECRET, OTHER = b"s" * 32, b"o" * 32
ALICE = Hello(b"a" * 16, 7, b"A" * 16, b"@" * 16, 1, "alice:4150", b"1" * 32)
BOB = Hello(b"b" * 16, 3, b"B" * 16, b"#" * 16, 2, "bob:4150", b"2" * 32)


def connector(me=ALICE, *, secrets=(SECRET,), **more):
    more.setdefault("known", Incarnations())
    return Handshake(CONNECTOR, me, lambda: secrets, **more)


def acceptor(me=BOB, *, secrets=(SECRET,), **more):
    more.setdefault("known", Incarnations())
    return Handshake(ACCEPTOR, me, lambda: secrets, **more)


def exchange(first, second):
    """Carry frames both ways, as bytes, until nothing is sent; returns them as they were sent."""
    sent, readers = [], {first: FrameReader(MAX_HANDSHAKE_FRAME), second: FrameReader(MAX_HANDSHAKE_FRAME)}
    waiting = [(second, one) for one in first.first_frames()]
    waiting += [(first, one) for one in second.first_frames()]
    while waiting:
        receiver, frame = waiting.pop(0)
        sent.append(frame)
        other = first if receiver is second else second
        for read in readers[receiver].feed(encode(frame)):
            waiting += [(other, one) for one in receiver.take(read)]
    return sent


# --- the secret ---


def test_secrets_are_lines_of_file():
    assert parse_secrets(OTHER + b"\n\n  " + SECRET + b" \r\n") == (OTHER, SECRET)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b" \n\n", "it has no secret"),
        (SECRET + b"\n\nshort\n", "line 3 has 5 bytes, a secret has at least 32"),
        (b" " * 20 + b"s" * 31, "line 1 has 31 bytes"),
    ],
)
def test_secret_file_without_usable_secrets_is_refused(content, problem):
    with pytest.raises(ValueError, match=problem):
        parse_secrets(content)


def test_proof_is_hmac_that_design_names():
    # From openssl dgst -sha256 -hmac, over the five parts with their lengths.
    parts = (CONNECTOR, b"hello of the connector", b"hello of the acceptor", b"h" * 32)

    assert proof(OTHER, *parts).hex() == "9419d39029dc64b678d999b80783565e0772b77631a34dc5f43235447c38ecc2"


# --- membership ---


def test_handshake_proves_both_sides_connector_first():
    one, two = connector(), acceptor()
    sent = exchange(one, two)

    assert [type(frame) for frame in sent] == [Hello, Hello, Proof, Proof]
    assert sent[2] != sent[3]
    assert (one.done, two.done) == (True, True)
    assert (one.peer, two.peer) == (BOB, ALICE)
    assert (one.problem, two.problem) == ("", "")


def test_handshake_accepts_every_secret_during_rotation():
    steps = [(OTHER,), (OTHER, SECRET), (SECRET, OTHER), (SECRET,)]
    for pair in pairwise(steps):
        for before, after in (pair, pair[::-1]):
            one, two = connector(secrets=before), acceptor(secrets=after)
            exchange(one, two)
            assert (one.done, two.done) == (True, True)


def test_handshake_refuses_connector_with_another_secret():
    one, two = connector(secrets=(OTHER,)), acceptor()
    sent = exchange(one, two)

    assert [type(frame) for frame in sent] == [Hello, Hello, Proof, Refuse]
    assert (one.done, two.done) == (False, False)
    assert two.refusal == one.refused_by_peer
    assert two.refusal.code == Refuse.NOT_A_MEMBER
    assert one.problem == two.problem
    assert one.problem.startswith("the connector is not a member: its proof fits no secret")


def test_handshake_refuses_acceptor_with_another_secret():
    # It accepts the connector's secret, but proves with one that the connector does not know.
    one, two = connector(), acceptor(secrets=(OTHER, SECRET))
    exchange(one, two)

    assert not one.done
    assert one.refusal.code == Refuse.NOT_A_MEMBER
    assert "the acceptor is not a member" in one.problem
    # The acceptor had proved already, and hears of it as well.
    assert not two.done
    assert two.refused_by_peer == one.refusal


def test_handshake_without_secret_names_flag_at_both_ends():
    one, two = connector(), acceptor(secrets=())
    sent = exchange(one, two)

    assert sent == [ALICE, Refuse(1, "no cluster secret is set at the acceptor: --cluster-secret-file")]
    assert one.problem == two.problem

    one = connector(secrets=())
    assert one.first_frames() == [
        Refuse(1, "no cluster secret is set at the connector: --cluster-secret-file")
    ]
    assert not one.done


def test_handshake_shows_stranger_no_proof_and_no_reason_but_membership():
    known = Incarnations()
    known.check(ALICE)
    two = acceptor(known=known, other_node=lambda _hello: "carol:4150")
    stranger = dataclasses.replace(ALICE, incarnation=1, node_id=BOB.node_id)

    assert two.take(stranger) == [BOB]
    (answer,) = two.take(Proof(bytes(32)))

    assert answer.code == Refuse.NOT_A_MEMBER
    assert known.check(ALICE) is None


# --- attacks on the proof ---


def test_handshake_refuses_reflected_proof():
    """A stranger sends each frame of the connector back to it."""
    one = connector()
    (hello,) = one.first_frames()
    answer = one.take(dataclasses.replace(hello, identity=b"x" * 16))
    one.take(*answer)

    assert one.refusal.code == Refuse.NOT_A_MEMBER


def test_handshake_with_oneself_ends_before_proof():
    one, two = connector(), acceptor(dataclasses.replace(ALICE, nonce=b"3" * 32))
    sent = exchange(one, two)

    assert [type(frame) for frame in sent] == [Hello, Hello]
    assert one.problem == "this address is that of the node itself"


def test_handshake_refuses_replayed_proof():
    one, two = connector(), acceptor()
    recorded = exchange(one, two)
    later = acceptor(dataclasses.replace(BOB, nonce=b"9" * 32))
    later.take(recorded[0])
    (answer,) = later.take(recorded[2])

    assert answer.code == Refuse.NOT_A_MEMBER

    another = connector(dataclasses.replace(ALICE, nonce=b"9" * 32))
    another.first_frames()
    another.take(recorded[1])
    another.take(recorded[3])

    assert another.refusal.code == Refuse.NOT_A_MEMBER


@pytest.mark.parametrize("hashes", [(b"c" * 32, b"d" * 32), (b"", b"d" * 32), (b"c" * 32, b"")])
def test_handshake_refuses_another_certificate(hashes):
    """A stranger ends TLS with a certificate of its own, and carries the frames on."""
    one, two = (make(certificate_hash=each) for make, each in zip((connector, acceptor), hashes, strict=True))
    exchange(one, two)

    assert two.refusal.code == Refuse.NOT_A_MEMBER
    assert not one.done


@pytest.mark.parametrize("role", [ACCEPTOR, b"", b"Connector"])
def test_handshake_refuses_proof_of_another_role(role):
    two = acceptor()
    two.take(ALICE)
    (answer,) = two.take(Proof(proof(SECRET, role, encode(ALICE), encode(BOB), b"")))

    assert answer.code == Refuse.NOT_A_MEMBER


# --- versions ---


def test_handshake_uses_highest_common_version_and_features():
    one = connector(dataclasses.replace(ALICE, min_version=1, max_version=4, features=0b1100))
    two = acceptor(dataclasses.replace(BOB, min_version=2, max_version=3, features=0b0101))
    exchange(one, two)

    assert (one.version, two.version) == (3, 3)
    assert (one.features, two.features) == (0b0100, 0b0100)


def test_handshake_refuses_versions_that_do_not_meet():
    later = dataclasses.replace(ALICE, min_version=4, max_version=5)
    one, two = connector(later), acceptor()
    sent = exchange(one, two)

    assert sent[1:] == [Refuse(2, "the acceptor speaks versions 3 to 3, the connector 4 to 5")]
    assert one.problem == two.problem

    one = connector()
    one.first_frames()
    assert one.take(dataclasses.replace(BOB, min_version=4, max_version=5)) == [
        Refuse(2, "the connector speaks versions 3 to 3, the acceptor 4 to 5")
    ]


# --- which node it is ---


def test_handshake_refuses_the_same_node_id_after_proof():
    one, two = connector(dataclasses.replace(ALICE, node_id=BOB.node_id)), acceptor()
    exchange(one, two)

    assert two.refusal == Refuse(3, "alice:4150 and bob:4150 have the same node id 2: --node-id")
    assert one.refused_by_peer == two.refusal


def test_handshake_refuses_node_id_of_another_connected_node():
    asked = []
    one, two = connector(), acceptor(other_node=lambda hello: asked.append(hello) or "carol:4150")
    exchange(one, two)

    assert asked == [ALICE]
    assert two.problem == "alice:4150 and carol:4150 have the same node id 1: --node-id"


def test_handshake_ends_when_another_node_has_address():
    one, two = connector(expected=b"c" * 16), acceptor()
    sent = exchange(one, two)

    assert [type(frame) for frame in sent] == [Hello, Hello]
    assert one.problem == (
        f"node {'63' * 16} was expected at this address, node {BOB.identity.hex()} has answered"
    )
    assert one.refusal is None


def test_handshake_refuses_another_node_with_the_same_identity():
    one, two = connector(dataclasses.replace(ALICE, identity=BOB.identity)), acceptor()
    exchange(one, two)

    assert two.refusal.code == Refuse.TWO_NODES_WITH_ONE_IDENTITY
    assert "nsqd-data new-identity" in one.problem


def test_handshake_refuses_earlier_incarnation():
    known = Incarnations()
    later = dataclasses.replace(ALICE, incarnation=8, token=b"C" * 16, previous_token=ALICE.token)
    for me in (ALICE, later):
        exchange(connector(me), acceptor(known=known))
    one, two = connector(), acceptor(known=known)
    exchange(one, two)

    assert two.refusal.code == Refuse.EARLIER_INCARNATION
    assert one.problem == (f"start 7 of node {ALICE.identity.hex()} is refused: its start 8 was here before")


def test_handshake_of_connector_checks_incarnation():
    known = Incarnations()
    known.check(dataclasses.replace(BOB, incarnation=9))
    one, two = connector(known=known), acceptor()
    exchange(one, two)

    assert one.refusal.code == Refuse.EARLIER_INCARNATION
    assert two.refused_by_peer == one.refusal


# --- frames that do not belong there ---


@pytest.mark.parametrize(
    "frames", [[Ping()], [StartTls()], [Proof(bytes(32))], [ALICE, ALICE], [ALICE, Ping()]]
)
def test_handshake_refuses_frames_out_of_order(frames):
    two = acceptor()
    sent = [two.take(frame) for frame in frames]

    assert [one.code for one in sent[-1]] == [Refuse.BAD_FRAME]
    assert two.take(ALICE) == []


def test_handshake_refuses_frame_after_its_end():
    one, two = connector(), acceptor()
    exchange(one, two)

    assert [each.code for each in two.take(Ping())] == [Refuse.BAD_FRAME]
    assert not two.done


def test_handshake_cleans_sentence_of_stranger():
    one = connector()
    one.first_frames()

    assert one.take(Refuse(200, "a\n2026 forged\x1b[31m" + "x" * 2000)) == []
    assert one.problem == one.refused_by_peer.sentence
    assert one.problem.startswith("a?2026 forged?[31mxxx")
    assert len(one.problem) == 300
    assert one.refusal is None


# --- incarnations ---


def start(incarnation, token, previous):
    return dataclasses.replace(ALICE, incarnation=incarnation, token=token * 16, previous_token=previous * 16)


FIRST = start(7, b"A", b"@")


@pytest.mark.parametrize(
    ("later", "code"),
    [
        (FIRST, None),
        (start(8, b"B", b"A"), None),
        (start(9, b"C", b"?"), None),
        (start(6, b"@", b"?"), Refuse.EARLIER_INCARNATION),
        (start(7, b"B", b"@"), Refuse.TWO_NODES_WITH_ONE_IDENTITY),
        (start(8, b"B", b"?"), Refuse.TWO_NODES_WITH_ONE_IDENTITY),
        (start(9, b"A", b"?"), Refuse.TWO_NODES_WITH_ONE_IDENTITY),
    ],
)
def test_incarnations_tell_restart_from_a_second_node(later, code):
    known = Incarnations()
    assert known.check(FIRST) is None
    refusal = known.check(later)

    assert (None if refusal is None else refusal.code) == code
    # A refused start is not remembered.
    assert known.check(later if code is None else FIRST) is None
