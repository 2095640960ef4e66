"""The answers of an nsqd to ``/messages``. Pure."""

import msgspec


class ListedMessage(msgspec.Struct, frozen=True):
    """One message as ``/messages`` lists it; the state on a channel is set only when a channel was named."""

    id: str
    sequence: int
    timestamp: int
    time: str
    size: int
    encoding: str
    body: msgspec.Raw
    headers: dict[str, str] = {}
    truncated: bool = False
    state: str = ""
    place: int = 0
    since: str = ""
    until: str = ""
    client: dict[str, str] = {}
    attempts: int = 0


class LogGap(msgspec.Struct, frozen=True):
    """A part of the log without messages, and the reason."""

    start: int
    end: int
    why: str


class ListedMessages(msgspec.Struct, frozen=True):
    """One answer of ``/messages``; the log has ``first <= sequence < end``."""

    messages: list[ListedMessage]
    first: int
    end: int
    next: str | None = None
    more: bool = False
    scanned: int = 0
    gaps: list[LogGap] = []
