"""What goes wrong on the way to nsqd; what nsqd itself refuses is a ``ProtocolError`` with its code."""


class ConnectionLostError(ConnectionError):
    """The connection ended, so the answer to what was sent will never come."""


class HandshakeError(ConnectionError):
    """Something answered at this address, but it does not speak like nsqd."""
