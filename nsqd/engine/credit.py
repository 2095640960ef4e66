"""One consumer: its credit and its counters."""

from collections.abc import Callable
from typing import Final, Protocol

from nsqd.log.frames import Buffer

# How near a client is to this nsqd.
SAME_ZONE: Final = 0
SAME_REGION: Final = 1
ELSEWHERE: Final = 2


class Sink(Protocol):
    """What the server attaches to a consumer so that it can send to it."""

    def send_messages(self, frames: list[Buffer]) -> None: ...

    def close(self) -> None: ...


class ClosedSink:
    """The sink of a closed connection.

    With the real sink, anything that still refers to the consumer would keep the connection in a reference
    cycle, and Python collects cycles very rarely.
    """

    def send_messages(self, frames: list[Buffer]) -> None:
        pass

    def close(self) -> None:
        pass


CLOSED_SINK: Final = ClosedSink()


class Credit:
    """What one consumer may be sent, and what it did. It is ready while RDY exceeds what it has in flight."""

    __slots__ = (
        "blocked",
        "client",
        "extended",
        "finish_count",
        "in_flight",
        "keep",
        "message_count",
        "msg_timeout_ns",
        "nearness",
        "rdy",
        "requeue_count",
        "sink",
    )

    def __init__(
        self,
        sink: Sink,
        msg_timeout_ns: int,
        keep: Callable[[], bool] | None = None,
        nearness: int = ELSEWHERE,
        *,
        extended: bool = False,
    ) -> None:
        """*keep* draws whether a message passes the sample rate; None when the client takes all.

        An *extended* consumer gets, before each body, the headers of the message or a mark of none.
        """
        self.extended = extended
        self.sink = sink
        # The client's name in dead letters.
        self.client = ""
        self.nearness = nearness
        self.msg_timeout_ns = msg_timeout_ns
        self.keep = keep
        self.rdy = 0
        self.in_flight = 0
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        # The transport has more unsent bytes than its limit; nothing is delivered until they have drained.
        self.blocked = False

    @property
    def credit(self) -> int:
        """How many messages may be sent now."""
        return 0 if self.blocked else self.rdy - self.in_flight
