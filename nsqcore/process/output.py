"""Writes the output of a command on stdout and stderr, and handles failures of writing."""

import atexit
import errno
import os
import signal
import sys
from contextlib import suppress
from typing import Final, TextIO

STDOUT: Final = 1

# What a shell reports for a program that SIGPIPE has ended, as it ends those of the original.
READER_ENDED: Final = 128 + signal.SIGPIPE


class Unwritable(Exception):
    """Stdout cannot be written; the text says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"failed to write to stdout - {(error.strerror or str(error)).lower()}")


class ReaderEnded(Unwritable):
    """The reader of stdout has ended, as in ``nsq_tail ... | head``: the command ends without a word."""


def write_all(data: bytes | bytearray, fd: int = STDOUT) -> None:
    """Write *data* completely, without a buffer that could be lost at the end. Raises Unwritable."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        raise _unwritable(error) from error


def write_text(text: str, stream: TextIO | None = None, *, flush: bool = True) -> None:
    """Write *text* on stdout, or on *stream*. Raises Unwritable."""
    stream = stream or sys.stdout
    if stream is None:
        raise Unwritable(OSError(errno.EBADF, "it is closed"))
    try:
        stream.write(text)
        if flush:
            stream.flush()
    except OSError as error:
        raise _unwritable(error) from error


def write_output(text: str, stream: TextIO | None = None) -> None:
    """Write the requested text, such as the version; if that is impossible, end the command.

    It ends with 141 if the reader has ended, and otherwise with 1 and a sentence.
    """
    try:
        write_text(text, stream)
    except ReaderEnded:
        raise SystemExit(READER_ENDED) from None
    except Unwritable as error:
        write_message(f"ERROR: {error}")
        raise SystemExit(1) from None


def write_message(line: str, stream: TextIO | None = None) -> None:
    """Write a line for people on stderr, or on *stream*, if that is possible: no outcome depends on it."""
    stream = stream or sys.stderr
    if stream is None:
        return
    with suppress(OSError):
        stream.write(f"{line}\n")
        stream.flush()


def _unwritable(error: OSError) -> Unwritable:
    return ReaderEnded(error) if isinstance(error, BrokenPipeError) else Unwritable(error)


@atexit.register
def _discard_output() -> None:
    """Keep the exit code: Python would try once more to write this, and end with 120 if that fails."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
