"""One process per data path."""

import fcntl
import os
from pathlib import Path


class DataPathLocked(Exception):
    """The data path cannot be used; the text is the sentence for the operator."""


def lock_data_path(path: Path) -> int:
    """Take the exclusive lock on the folder; the descriptor returned holds it until it is closed.

    Raises DataPathLocked when the folder is missing or in use.
    """
    shown = str(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataPathLocked(f"open {shown}: {(error.strerror or str(error)).lower()}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise DataPathLocked(
            f"cannot flock directory {shown} - {(error.strerror or str(error)).lower()} "
            "(possibly in use by another instance of nsqd)"
        ) from error
    return fd
