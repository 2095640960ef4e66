"""A clock for time-outs: it starts with the time of the wall clock and never steps."""

import time
from typing import Final

_ANCHOR_NS: Final = time.time_ns() - time.monotonic_ns()


def steady_ns() -> int:
    """Nanoseconds since 1970 at the start of the process, and monotonic from then on."""
    return time.monotonic_ns() + _ANCHOR_NS
