"""What is sent to nsqd and will be answered, with whoever waits for the answer."""

import asyncio
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

from nsqclient.threads import PublishOutcome
from nsqclient.wire import commands

Confirmation: TypeAlias = asyncio.Future[bytes]
Answer: TypeAlias = Confirmation | PublishOutcome

# Messages joined into one MPUB: enough to cost little each, far below what any nsqd takes at once.
MOST_MESSAGES: Final = 500
_MOST_BYTES: Final = 256 * 1024

# Messages that are longer, on average, are handed to the system as they lie there: joining copies them.
_BULKY_BYTES: Final = 4096


class PendingCommand:
    """A command, and the futures that end with its answer."""

    __slots__ = ("answers", "command", "count", "size")

    def __init__(self, command: bytes, answers: list[Answer], count: int = 1) -> None:
        self.command = command
        self.answers = answers
        self.count = count  # of messages, which are answered together
        self.size = len(command)

    @property
    def is_settled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return all(answer.done() for answer in self.answers)

    def succeed(self, payload: bytes) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_result(payload)

    def fail(self, error: Exception) -> None:
        """Each future has an error of its own: a traceback grows where it is raised."""
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(copy_of(error))

    def fail_quietly(self, error: Exception) -> None:
        """As fail(); whoever gave up waiting will not look at the error, and that is no mistake."""
        self.fail(error)
        for answer in self.answers:
            if not answer.cancelled():
                answer.exception()


class Publish(PendingCommand):
    """One or more messages that nsqd takes all or none of; it can be sent again on another connection.

    Messages for one topic that are published one by one in the same moment share one, which is sent as MPUB.
    """

    __slots__ = ("asked", "bodies", "error", "give_up_at", "has_headers", "topic", "tries")

    def __init__(
        self,
        command: bytes,
        answers: list[Answer],
        topic: str = "",
        count: int = 1,
        *,
        has_headers: bool = False,
    ) -> None:
        """An empty *topic* is for a command that is sent as it stands."""
        super().__init__(command, answers, count)
        self.topic = topic
        self.bodies: list[bytes] = []
        self.tries = 0
        self.error: Exception | None = None
        self.give_up_at: float | None = None
        self.asked = False  # nsqlookupd, before it was given up
        self.has_headers = has_headers

    @classmethod
    def of(cls, topic: str, body: bytes, answer: Answer) -> "Publish":
        """A publish of one message that others may join until it is sent."""
        commands.check_topic(topic)
        one = cls(b"", [answer], topic)
        one.bodies.append(body)
        one.size = len(body)
        return one

    @property
    def is_bulky(self) -> bool:
        return self.size > _BULKY_BYTES * self.count

    def has_room(self, topic: str) -> bool:
        return self.topic == topic and self.count < MOST_MESSAGES and self.size < _MOST_BYTES

    def join(self, body: bytes, answer: Answer) -> None:
        self.bodies.append(body)
        self.answers.append(answer)
        self.count += 1
        self.size += len(body)

    def parts(self) -> list[bytes]:
        """The bytes to send, in pieces that are joined with those of others; nobody can join any more."""
        if self.command:
            return [self.command]
        if self.count == 1:
            return commands.pub_parts(self.topic, self.bodies[0])
        return commands.mpub_parts(self.topic, self.bodies)

    def split(self) -> "list[Publish]":
        """Each message by itself, for finding the one that nsqd does not take; itself when it is one."""
        if self.command or self.count < 2:
            return [self]
        parts = []
        for body, answer in zip(self.bodies, self.answers, strict=True):
            one = Publish(commands.pub(self.topic, body), [answer])
            one.give_up_at = self.give_up_at
            one.asked = self.asked
            parts.append(one)
        return parts


def copy_of(error: Exception) -> Exception:
    """The same error once more, without its traceback."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin


def awaitable(answer: "Answer | Future[None]") -> asyncio.Future[Any]:
    """An answer to be waited for on this event loop; whoever published is told the error, nobody else."""
    if isinstance(answer, asyncio.Future):
        return answer
    waited = asyncio.wrap_future(answer)
    waited.add_done_callback(_retrieved)
    return waited


def _retrieved(waited: asyncio.Future[Any]) -> None:
    """Its error was told elsewhere: asyncio would say in the log that nobody has looked at it."""
    if not waited.cancelled():
        waited.exception()
