"""An event loop on a clock of its own: hours pass in milliseconds, every run with a seed is the same.

Jobs for threads run in greenlets: they begin at a drawn moment and hand over to the loop at drawn calls of
the disk, so that what threads may do to one another happens, and happens again with the same seed.
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
# How long a job waits for its thread, and for its turn, at most.
_JOB_DELAY_S: Final = 0.02
_SWITCHES: Final = 0.3


class SimulatedTime:
    """A monotonic clock, and one on the wall that somebody may set."""

    def __init__(self) -> None:
        self.monotonic_ns = 5_000 * SECOND
        self.wall_offset_ns = 1_790_000_000 * SECOND - self.monotonic_ns
        # The latest time that was ever on the wall.
        self.latest_ns = self.wall_ns

    @property
    def wall_ns(self) -> int:
        return self.monotonic_ns + self.wall_offset_ns

    def advance(self, seconds: float) -> None:
        self.monotonic_ns += max(1, int(seconds * SECOND))
        self.latest_ns = max(self.latest_ns, self.wall_ns)

    def set_wall(self, seconds: float) -> None:
        """Set the clock on the wall forward or back by so many seconds."""
        self.wall_offset_ns += int(seconds * SECOND)
        self.latest_ns = max(self.latest_ns, self.wall_ns)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Have the ``time`` module tell this time."""
        with (
            patch.object(time, "time_ns", lambda: self.wall_ns),
            patch.object(time, "time", lambda: self.wall_ns / SECOND),
            patch.object(time, "monotonic_ns", lambda: self.monotonic_ns),
            patch.object(time, "monotonic", lambda: self.monotonic_ns / SECOND),
            patch.object(time, "perf_counter", lambda: self.monotonic_ns / SECOND),
        ):
            yield


class Deadlock(Exception):
    """Nobody will ever do anything again, and somebody waits for it."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module."""

    def __init__(self, clock: SimulatedTime, rng: random.Random) -> None:
        super().__init__()
        self.clock = clock
        self._rng = rng
        self._selector = self
        # Errors that nobody has caught.
        self.failures: list[str] = []
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self.clock.monotonic_ns / SECOND

    def select(self, timeout: float | None) -> list[Any]:
        """What BaseEventLoop asks of its selector: nothing arrives, but time passes."""
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
            except Exception as error:  # noqa: BLE001 - it is the future's now
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self._rng.random() * _JOB_DELAY_S, greenlet(run).switch)
        return future

    def maybe_switch(self) -> None:
        """In a job: let the loop go on for a moment, perhaps."""
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
