"""The errors of the NSQ protocols: the base of all, the answer to a refused command, and its codes."""

from typing import Final

E_BAD_PROTOCOL: Final = "E_BAD_PROTOCOL"
E_INVALID: Final = "E_INVALID"
E_BAD_BODY: Final = "E_BAD_BODY"
E_BAD_TOPIC: Final = "E_BAD_TOPIC"
E_BAD_CHANNEL: Final = "E_BAD_CHANNEL"
E_BAD_MESSAGE: Final = "E_BAD_MESSAGE"
# From youzan's NSQ, like headers.
E_INVALID_JSON_HEADER: Final = "E_INVALID_JSON_HEADER"
E_IDENTIFY_FAILED: Final = "E_IDENTIFY_FAILED"
E_AUTH_DISABLED: Final = "E_AUTH_DISABLED"
E_AUTH_FAILED: Final = "E_AUTH_FAILED"
E_AUTH_FIRST: Final = "E_AUTH_FIRST"
E_UNAUTHORIZED: Final = "E_UNAUTHORIZED"
E_SUB_FAILED: Final = "E_SUB_FAILED"
E_PUB_FAILED: Final = "E_PUB_FAILED"
E_MPUB_FAILED: Final = "E_MPUB_FAILED"
E_DPUB_FAILED: Final = "E_DPUB_FAILED"
E_FIN_FAILED: Final = "E_FIN_FAILED"
E_REQ_FAILED: Final = "E_REQ_FAILED"
E_TOUCH_FAILED: Final = "E_TOUCH_FAILED"


class NSQError(Exception):
    """The base of all errors of the client."""


class ProtocolError(NSQError):
    """The answer to a command that cannot be executed.

    ``code`` is the machine-readable word, ``text`` the sentence after it (raw bytes of the peer may be
    echoed in it, as latin-1), ``fatal`` whether the connection closes after the error was sent.
    """

    def __init__(self, code: str, text: str = "", *, fatal: bool = True) -> None:
        super().__init__(f"{code} {text}" if text else code)
        self.code = code
        self.text = text
        self.fatal = fatal

    def payload(self) -> bytes:
        """The bytes after the frame header: ``CODE sentence``."""
        return str(self).encode("utf-8", "surrogateescape")
