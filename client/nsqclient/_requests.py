"""Commands that nsqd answers, and the futures of their answers."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeAlias, TypeVar

from nsqclient._errors import UnsupportedError
from nsqclient._middleware import Publication
from nsqclient._threads import PublishOutcome
from nsqclient.wire import commands
from nsqclient.wire.durations import seconds_of

Body: TypeAlias = bytes | bytearray | memoryview


Confirmation: TypeAlias = asyncio.Future[bytes]
Answer: TypeAlias = Confirmation | PublishOutcome

# How many messages are joined into one MPUB: enough to make each cheap, far below the limits of any nsqd.
MAX_MESSAGES: Final = 500
_MAX_BYTES: Final = 256 * 1024

# Publishes whose messages are longer on average are written with writelines(), because joining copies them.
_BULKY_BYTES: Final = 4096


class PendingCommand:
    """A command, and the futures that end with its answer."""

    __slots__ = ("answers", "command", "count", "size")

    def __init__(self, command: bytes, answers: list[Answer], count: int = 1) -> None:
        self.command = command
        self.answers = answers
        self.count = count  # how many messages are answered together
        self.size = len(command)

    @property
    def is_settled(self) -> bool:
        """Whether all answers are done, so that no caller waits any more."""
        return all(answer.done() for answer in self.answers)

    def succeed(self, payload: bytes) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_result(payload)

    def fail(self, error: Exception) -> None:
        """Fail each future with a copy of *error*, because raising an error adds to its traceback."""
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(copy_of(error))

    def fail_quietly(self, error: Exception) -> None:
        """Like fail(), but asyncio logs nothing when a caller has stopped waiting for the error."""
        self.fail(error)
        for answer in self.answers:
            if not answer.cancelled():
                answer.exception()


class Publish(PendingCommand):
    """One or more messages of which nsqd takes all or none; it can be sent again on another connection.

    Single messages for one topic that are published at the same moment share one, which is sent as MPUB.
    """

    __slots__ = ("bodies", "error", "give_up_at", "has_headers", "rediscovered", "topic", "tries", "was_lost")

    def __init__(
        self,
        command: bytes,
        answers: list[Answer],
        topic: str = "",
        count: int = 1,
        *,
        has_headers: bool = False,
    ) -> None:
        """An empty *topic* is for a complete command that no message can join."""
        super().__init__(command, answers, count)
        self.topic = topic
        self.bodies: list[bytes] = []
        self.tries = 0
        self.was_lost = False  # with a connection, before it was answered
        self.error: Exception | None = None
        self.give_up_at: float | None = None
        self.rediscovered = False  # whether nsqlookupd was queried before it fails
        self.has_headers = has_headers

    @classmethod
    def of(cls, topic: str, body: bytes, answer: Answer) -> "Publish":
        """A publish of one message, which other messages may join until it is sent."""
        commands.check_topic(topic)
        one = cls(b"", [answer], topic)
        one.bodies.append(body)
        one.size = len(body)
        return one

    @property
    def is_bulky(self) -> bool:
        return self.size > _BULKY_BYTES * self.count

    def has_room(self, topic: str) -> bool:
        return self.topic == topic and self.count < MAX_MESSAGES and self.size < _MAX_BYTES

    def join(self, body: bytes, answer: Answer) -> None:
        self.bodies.append(body)
        self.answers.append(answer)
        self.count += 1
        self.size += len(body)

    def parts(self) -> list[bytes]:
        """The bytes to send, as chunks; after this no message may join."""
        if self.command:
            return [self.command]
        if self.count == 1:
            return commands.pub_parts(self.topic, self.bodies[0])
        return commands.mpub_parts(self.topic, self.bodies)

    def split(self) -> "list[Publish]":
        """One publish for each message, to find the one that nsqd refuses; itself when it cannot be split."""
        if self.command or self.count < 2:
            return [self]
        parts = []
        for body, answer in zip(self.bodies, self.answers, strict=True):
            one = Publish(commands.pub(self.topic, body), [answer])
            one.give_up_at = self.give_up_at
            one.rediscovered = self.rediscovered
            one.was_lost = self.was_lost
            parts.append(one)
        return parts


C = TypeVar("C", bound=PendingCommand)


def copy_of(error: Exception) -> Exception:
    """A copy of an error, without its traceback."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin


