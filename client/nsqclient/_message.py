"""A message as a handler gets it, with the ways to answer it."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum, auto
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Generic, Protocol, cast

from nsqclient.wire.durations import MAX_DURATION, SECOND, seconds_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know its default; nothing is imported when it runs

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

_MAX_SECONDS: Final = MAX_DURATION / SECOND
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Outcome(Enum):
    """What an answer says about the handler."""

    FINISHED = auto()
    GIVEN_UP = auto()  # finished without a handler, which says nothing
    DEAD = auto()  # finished after it failed for the last time: the consumer is to slow down
    REQUEUED = auto()  # requeued on purpose: the handler works
    FAILED = auto()  # requeued after it failed: the consumer is to slow down


class RetryPolicy(Protocol):
    """Decides about a message whose handler fails; ``Retry`` is one."""

    @property
    def delay(self) -> Callable[[int], float]:
        """From the number of deliveries so far to the seconds before the next one."""

    @property
    def backoff(self) -> bool:
        """Whether the consumer slows down."""


class Source(Protocol):
    """Where a message came from and where its answer goes."""

    @property
    def address(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def channel(self) -> str: ...

    @property
    def is_closed(self) -> bool: ...

    def answer(self, command: bytes, outcome: Outcome, received_at: float) -> None:
        """Send the one answer to a message, which was received at this event loop time."""

    def touch(self, message_id: bytes) -> None:
        """Ask for more time."""

    @property
    def retry(self) -> RetryPolicy: ...

    def handling_failed(self, message: "Message[object]", error: BaseException | None) -> None:
        """The handler of this message has failed: requeue, discard or dead-letter the message.

        The *error* is logged, unless it is None because a caller has logged it.
        """


class Message(Generic[T]):
    """One delivered message; it can be answered once, by the handler or by the consumer after it."""

    __slots__ = (
        "_headers",
        "_source",
        "_value",
        "answered",
        "attempts",
        "body",
        "id",
        "received_at",
        "timestamp_ns",
    )

    # Set only when they exist: most messages have neither.
    _headers: Mapping[str, str]
    _value: T

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
        return f"<Message {self.id.decode(errors='replace')} attempt {self.attempts} from {self.nsqd}>"

    @property
    def value(self) -> T:
        """What the consumer's ``decode`` made from the body; without ``decode`` the body itself."""
        try:
            return self._value
        except AttributeError:
            return cast("T", self.body)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers published with the body; empty where nsqd or the publisher do not support them."""
        try:
            return self._headers
        except AttributeError:
            return _NO_HEADERS

    @property
    def nsqd(self) -> str:
        """The address of the nsqd it came from."""
        return self._source.address

    @property
    def topic(self) -> str:
        return self._source.topic

    @property
    def channel(self) -> str:
        return self._source.channel

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, so that no answer reaches nsqd, which delivers it again."""
        return self._source.is_closed

    def finish(self) -> None:
        """Answer that the message is done (FIN). Raises RuntimeError when it was answered before."""
        if self.answered:
            raise RuntimeError(f"{self!r} was answered before")
        self.answered = True
        self._source.answer(b"FIN %b\n" % self.id, Outcome.FINISHED, self.received_at)

    def _end(self, outcome: Outcome) -> None:
        """Finish the message though no handler has handled it."""
        self.answered = True
        self._source.answer(b"FIN %b\n" % self.id, outcome, self.received_at)

    def requeue(self, delay: float | timedelta | None = None, *, backoff: bool | None = None) -> None:
        """Have the message delivered again after *delay* seconds (REQ).

        Raises RuntimeError when it was answered before, and ValueError when *delay* is negative or endless.

        Without *delay* the message is treated as after a failing handler: the consumer's ``retry`` says how
        long it waits, and whether the consumer backs off. With *delay* it does not. *backoff* overrides both.
        ``requeue(0)`` has the message delivered again without a delay.
        """
        if self.answered:
            raise RuntimeError(f"{self!r} was answered before")
        retry = self._source.retry
        seconds = retry.delay(self.attempts) if delay is None else seconds_of(delay)
        if seconds < 0:
            raise ValueError(f"delay {seconds:g} is negative")
        if not seconds <= _MAX_SECONDS:  # also nan
            raise ValueError(f"delay {seconds:g} is no duration")
        command = b"REQ %b %d\n" % (self.id, round(seconds * 1000))
        self.answered = True  # only now, because a message whose requeue raised can still be answered
        failed = delay is None and retry.backoff if backoff is None else backoff
        self._source.answer(command, Outcome.FAILED if failed else Outcome.REQUEUED, self.received_at)

    def touch(self) -> None:
        """Ask nsqd for more time: the message timeout starts again from now."""
        if not self.answered:
            self._source.touch(self.id)

    def process(self, *, reraise: bool = False) -> "Processing[T]":
        """Answer the message at the end of a ``with`` or ``async with`` block.

        The message is finished; after an exception it is treated as after a failing handler. The exception is
        logged and goes no further, so that a loop over messages continues; with *reraise* it is raised again.
        """
        return Processing(self, reraise)


class Processing(Generic[T]):
    """The block in which a message is handled."""

    __slots__ = ("_message", "_reraise")

    def __init__(self, message: Message[T], reraise: bool) -> None:
        self._message = message
        self._reraise = reraise

    def __enter__(self) -> Message[T]:
        return self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        message = self._message
        if error is None:
            if not message.answered:
                message.finish()
            return False
        if isinstance(error, Exception):
            message._source.handling_failed(cast("Message[object]", message), error)
            return not self._reraise
        if not message.answered:
            message.requeue(0)  # the program ends, or the task was cancelled: the handler did not fail
        return False

    async def __aenter__(self) -> Message[T]:
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, trace)
