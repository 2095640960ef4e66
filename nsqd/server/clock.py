"""The engine's clock: nanoseconds since 1970 when the process began, and from there on monotonic."""

import time
from typing import Final

from nsqd.engine.clock import Wall

_ANCHOR_NS: Final = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """The time for deadlines; it does not step when somebody sets the clock."""
    return time.monotonic_ns() + _ANCHOR_NS


def keep_true(wall: Wall) -> None:
    """Take note of where the clock on the wall is now."""
    wall.offset_ns = time.time_ns() - now_ns()
