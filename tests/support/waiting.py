"""Waits for another process: polls a condition, and fails with a sentence after some time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

POLL_SECONDS: Final = 0.02


def wait_until(condition: Callable[[], T], what: str, seconds: float = 30) -> T:
    """Return the first truthy value of *condition*, or fail with *what* after *seconds*."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain until {what}")
        time.sleep(POLL_SECONDS)


async def eventually(condition: Callable[[], T | Awaitable[T]], what: str, seconds: float = 30) -> T:
    """Like :func:`wait_until`, while the event loop runs; the condition may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain until {what}")
        await asyncio.sleep(POLL_SECONDS)
