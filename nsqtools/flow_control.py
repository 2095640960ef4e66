"""How many messages the consumers of a command may take: none while a disk or a pipe stalls."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

# The flow stops when the oldest message in flight has used up this share of its timeout. Otherwise nsqd
# would deliver it again and again, its copies would fill the memory, and at max_attempts the client would
# finish a message that is stored nowhere.
STALLED_SHARE: Final = 0.75

# How often the message timeout is read: it changes with the connections.
CHECK_SECONDS: Final = 1.0


class LimitedConsumer(Protocol):
    """The part of a consumer's interface that is used here."""

    @property
    def msg_timeout(self) -> float: ...

    def change_max_in_flight(self, max_in_flight: int) -> None: ...


class FlowControl:
    """Limits *consumers*, each of which may have *max_in_flight* messages in flight."""

    def __init__(self, consumers: Sequence[LimitedConsumer], max_in_flight: int) -> None:
        self._consumers = consumers
        self._max_in_flight = max_in_flight
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    async def during(self, call: Awaitable[T], oldest: float) -> T:
        """Await *call*, and stop the flow when a message received at *oldest* comes near its timeout."""
        self._check(oldest)
        try:
            return await call
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def resume(self) -> None:
        """Resume if it was stopped; call it when no message in flight may have timed out."""
        if self._stopped:
            self._stopped = False
            self._set_max_in_flight(self._max_in_flight)

    def limit(self, max_in_flight: int) -> None:
        """Let each consumer have at most *max_in_flight* messages in flight from now on."""
        self._max_in_flight = min(self._max_in_flight, max_in_flight)
        if not self._stopped:
            self._set_max_in_flight(self._max_in_flight)

    def _check(self, oldest: float) -> None:
        if self._stopped:
            return
        loop = asyncio.get_running_loop()
        time_out = min(consumer.msg_timeout for consumer in self._consumers)
        left = oldest + STALLED_SHARE * time_out - loop.time()
        if left > 0:
            self._timer = loop.call_later(min(left, CHECK_SECONDS), self._check, oldest)
        else:
            self._stopped = True
            self._set_max_in_flight(0)

    def _set_max_in_flight(self, max_in_flight: int) -> None:
        for consumer in self._consumers:
            consumer.change_max_in_flight(max_in_flight)
