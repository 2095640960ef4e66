"""Runs the publications of a producer through its middlewares."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from nsqclient._dispatch import Dispatch
from nsqclient._errors import ClosedError
from nsqclient._middleware import Middleware, Publication, around
from nsqclient._requests import Confirmation
from nsqclient.wire.frames import OK

# The maximum of concurrent publications before a connection. Further ones wait, so that memory stays bounded.
MAX_ENTERING: Final = 500


class PublishChain:
    """Takes publications through *middlewares* to *dispatch*."""

    def __init__(self, dispatch: Dispatch, middlewares: Sequence[Middleware], *, with_headers: bool) -> None:
        self._dispatch = dispatch
        self._middlewares = middlewares
        self._with_headers = with_headers
        self.under_way: set[Confirmation] = set()  # in a task of their own, until all middlewares have ended
        self._entering: set[object] = set()  # those of them that dispatch does not have yet
        self._roomy = asyncio.Event()

    @property
    def has_room(self) -> bool:
        return len(self._entering) < MAX_ENTERING

    async def room(self) -> None:
        """Wait for room; raises ClosedError when the producer is closed."""
        while not self.has_room and not self._dispatch.closed:
            self._roomy.clear()
            await self._roomy.wait()
        self._dispatch.check_open()

    async def publish(self, publication: Publication, limit: asyncio.Timeout) -> None:
        """Publish, and wait for the confirmation as long as *limit* allows."""
        self._dispatch.check_open()
        await self._through(publication, partial(self._enter_in_time, limit))

    def start(self, publication: Publication) -> Confirmation:
        """Publish in a task; there has to be room."""
        place = object()
        self._entering.add(place)
        entered = partial(self._entered, place)
        task = self._dispatch.tasks.spawn(self._started(publication, entered), "publish", BaseException)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        task.add_done_callback(lambda _: entered())  # also when it was cancelled before it began
        return task

    async def _started(self, publication: Publication, entered: Callable[[], None]) -> bytes:
        try:
            await self._through(publication, partial(self._enter, entered))
        except asyncio.CancelledError:
            if self._dispatch.has_ended:
                raise ClosedError("the producer was closed before this was confirmed") from None
            raise
        return OK

    async def _through(
        self, publication: Publication, enter: Callable[[Publication], Awaitable[None]]
    ) -> None:
        publication.takes_headers = self._with_headers and not publication.delay
        await around((one.publish for one in self._middlewares), enter)(publication)

    async def _enter_in_time(self, limit: asyncio.Timeout, publication: Publication) -> None:
        try:
            await (await self._dispatch.submit(publication, accepted=True))
        except asyncio.CancelledError:
            if limit.expired():  # which middlewares are to see as what it is
                raise TimeoutError from None
            raise

    async def _enter(self, entered: Callable[[], None], publication: Publication) -> None:
        answer = await self._dispatch.submit(publication, accepted=True)
        entered()
        await answer

    def _entered(self, place: object) -> None:
        self._entering.discard(place)
        # Not for every free slot, so that one wake-up serves many publishers.
        if len(self._entering) <= MAX_ENTERING // 2:
            self._roomy.set()
