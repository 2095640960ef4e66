"""How much of what was freed the C library keeps for the next block that is read."""

import ctypes
import os
from typing import Final

# Parameters of glibc's mallopt(3), from <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# Beyond what a burst of blocks takes: whoever reads a backlog frees and takes megabytes all the time, and to
# hand them back in between costs a page fault for every page of them, a quarter of what reading costs.
KEPT: Final = 64 << 20
# The most that mallopt takes on 64 bits.
FROM_THE_HEAP: Final = 32 << 20

# Whoever sets one of these has an opinion.
SOMEBODYS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_what_is_freed() -> bool:
    """Keep up to 64 MiB of freed memory in the process; False without glibc, or where somebody has set it.

    It adds nothing to the most that the process has, only to what it has when it rests.
    """
    if any(name in os.environ for name in SOMEBODYS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(M_MMAP_THRESHOLD, FROM_THE_HEAP) and mallopt(M_TRIM_THRESHOLD, KEPT)
    )
