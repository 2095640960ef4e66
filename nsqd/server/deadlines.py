"""Asking for a turn when the next message times out or becomes due."""

import asyncio
from collections.abc import Callable

from nsqd.engine.broker import Broker
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.heartbeats import LATE_S, READ_GRACE_S


class Deadlines:
    """One timer, for the earliest of all deadlines."""

    __slots__ = ("_broker", "_looked", "_loop", "_planned_ns", "_request_turn", "_timer", "_timer_ns")

    def __init__(self, broker: Broker, ask_turn: Callable[[], None]) -> None:
        self._broker = broker
        self._request_turn = ask_turn
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # The deadline that the timer is for, and when it runs, which is later if the deadline has passed.
        self._timer_ns = self._planned_ns = 0
        # The timer runs once more, because it was late.
        self._looked = False

    def arm(self, now_ns: int) -> None:
        """Set the timer to the broker's next deadline."""
        due_ns = self._broker.next_due_ns()
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        self._planned_ns = max(due_ns, now_ns)
        self._timer = self._loop.call_later((self._planned_ns - now_ns) / 1e9, self._expire)

    def _expire(self) -> None:
        now_ns = clock_ns()
        if not self._looked and now_ns - self._planned_ns > LATE_S * 1e9:
            # This process was stopped or busy. The loop runs timers before it reads sockets, so answers that
            # clients gave in time may still be unread.
            self._looked = True
            self._timer = self._loop.call_later(READ_GRACE_S, self._expire)
            return
        self._looked = False
        self._timer = None
        self._broker.expire(now_ns)
        self._request_turn()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
