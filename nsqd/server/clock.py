"""The engine's clock is the steady one of the process; the clock on the wall is held beside it.

What was the processor's of a thread, `busy_ns`, is for what is to take no longer than it should.
"""

import time
from time import thread_time_ns as busy_ns

from nsqcore.process.clock import steady_ns as now_ns
from nsqd.engine.clock import Wall

__all__ = ["busy_ns", "keep_true", "now_ns"]


def keep_true(wall: Wall) -> None:
    """Take note of where the clock on the wall is now."""
    wall.offset_ns = time.time_ns() - now_ns()
