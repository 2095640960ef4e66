"""The errors on the way to nsqd; a refusal by nsqd itself is a ``ProtocolError`` with its code.

All of these are ``ConnectionError`` and so ``OSError``, as are the errors of a name that does not resolve
or a port nobody listens on: ``except OSError`` catches everything that is not a refusal.
"""


class ConnectionLostError(ConnectionError):
    """The connection ended, so the answer to what was sent will never come."""


class HandshakeError(ConnectionError):
    """The peer answered, but not as nsqd does, or it did not grant what is needed."""


class WrongPortError(HandshakeError):
    """The address is the port of another protocol; the text says which."""


class AuthError(HandshakeError):
    """nsqd requires authentication, and ``auth_secret`` is missing or refused."""


class UnsupportedError(ConnectionError):
    """The feature does not exist on this nsqd, or was not negotiated with it; the text says which."""


class ClosedError(ConnectionError):
    """The producer or consumer was closed by its owner."""
