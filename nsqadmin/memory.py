"""How the process gets rid of memory that it needs for a moment."""

import ctypes
from typing import Final

# The numbers of glibc's options.
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_LARGE: Final = 128 * 1024


def return_large_blocks() -> None:
    """Have the allocator give every large block back as soon as it is free.

    glibc stops doing so by itself after the first few, and then the answers of large nsqds, which are
    megabytes and come every few seconds, leave holes that nothing else fits in. Other allocators have no such
    option.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_ARENA_MAX, 1)
