"""How much freed memory the C library keeps for the next blocks that are read."""

import ctypes
import os
from typing import Final

from nsqd.log.cache import STARTS_BYTES, STRETCHES_BYTES
from nsqd.log.tail import RESIDENT_BYTES

# Parameters of glibc's mallopt(3), from <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# The size of a log's newest blocks and the node's cache. They are freed together when a backlog is finished
# or its topic is deleted, and the next backlog needs as much again. If the memory went back to the system in
# between, each page would cost a fault, and reading that backlog a quarter more.
RETAINED_BYTES: Final = RESIDENT_BYTES + STRETCHES_BYTES + STARTS_BYTES
# The largest value that mallopt accepts on 64 bits.
MAX_HEAP_BLOCK_BYTES: Final = 32 << 20

# If one of these is set, the operator's choice stays.
MALLOC_VARIABLES: Final = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "GLIBC_TUNABLES",
)


def retain_freed_memory() -> bool:
    """Keep freed memory for later blocks; False without glibc, or when one of `MALLOC_VARIABLES` is set.

    The peak memory of the process stays the same; only its memory at rest grows.
    """
    if any(name in os.environ for name in MALLOC_VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(M_MMAP_THRESHOLD, MAX_HEAP_BLOCK_BYTES) and mallopt(M_TRIM_THRESHOLD, RETAINED_BYTES)
    )
