"""A clock for time-outs: it starts as the one on the wall and never steps."""

import time
from typing import Final

_ANCHOR_NS: Final = time.time_ns() - time.monotonic_ns()


def steady_ns() -> int:
    """Nanoseconds since 1970 as they were when the process began, and from there on monotonic."""
    return time.monotonic_ns() + _ANCHOR_NS
