"""How many messages the consumers of a command may take: none while a disk or a pipe stalls."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

# The supply is stopped when the oldest message in hand has used up this part of its time-out. Otherwise nsqd
# would deliver it again and again, its copies would fill the memory, and at max_attempts the client would
# finish a message that is stored nowhere.
STALLED_SHARE: Final = 0.75

# How often the time-out is looked up: it is another one when the connections change.
LOOK_SECONDS: Final = 1.0


class Supplied(Protocol):
    """What is used of a consumer."""

    @property
    def msg_timeout(self) -> float: ...

    def change_max_in_flight(self, max_in_flight: int) -> None: ...


class Supply:
    """The supply of *consumers*, each of which may have *most* messages in flight."""

    def __init__(self, consumers: Sequence[Supplied], most: int) -> None:
        self._consumers = consumers
        self._most = most
        self._stopped = False
        self._looking: asyncio.TimerHandle | None = None

    async def during(self, call: Awaitable[T], oldest: float) -> T:
        """Await *call*, and stop the supply when a message received at *oldest* comes near its time-out."""
        self._look(oldest)
        try:
            return await call
        finally:
            if self._looking is not None:
                self._looking.cancel()

    def resume(self) -> None:
        """Resume if it was stopped; call it when no message is in hand that may have timed out."""
        if self._stopped:
            self._stopped = False
            self._tell(self._most)

    def limit(self, most: int) -> None:
        """Let each consumer have at most *most* messages in flight from now on."""
        self._most = min(self._most, most)
        if not self._stopped:
            self._tell(self._most)

    def _look(self, oldest: float) -> None:
        if self._stopped:
            return
        loop = asyncio.get_running_loop()
        time_out = min(consumer.msg_timeout for consumer in self._consumers)
        left = oldest + STALLED_SHARE * time_out - loop.time()
        if left > 0:
            self._looking = loop.call_later(min(left, LOOK_SECONDS), self._look, oldest)
        else:
            self._stopped = True
            self._tell(0)

    def _tell(self, most: int) -> None:
        for consumer in self._consumers:
            consumer.change_max_in_flight(most)
