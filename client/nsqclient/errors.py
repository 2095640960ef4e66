"""What goes wrong on the way to nsqd; what nsqd itself refuses is a ``ProtocolError`` with its code.

All of these are ``ConnectionError`` and so ``OSError``, as are the errors of a name that does not resolve
or a port nobody listens on: ``except OSError`` catches everything that is not a refusal.
"""


class ConnectionLostError(ConnectionError):
    """The connection ended, so the answer to what was sent will never come."""


class HandshakeError(ConnectionError):
    """Something answered, but it does not speak like nsqd, or does not grant what is needed."""


class WrongPortError(HandshakeError):
    """The address is the port of another protocol; the text says which."""


class AuthError(HandshakeError):
    """nsqd wants to know who we are, and we have no secret or not the right one."""


class UnsupportedError(ConnectionError):
    """What was asked for does not exist on this nsqd, or was not agreed on with it; the text says which."""


class ClosedError(ConnectionError):
    """The producer or consumer was closed by its owner."""
