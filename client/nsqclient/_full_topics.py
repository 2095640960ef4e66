"""Keeps the publishes that full topics have refused, and offers them again after pauses."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from nsqclient._backlog import Backlog
from nsqclient._requests import Publish
from nsqclient._tasks import Tasks

log = logging.getLogger("nsqclient")

# Each offer that is refused costs a connection, so the pause before the next ones doubles up to the last.
FIRST_PAUSE_SECONDS: Final = 0.1
LAST_PAUSE_SECONDS: Final = 2.0


class FullTopics:
    """What waits here holds up no publish to another topic; *offer* takes a publish that is tried again."""

    def __init__(
        self, tasks: Tasks, offer: Callable[[Publish], None], *, most_messages: int, most_bytes: int
    ) -> None:
        self._tasks = tasks
        self._offer = offer
        self.refused = Backlog(most_messages, most_bytes)
        self._pause = FIRST_PAUSE_SECONDS
        self._offering: asyncio.Task[None] | None = None

    def keep(self, publish: Publish, error: Exception, most_tries: int) -> None:
        """Keep a publish for the next offer; it fails when there is no room or no time left for that."""
        if not self.refused.has_room:
            publish.fail(error)
            return
        self.refused.append(publish)
        self.refused.give_up(most_tries, asyncio.get_running_loop().time() + self._pause)
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
