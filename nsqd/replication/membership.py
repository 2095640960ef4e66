"""Membership: the proof that a node knows the cluster secret, which is never sent. Pure.

A proof covers both hellos. They have the nonces of this connection, the identities and the versions, so a
proof is worth nothing on another connection. The role prevents reflection. The hash of the server's
certificate binds the proof to the TLS channel (`tls-server-end-point` of RFC 5929).
"""

import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import Final

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

    The hellos are whole frames. *certificate_hash* is the SHA-256 of the server's certificate, or nothing
    without TLS.
    """
    # Lengths make each part unambiguous: no byte can move from one part to the next.
    parts = (_CONTEXT, role, connector_hello, acceptor_hello, certificate_hash)
    message = b"".join([_LENGTH.pack(len(part)) + part for part in parts])
    return hmac.digest(secret, message, hashlib.sha256)


def is_proof(
    secrets: Iterable[bytes],
    role: bytes,
    connector_hello: bytes,
    acceptor_hello: bytes,
    certificate_hash: bytes,
    mac: bytes,
) -> bool:
    """Whether *mac* is the proof of the node in that role, by any of the secrets.

    The time does not depend on which secret matches, or on how much of it does.
    """
    matches = False
    for secret in secrets:
        expected = proof(secret, role, connector_hello, acceptor_hello, certificate_hash)
        matches |= hmac.compare_digest(expected, mac)
    return matches
