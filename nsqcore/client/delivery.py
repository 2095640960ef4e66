"""A message in the hands of a handler, with the ways to answer it."""

from enum import Enum, auto
from typing import Protocol


class Outcome(Enum):
    """What an answer says about the handler."""

    FINISHED = auto()
    REQUEUED = auto()  # put off on purpose: the handler is well
    FAILED = auto()  # the consumer is to slow down


class Source(Protocol):
    """Where a message came from and where its answer goes."""

    @property
    def address(self) -> str: ...

    @property
    def is_closed(self) -> bool: ...

    def answer(self, command: bytes, outcome: Outcome) -> None:
        """Send the one answer to a message."""

    def touch(self, delivery: "Delivery") -> None:
        """Ask for more time."""

    def default_delay(self, delivery: "Delivery") -> float:
        """The seconds after which a message that failed as often as this one comes again."""


class Delivery:
    """One message on one connection; it can be answered once, by the handler or by the consumer after it."""

    __slots__ = ("_source", "answered", "attempts", "body", "id", "received_at", "timestamp_ns")

    def __init__(
        self,
        timestamp_ns: int,
        attempts: int,
        message_id: bytes,
        body: bytes,
        source: Source,
        received_at: float,
    ) -> None:
        self.timestamp_ns = timestamp_ns  # when it was published, since 1970
        self.attempts = attempts  # 1 for the first delivery
        self.id = message_id
        self.body = body
        self._source = source
        self.received_at = received_at  # event loop time
        self.answered = False

    def __repr__(self) -> str:
        return f"<Delivery {self.id.decode(errors='replace')} attempt {self.attempts} from {self.nsqd}>"

    @property
    def nsqd(self) -> str:
        """The address of the nsqd it came from."""
        return self._source.address

    @property
    def is_lost(self) -> bool:
        """Whether no answer can reach nsqd any more; it delivers the message again."""
        return self._source.is_closed

    def finish(self) -> None:
        """Done; nsqd forgets it."""
        if self.answered:
            raise RuntimeError(f"{self!r} was answered before")
        self.answered = True
        self._source.answer(b"FIN %b\n" % self.id, Outcome.FINISHED)

    def requeue(self, delay: float | None = 0, *, backoff: bool = False) -> None:
        """Not done; it is delivered again after *delay* seconds, and with backoff the consumer slows down.

        None as delay is the one a failing handler gets: ``default_requeue_delay`` for each attempt so far,
        ``max_requeue_delay`` at most.
        """
        if self.answered:
            raise RuntimeError(f"{self!r} was answered before")
        seconds = self._source.default_delay(self) if delay is None else delay
        if seconds < 0:
            raise ValueError(f"delay {seconds:g} is negative")
        self.answered = True
        command = b"REQ %b %d\n" % (self.id, round(seconds * 1000))
        self._source.answer(command, Outcome.FAILED if backoff else Outcome.REQUEUED)

    def touch(self) -> None:
        """Still working; the message time-out starts from now."""
        if not self.answered:
            self._source.touch(self)
