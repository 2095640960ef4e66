"""Waits for another process: polls a condition, and fails with a sentence after some time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

POLL_SECONDS: Final = 0.02


def _is_not_there_yet(error: Exception) -> bool:
    """Whether a condition looked up what does not exist yet, like the first of no connections, or a file.

    Any other error is none that waiting mends, like an answer that is not JSON.
    """
    too_few = isinstance(error, ValueError) and str(error).startswith("not enough values to unpack")
    return too_few or isinstance(error, (LookupError, StopIteration, FileNotFoundError))


def wait_until(condition: Callable[[], T], what: str, seconds: float = 30) -> T:
    """Return the first truthy value of *condition*, or fail with *what* after *seconds*.

    A condition that looks up what is not there yet does not hold yet.
    """
    deadline = time.monotonic() + seconds
    while True:
        missing: Exception | None = None
        try:
            if value := condition():
                return value
        except (LookupError, StopIteration, FileNotFoundError, ValueError) as error:
            if not _is_not_there_yet(error):
                raise
            missing = error
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain until {what}") from missing
        time.sleep(POLL_SECONDS)


async def eventually(condition: Callable[[], T | Awaitable[T]], what: str, seconds: float = 30) -> T:
    """Like :func:`wait_until`, while the event loop runs; the condition may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        missing: Exception | None = None
        try:
            value = condition()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
        except (LookupError, StopIteration, FileNotFoundError, ValueError) as error:
            if not _is_not_there_yet(error):
                raise
            missing = error
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain until {what}") from missing
        await asyncio.sleep(POLL_SECONDS)
