"""What ``/messages`` of an nsqd answers; PURE."""

import msgspec


class ListedMessage(msgspec.Struct, frozen=True):
    """One message as ``/messages`` lists it; what stands on a channel only where one was named."""

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
    """A part of the log in which there is nothing, and why."""

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
