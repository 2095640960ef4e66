"""The answers of an nsqd to ``/messages``. Pure."""

import base64

import msgspec

from nsqcore.cluster.numbers import Int64


class ListedMessage(msgspec.Struct, frozen=True):
    """One message as ``/messages`` lists it; the state on a channel is set only when a channel was named."""

    id: str
    sequence: Int64
    timestamp: Int64
    time: str
    size: Int64
    encoding: str
    body: msgspec.Raw
    headers: dict[str, str] = {}
    truncated: bool = False
    state: str = ""
    place: Int64 = 0
    since: str = ""
    until: str = ""
    client: dict[str, str] = {}
    attempts: Int64 = 0

    def __post_init__(self) -> None:
        """Raise ValueError for a body that is not what its encoding says: then the answer is unusable."""
        _ = self.content

    @property
    def content(self) -> bytes:
        """The body. JSON has no blanks between its parts, unless the exact body was requested."""
        if self.encoding == "json":
            # Raises ValueError for what is no UTF-8.
            return bytes(self.body).decode().encode()
        text = msgspec.json.decode(self.body, type=str)
        return base64.b64decode(text, validate=True) if self.encoding == "base64" else text.encode()


class LogGap(msgspec.Struct, frozen=True):
    """A part of the log without messages, and the reason."""

    start: Int64
    end: Int64
    why: str


class ListedMessages(msgspec.Struct, frozen=True):
    """One answer of ``/messages``; the log has ``first <= sequence < end``."""

    messages: list[ListedMessage]
    first: Int64
    end: Int64
    next: str | None = None
    more: bool = False
    scanned: Int64 = 0
    gaps: list[LogGap] = []
