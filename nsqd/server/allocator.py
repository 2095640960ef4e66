"""How much of what was freed the C library keeps for the next block that is read."""

import ctypes
import os
from typing import Final

from nsqd.log.cache import STARTS_BYTES, STRETCHES_BYTES
from nsqd.log.tail import RESIDENT_BYTES

# Parameters of glibc's mallopt(3), from <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# What a log's newest blocks and the node's cache come to. They are freed together when a backlog is done or
# its topic deleted, and filled again by the next: handed back in between, each page of them costs a fault,
# and reading that backlog a quarter more.
KEPT: Final = RESIDENT_BYTES + STRETCHES_BYTES + STARTS_BYTES
# The most that mallopt takes on 64 bits.
FROM_THE_HEAP: Final = 32 << 20

# Whoever sets one of these has an opinion.
SOMEBODYS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_what_is_freed() -> bool:
    """Keep freed memory for the blocks to come; False without glibc, or where somebody has set it otherwise.

    It adds nothing to the most that the process has, only to what it has when it rests.
    """
    if any(name in os.environ for name in SOMEBODYS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(M_MMAP_THRESHOLD, FROM_THE_HEAP) and mallopt(M_TRIM_THRESHOLD, KEPT)
    )
