"""The publishes of a producer that wait: for a connection, or because their topic is full."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from nsqclient._errors import ConnectionLostError
from nsqclient._requests import Publish
from nsqclient._tasks import Tasks

log = logging.getLogger("nsqclient")

# Each offer that is refused costs a connection, so the pause before the next ones doubles up to the last.
FIRST_PAUSE_SECONDS: Final = 0.1
LAST_PAUSE_SECONDS: Final = 2.0


class Backlog:
    """A queue that knows how many messages and bytes are in it. Pure: time is an argument."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._publishes: deque[Publish] = deque()
        self.messages = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._publishes)

    def __iter__(self) -> Iterator[Publish]:
        return iter(self._publishes)

    @property
    def room(self) -> tuple[int, int]:
        """How many messages and bytes it takes."""
        return max(0, self._max_messages - self.messages), max(0, self._max_bytes - self.bytes)

    @property
    def has_room(self) -> bool:
        """Whether a new publish may be added; publishes lost on a connection are added in any case."""
        return self.messages < self._max_messages and self.bytes < self._max_bytes

    def append(self, publish: Publish) -> None:
        self._publishes.append(publish)
        self.messages += publish.count
        self.bytes += publish.size

    def popleft(self) -> Publish:
        publish = self._publishes.popleft()
        self.messages -= publish.count
        self.bytes -= publish.size
        return publish

    def tried(self, error: Exception) -> None:
        """Note for every publish that it could not be sent because of *error*."""
        for publish in self._publishes:
            publish.tries += 1
            publish.error = error

    def fail(self, error: Exception) -> None:
        while self._publishes:
            self.popleft().fail(error)

    def give_up(self, max_tries: int, later: float) -> bool:
        """Fail the publishes tried often enough that have no time left; returns whether others must wait."""
        publishes, self._publishes = self._publishes, deque()
        self.messages = self.bytes = 0
        exhausted = False
        for publish in publishes:
            if publish.is_settled:
                continue
            if publish.tries >= max_tries:
                if publish.give_up_at is None or later > publish.give_up_at:
                    publish.fail(publish.error or ConnectionLostError("no nsqd is known"))
                    continue
                publish.tries = 0
                exhausted = True
            self.append(publish)
        return exhausted


class FullTopics:
    """What waits here holds up no publish to another topic; *offer* takes a publish that is tried again."""

    def __init__(
        self, tasks: Tasks, offer: Callable[[Publish], None], *, max_messages: int, max_bytes: int
    ) -> None:
        self._tasks = tasks
        self._offer = offer
        self.refused = Backlog(max_messages, max_bytes)
        self._pause = FIRST_PAUSE_SECONDS
        self._offering: asyncio.Task[None] | None = None

    def keep(self, publish: Publish, error: Exception, max_tries: int) -> None:
        """Keep a publish for the next offer; it fails when there is no room or no time left for that."""
        if not self.refused.has_room:
            publish.fail(error)
            return
        self.refused.append(publish)
        self.refused.give_up(max_tries, asyncio.get_running_loop().time() + self._pause)
        if self._offering is None or self._offering.done():
            log.warning("%s: publishes to it are tried again, those to other topics go on", error)
            self._offering = self._tasks.spawn(self._offer_again(), "producer full topics")

    async def _offer_again(self) -> None:
        """Offer all again after each pause, until one has passed in which nothing was refused."""
        while True:
            await asyncio.sleep(self._pause)
            if not self.refused:
                self._pause = FIRST_PAUSE_SECONDS
                return
            self._pause = min(self._pause * 2, LAST_PAUSE_SECONDS)
            while self.refused:
                self._offer(self.refused.popleft())
