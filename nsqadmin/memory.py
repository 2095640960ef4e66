"""Makes the process return memory that it needed for a moment."""

import ctypes
from typing import Final

# The numbers of glibc's options.
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_LARGE: Final = 128 * 1024


def return_large_blocks() -> None:
    """Make the allocator return every large block to the system as soon as it is free.

    After the first few blocks glibc stops doing so. Answers of large nsqds are megabytes and come every few
    seconds, so they would leave holes in memory that nothing else fits in. Other allocators have no such
    option.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_ARENA_MAX, 1)
