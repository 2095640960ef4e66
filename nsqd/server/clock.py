"""The engine's clock, which is the steady clock of the process, and its offset to the wall clock.

`busy_ns` is the processor time of a thread, for work whose length is limited.
"""

import time
from time import thread_time_ns as busy_ns

from nsqcore.process.clock import steady_ns as now_ns
from nsqd.engine.clock import Wall

__all__ = ["busy_ns", "follow_clock", "now_ns"]


def follow_clock(wall: Wall) -> None:
    """Update the offset between the wall clock and the steady clock."""
    wall.offset_ns = time.time_ns() - now_ns()
