"""Reads the two clocks."""

import time

from nsqadmin.stats.instant import Instant


def instant() -> Instant:
    """Return this moment."""
    return Instant(time.monotonic_ns(), time.time())
