"""Asking for a turn when the next message times out or becomes due."""

import asyncio
from collections.abc import Callable

from nsqd.engine.broker import Broker
from nsqd.server.clock import now_ns as clock_ns


class Deadlines:
    """One timer, for the earliest of all deadlines."""

    __slots__ = ("_ask", "_broker", "_loop", "_timer", "_timer_ns")

    def __init__(self, broker: Broker, ask_turn: Callable[[], None]) -> None:
        self._broker = broker
        self._ask = ask_turn
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0

    def arm(self, now_ns: int) -> None:
        """Set the timer to the broker's next deadline."""
        due_ns = self._broker.next_due_ns()
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(max(0, due_ns - now_ns) / 1e9, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._broker.expire(clock_ns())
        self._ask()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
