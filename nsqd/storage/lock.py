"""One process per data path."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.log.disk import error_text

# A pod that was deleted by force is replaced immediately, but its process still runs for the seconds that the
# kubelet needs to end it.
PATIENCE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1


class DataPathLocked(Exception):
    """The data path cannot be used; the text is the sentence for the operator."""


class DataPathInUse(DataPathLocked):
    """Another process has the data path, perhaps only for a short time."""


def wait_for_data_path(
    path: Path,
    say: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Like :func:`lock_data_path`, but a process that still has the data path gets some seconds to end."""
    until = clock() + PATIENCE_SECONDS
    said = False
    while True:
        try:
            return lock_data_path(path)
        except DataPathInUse:
            if clock() >= until:
                raise
        if not said:
            say(f"waiting {PATIENCE_SECONDS:.0f}s for another process to release {path}")
            said = True
        sleep(_RETRY_SECONDS)


def lock_data_path(path: Path) -> int:
    """Take the exclusive lock on the folder; the descriptor returned holds it until it is closed.

    Raises DataPathLocked when the folder is missing or in use.
    """
    shown = str(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataPathLocked(f"open {shown}: {error_text(error)}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        kind = DataPathInUse if isinstance(error, BlockingIOError) else DataPathLocked
        raise kind(
            f"cannot flock directory {shown} - {error_text(error)} "
            "(possibly in use by another instance of nsqd)"
        ) from error
    return fd
