"""The handshake of two nodes: the states of one side until both have proved their membership. Pure.

The connector sends its handshake first, then the acceptor. The connector proves first, so a stranger never
sees a proof of the acceptor. Before that proof, the acceptor refuses for two reasons only: the versions, and
the membership. It stores nothing of a stranger but this object.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Final

from nsqd.replication.frames import AnyFrame, Hello, Proof, Refuse
from nsqd.replication.framing import encode

MIN_SECRET_BYTES: Final = 32
CONNECTOR: Final = b"connector"
ACCEPTOR: Final = b"acceptor"
_CONTEXT: Final = b"nsqd replication 2"
_LENGTH: Final = struct.Struct("<I")


def parse_secrets(content: bytes) -> tuple[bytes, ...]:
    """The secrets in a file, one in each line. The first one proves, all are accepted.

    Raises ValueError with a sentence that contains no part of a secret.
    """
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        secret = line.strip()
        if not secret:
            continue
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"line {number} has {len(secret)} bytes, a secret has at least {MIN_SECRET_BYTES}"
            )
        found.append(secret)
    if not found:
        raise ValueError("it has no secret")
    return tuple(found)


def proof(
    secret: bytes, role: bytes, connector_hello: bytes, acceptor_hello: bytes, certificate_hash: bytes
) -> bytes:
    """The proof of the node in that role.

    The handshake frames are whole. *certificate_hash* is the SHA-256 of the server's certificate, or nothing
    without TLS.
    """
    # Lengths make each part unambiguous: no byte can move from one part to the next.
    parts = (_CONTEXT, role, connector_hello, acceptor_hello, certificate_hash)
    message = b"".join([_LENGTH.pack(len(part)) + part for part in parts])
    return hmac.digest(secret, message, hashlib.sha256)


# The FrameReader has this limit until the handshake is done: no stranger makes a node store more bytes.
MAX_HANDSHAKE_FRAME: Final = 4096
# A sentence of a peer, which may be a stranger, is cut in the log after so many characters.
_MAX_SENTENCE: Final = 300


class Incarnations:
    """The last start of each node that has proved its membership to this process."""

    def __init__(self) -> None:
        # The incarnation and its token.
        self._last: dict[bytes, tuple[int, bytes]] = {}

    def check(self, hello: Hello) -> Refuse | None:
        """Why that start of the node is refused. A later start is remembered.

        Two processes with one identity have different tokens of their starts: each start names the
        token of the start before.
        """
        new, last = (hello.incarnation, hello.token), self._last.get(hello.identity)
        if last is not None and new != last:
            if new[0] < last[0]:
                return Refuse(
                    Refuse.EARLIER_INCARNATION,
                    f"start {new[0]} of node {hello.identity.hex()} is refused:"
                    f" its start {last[0]} was here before",
                )
            follows = new[0] > last[0] + 1 or (new[0] == last[0] + 1 and hello.previous_token == last[1])
            if not follows or new[1] == last[1]:
                return _two_nodes(hello)
        self._last[hello.identity] = new
        return None


def _two_nodes(hello: Hello) -> Refuse:
    return Refuse(
        Refuse.TWO_NODES_WITH_ONE_IDENTITY,
        f"two nodes have the identity {hello.identity.hex()}: one data path is a snapshot of the other;"
        " run nsqd-data new-identity on one of them",
    )


def _no_other_node(_hello: Hello) -> str:
    return ""


class Handshake:
    """One side of a handshake: it takes frames and returns the frames to send.

    It ends *done*, or with a `problem`. A refusal by the peer is not proved: it says why there is no
    connection, and nothing else follows from it.
    """

    def __init__(
        self,
        role: bytes,
        me: Hello,
        secrets: Callable[[], tuple[bytes, ...]],
        known: Incarnations,
        expected: bytes = b"",
        certificate_hash: bytes = b"",
        other_node: Callable[[Hello], str] = _no_other_node,
    ) -> None:
        """*role* is CONNECTOR or ACCEPTOR. *me* has a nonce that is drawn for this connection.

        *expected* is the identity of the wanted node; empty for a named address before its first
        handshake. *other_node* returns the address of another connected node with the node id of the peer,
        or an empty text.
        """
        self._role = role
        self._me = me
        self._secrets = secrets()
        self._known = known
        self._expected = expected
        self._certificate_hash = certificate_hash
        self._other_node = other_node
        # Handshake frame of the connector, then that of the acceptor.
        self._hellos = (b"", b"")
        # The kind of frame that comes next; None when none does.
        self._state: type[Hello | Proof] | None = Hello
        # The handshake frame of the peer. It is proved only when the handshake is done.
        self.peer: Hello | None = None
        # The highest version and all features that both sides have.
        self.version = 0
        self.features = 0
        # Why the handshake failed, in one sentence; empty otherwise.
        self.problem = ""
        self.refusal: Refuse | None = None
        self.refused_by_peer: Refuse | None = None

    @property
    def done(self) -> bool:
        """Whether both sides have proved; every other frame may follow."""
        return self._state is None and not self.problem

    def first_frames(self) -> list[AnyFrame]:
        """The frames to send first: the handshake frame of a connector."""
        if self._role == ACCEPTOR:
            return []
        if not self._secrets:
            return self._refuse_without_secret()
        return [self._me]

    def take(self, frame: AnyFrame) -> list[AnyFrame]:
        """Take the next frame of the peer; returns the frames to send."""
        if self.problem:
            return []
        if isinstance(frame, Refuse):
            return self._refused(frame)
        if isinstance(frame, Hello) and self._state is Hello:
            return self._take_hello(frame)
        if isinstance(frame, Proof) and self._state is Proof and self.peer is not None:
            return self._take_proof(frame, self.peer)
        return self._refuse(
            Refuse.BAD_FRAME, f"no {type(frame).__name__} belongs at this point of a handshake"
        )

    # --- the two frames ---

    def _take_hello(self, peer: Hello) -> list[AnyFrame]:
        me = self._me
        if not self._secrets:
            return self._refuse_without_secret()
        self.version = min(me.max_version, peer.max_version)
        if self.version < max(me.min_version, peer.min_version):
            return self._refuse(
                Refuse.VERSION,
                f"the {self._role.decode()} speaks versions {me.min_version} to {me.max_version},"
                f" the {self._peer_role.decode()} {peer.min_version} to {peer.max_version}",
            )
        self.features = me.features & peer.features
        self.peer = peer
        self._state = Proof
        # A handshake frame has one form as bytes, so encoding the peer's frame gives the received bytes.
        mine, theirs = encode(me), encode(peer)
        if self._role == ACCEPTOR:
            self._hellos = (theirs, mine)
            return [me]
        self._hellos = (mine, theirs)
        self.problem = self._wrong_address(peer)
        if self.problem:
            self._state = None
            return []
        return [self._proof()]

    def _wrong_address(self, peer: Hello) -> str:
        """Why the address is not that of the wanted node. The node there is not at fault, nor refused."""
        if peer.identity == self._me.identity and peer.token == self._me.token:
            return "this address is that of the node itself"
        if self._expected and peer.identity != self._expected:
            return (
                f"node {self._expected.hex()} was expected at this address,"
                f" node {peer.identity.hex()} has answered"
            )
        return ""

    def _take_proof(self, frame: Proof, peer: Hello) -> list[AnyFrame]:
        # The time does not depend on which secret matches, or on how much of it does.
        matches = [
            hmac.compare_digest(self._proof_by(one, self._peer_role), frame.mac) for one in self._secrets
        ]
        if not any(matches):
            return self._refuse(
                Refuse.NOT_A_MEMBER,
                f"the {self._peer_role.decode()} is not a member: its proof fits no secret in the"
                f" --cluster-secret-file of the {self._role.decode()}, or TLS ends between the two",
            )
        refusal = self._refusal_of_member(peer)
        if refusal is not None:
            return self._refuse(refusal.code, refusal.sentence)
        self._state = None
        return [self._proof()] if self._role == ACCEPTOR else []

    def _refusal_of_member(self, peer: Hello) -> Refuse | None:
        """Why a peer is refused that has proved its membership."""
        me = self._me
        if peer.identity == me.identity:
            return _two_nodes(peer)
        if peer.node_id == me.node_id:
            return _same_node_id(peer, me.address)
        other = self._other_node(peer)
        if other:
            return _same_node_id(peer, other)
        return self._known.check(peer)

    def _proof(self) -> Proof:
        return Proof(self._proof_by(self._secrets[0], self._role))

    def _proof_by(self, secret: bytes, role: bytes) -> bytes:
        return proof(secret, role, *self._hellos, self._certificate_hash)

    @property
    def _peer_role(self) -> bytes:
        return CONNECTOR if self._role == ACCEPTOR else ACCEPTOR

    # --- the end without success ---

    def _refuse(self, code: int, sentence: str) -> list[AnyFrame]:
        self._state = None
        self.problem = sentence
        self.refusal = Refuse(code, sentence)
        return [self.refusal]

    def _refuse_without_secret(self) -> list[AnyFrame]:
        return self._refuse(
            Refuse.NOT_A_MEMBER,
            f"no cluster secret is set at the {self._role.decode()}: --cluster-secret-file",
        )

    def _refused(self, refusal: Refuse) -> list[AnyFrame]:
        self._state = None
        # A stranger may have sent it: no control character gets into the log.
        sentence = "".join(one if one.isprintable() else "?" for one in refusal.sentence[:_MAX_SENTENCE])
        self.refused_by_peer = Refuse(refusal.code, sentence or "no reason was given")
        self.problem = self.refused_by_peer.sentence
        return []


def _same_node_id(peer: Hello, other: str) -> Refuse:
    return Refuse(
        Refuse.SAME_NODE_ID, f"{peer.address} and {other} have the same node id {peer.node_id}: --node-id"
    )
