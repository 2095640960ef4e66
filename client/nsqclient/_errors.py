"""The errors on the way to nsqd; a refusal by nsqd itself is a ``ProtocolError`` with its code.

All are ``NSQError``. Those of this module are also ``ConnectionError``, and so ``OSError``.
"""

from nsqclient.wire.errors import NSQError
from nsqclient.wire.frames import FrameError


class UnreachableError(NSQError, ConnectionError):
    """No connection could be opened, or no nsqd is known; the text names the address and the reason."""


class ConnectionLostError(NSQError, ConnectionError):
    """The connection ended before the answer, so the outcome of the request is unknown."""


class HandshakeError(NSQError, ConnectionError):
    """The peer answered, but not as nsqd does, or it did not grant what is needed."""


class WrongPortError(HandshakeError):
    """The address is the port of another protocol; the text says which."""


class AuthError(HandshakeError):
    """nsqd requires authentication, and ``auth_secret`` is missing or refused."""


class UnsupportedError(NSQError, ConnectionError):
    """The feature does not exist on this nsqd, or was not negotiated with it; the text says which."""


class ClosedError(NSQError, ConnectionError):
    """The producer or consumer was closed by its owner."""


def stranger(address: str, data: bytes, error: FrameError) -> ConnectionError:
    """The error for such a peer; it names the kind of port when the bytes tell it."""
    if data.startswith(b"HTTP/"):
        return WrongPortError(
            f"{address} answers in HTTP: this is an HTTP port, nsqd's TCP port is 4150 by default"
        )
    if data[4:].startswith(b"E_BAD_PROTOCOL"):
        return WrongPortError(
            f"{address} does not know nsqd's protocol: it seems to be the TCP port of nsqlookupd"
        )
    if data.startswith((b"\x15\x03", b"\x16\x03")):
        return WrongPortError(f"{address} answers in TLS from the first byte: it is no TCP port of nsqd")
    return HandshakeError(f"{address} does not speak the NSQ protocol: {error}")
