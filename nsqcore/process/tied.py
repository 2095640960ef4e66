"""Child processes that do not outlive their parent, however that ends."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tie_to_parent(parent: int) -> Callable[[], None] | None:
    """Return what a child runs before it becomes its program (``preexec_fn``): it asks to be stopped with
    SIGTERM when the process *parent* dies.
    """
    if sys.platform != "linux":
        return None  # elsewhere only an orderly end of the parent stops its children
    libc = ctypes.CDLL(None)

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)

    return tie
