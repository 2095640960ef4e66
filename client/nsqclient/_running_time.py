"""Time-outs that count only the time in which this process ran.

An event loop runs its timers before it reads its sockets. After the process was stopped for a while (by a
busy machine, by a suspended laptop), every timeout looks overdue, although the answer may have arrived
already. Therefore a timeout here is counted in several steps, and a step that ends much too late is not
counted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

# More steps measure a pause more exactly, but each step is one timer.
_STEPS: Final = 8
# At most so many steps are not counted, so that a timeout ends even if all its steps end late.
_MOST_LATE: Final = 8


class RunningTimer:
    """Calls *callback* after *seconds* in which the event loop ran."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._step = seconds / _STEPS
        self._callback = callback
        self._left = _STEPS
        self._most_late = _MOST_LATE
        self._loop = asyncio.get_running_loop()
        self._start_step()

    def cancel(self) -> None:
        self._handle.cancel()

    def _start_step(self) -> None:
        self._late_at = self._loop.time() + 2 * self._step
        self._handle = self._loop.call_later(self._step, self._end_step)

    def _end_step(self) -> None:
        if self._most_late and self._loop.time() > self._late_at:
            self._most_late -= 1
        else:
            self._left -= 1
        if self._left:
            self._start_step()
        else:
            self._callback()


@asynccontextmanager
async def running_timeout(seconds: float) -> AsyncIterator[None]:
    """Like ``asyncio.timeout``, but counts only time in which the event loop ran; 0 means without limit."""
    async with asyncio.timeout(None) as limit:
        if not seconds:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = RunningTimer(seconds, lambda: limit.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()
