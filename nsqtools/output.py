"""Writes bytes to stdout completely, without a buffer that could be lost at the end."""

import os

from nsqtools.process import Failed, ReaderEnded

STDOUT = 1


def write_all(data: bytes, fd: int = STDOUT) -> None:
    """Write *data* completely; a closed pipe or a full disk ends the command. Raises Failed."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError as error:
        raise ReaderEnded("nobody reads stdout") from error
    except OSError as error:
        raise Failed(
            f"ERROR: failed to write to stdout - {(error.strerror or str(error)).lower()}"
        ) from error
