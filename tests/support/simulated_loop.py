"""An event loop with a simulated clock: hours pass in milliseconds, and runs with one seed are equal.

Jobs for threads run in greenlets. They begin at a drawn moment and switch to the loop at drawn calls of the
disk, so that races between threads happen, and happen again with the same seed.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from greenlet import getcurrent, greenlet

SECOND: Final = 1_000_000_000
# The longest that a job waits for its thread, and after each switch.
_JOB_DELAY_S: Final = 0.02
_SWITCHES: Final = 0.3


class SimulatedTime:
    """A monotonic clock, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.monotonic_ns = 5_000 * SECOND
        self.wall_offset_ns = 1_790_000_000 * SECOND - self.monotonic_ns
        # The latest time that the wall clock ever showed.
        self.latest_ns = self.wall_ns

    @property
    def wall_ns(self) -> int:
        return self.monotonic_ns + self.wall_offset_ns

    def advance(self, seconds: float) -> None:
        self.monotonic_ns += max(1, int(seconds * SECOND))
        self.latest_ns = max(self.latest_ns, self.wall_ns)

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back by *seconds*."""
        self.wall_offset_ns += int(seconds * SECOND)
        self.latest_ns = max(self.latest_ns, self.wall_ns)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Make the ``time`` module return this time until the end of the block."""
        with (
            patch.object(time, "time_ns", lambda: self.wall_ns),
            patch.object(time, "time", lambda: self.wall_ns / SECOND),
            patch.object(time, "monotonic_ns", lambda: self.monotonic_ns),
            patch.object(time, "monotonic", lambda: self.monotonic_ns / SECOND),
            patch.object(time, "perf_counter", lambda: self.monotonic_ns / SECOND),
        ):
            yield


class Deadlock(Exception):
    """The loop waits, but nothing can ever become ready."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop on the simulated clock."""

    def __init__(self, clock: SimulatedTime, rng: random.Random) -> None:
        super().__init__()
        self.clock = clock
        self._rng = rng
        self._selector = self
        # Uncaught errors.
        self.failures: list[str] = []
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self.clock.monotonic_ns / SECOND

    def select(self, timeout: float | None) -> list[Any]:
        """Stand in for the selector of BaseEventLoop: nothing arrives, but time passes."""
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        if timeout > 0:
            self.clock.advance(timeout)
        return []

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, job: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            try:
                result = job(*arguments)
            except Exception as error:  # noqa: BLE001 - the future passes it on
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self._rng.random() * _JOB_DELAY_S, greenlet(run).switch)
        return future

    def maybe_switch(self) -> None:
        """Called in a job: perhaps let the loop run for a moment."""
        job = getcurrent()
        if job.parent is not None and self._rng.random() < _SWITCHES:
            self.call_later(self._rng.random() * _JOB_DELAY_S, job.switch)
            job.parent.switch()

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context['message']}: {error!r}")

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
