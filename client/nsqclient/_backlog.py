"""The backlog of a producer: publishes that wait for a connection or for room in their topic."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from nsqclient._errors import ConnectionLostError
from nsqclient._requests import Publish, RequestQueue
from nsqclient._tasks import Tasks

log = logging.getLogger("nsqclient")

# Each refused publish costs a connection. So the pause before the next attempt doubles up to the last one.
FIRST_PAUSE_SECONDS: Final = 0.1
LAST_PAUSE_SECONDS: Final = 2.0


class Backlog(RequestQueue[Publish]):
    """Pending publishes. Each fails after its last attempt. Pure: time is an argument."""

    def tried(self, error: Exception) -> None:
        """Note for every publish that it could not be sent because of *error*."""
        for publish in self:
            publish.tries += 1
            publish.error = error

    def fail(self, error: Exception) -> None:
        for publish in self.clear():
            publish.fail(error)

    def fail_expired(self, max_tries: int, later: float) -> bool:
        """Fail the publishes without attempts and time left; return whether others must wait."""
        exhausted = False
        for publish in self.clear():
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
    """Pending publishes block no publish to another topic; *offer* takes a publish for the next attempt."""

    def __init__(
        self, tasks: Tasks, offer: Callable[[Publish], None], *, max_messages: int, max_bytes: int
    ) -> None:
        self._tasks = tasks
        self._offer = offer
        self.refused = Backlog(max_messages, max_bytes)
        self._pause = FIRST_PAUSE_SECONDS
        self._offering: asyncio.Task[None] | None = None

    def add(self, publish: Publish, error: Exception, max_tries: int) -> None:
        """Store a publish for the next attempt; it fails when no room or no time is left."""
        if self.refused.is_full:
            publish.fail(error)
            return
        self.refused.append(publish)
        self.refused.fail_expired(max_tries, asyncio.get_running_loop().time() + self._pause)
        if self._offering is None or self._offering.done():
            log.warning("%s: publishes to it are tried again, those to other topics continue", error)
            self._offering = self._tasks.spawn(self._retry(), "producer full topics")

    async def _retry(self) -> None:
        """Offer all again after each pause, until a round ends without a refusal."""
        while True:
            await asyncio.sleep(self._pause)
            if not self.refused:
                self._pause = FIRST_PAUSE_SECONDS
                return
            self._pause = min(self._pause * 2, LAST_PAUSE_SECONDS)
            while self.refused:
                self._offer(self.refused.popleft())