def awaitable(answer: "Answer | Future[None]") -> asyncio.Future[Any]:
    """The answer as a future of this event loop; its error is reported only to the publisher."""
    if isinstance(answer, asyncio.Future):
        return answer
    waited = asyncio.wrap_future(answer)
    waited.add_done_callback(_retrieved)
    return waited


def _retrieved(waited: asyncio.Future[Any]) -> None:
    """Retrieve the error, which the publisher gets elsewhere, so that asyncio does not log it as unseen."""
    if not waited.cancelled():
        waited.exception()


# A connection is full from so many bytes under way: enough to keep it busy in bounded memory.
MAX_UNDER_WAY_BYTES: Final = 4 * 1024 * 1024


class RequestQueue(Generic[C]):
    """Requests in their order, with the number of their messages and bytes; new ones wait when it is full."""

    def __init__(self, max_messages: int = 10_000, max_bytes: int = MAX_UNDER_WAY_BYTES) -> None:
        self._requests: deque[C] = deque()
        self._max_bytes = max_bytes
        self.max_messages = max_messages
        self.messages = 0  # these two grow also when a message joins a publish that is in the queue
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[C]:
        return iter(self._requests)

    @property
    def is_full(self) -> bool:
        return self.messages >= self.max_messages or self.bytes >= self._max_bytes

    @property
    def room(self) -> tuple[int, int]:
        """How many messages and bytes fit before it is full."""
        return max(0, self.max_messages - self.messages), max(0, self._max_bytes - self.bytes)

    @property
    def answers(self) -> list[Answer]:
        """The answers that a caller still waits for."""
        return [answer for request in self._requests for answer in request.answers if not answer.done()]

    @property
    def first(self) -> C:
        return self._requests[0]

    def append(self, request: C) -> None:
        """Add a request; one that was lost on a connection is added in any case."""
        self._requests.append(request)
        self.messages += request.count
        self.bytes += request.size

    def popleft(self) -> C:
        request = self._requests.popleft()
        self.messages -= request.count
        self.bytes -= request.size
        return request

    def clear(self) -> list[C]:
        """Remove and return all requests."""
        requests = list(self._requests)
        self._requests.clear()
        self.messages = self.bytes = 0
        return requests


def body_bytes(body: object) -> bytes:
    """A body as immutable bytes; raises TypeError for other types."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        raise TypeError("a body is bytes, not text: encode it, as in text.encode()")
    raise TypeError(f"a body is bytes, not {type(body).__name__}")


def all_bytes(bodies: Sequence[Body]) -> list[bytes]:
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise TypeError("several bodies are a list of bytes")
    return [body_bytes(body) for body in bodies]


def publish_of(publication: Publication, answer: Confirmation, *, with_headers: bool) -> Publish:
    """The command for a publication; UnsupportedError when it has headers that cannot be sent."""
    topic, bodies, headers = publication.topic, publication.bodies, publication.headers
    if headers and not with_headers:
        raise UnsupportedError("headers are published with Config(headers=True) only")
    if headers and publication.delay:
        raise UnsupportedError("a deferred message cannot have headers")
    if publication.delay:
        delay = seconds_of(publication.delay)
        if delay < 0:
            raise ValueError(f"delay {delay:g} s is negative")
        delay_ms = round(delay * 1000)
        return Publish(commands.dpub(topic, bodies[0], delay_ms), [answer])
    if publication.together:
        command = commands.mpub_ext(topic, bodies, headers) if headers else commands.mpub(topic, bodies)
        return Publish(command, [answer], count=len(bodies), has_headers=bool(headers))
    if headers:
        return Publish(commands.pub_ext(topic, bodies[0], headers), [answer], has_headers=True)
    return Publish(commands.pub(topic, bodies[0]), [answer])
