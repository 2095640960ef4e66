"""Ports for the servers that the benchmark and the tests start, stop and start again."""

import fcntl
import os
from functools import cache
from typing import Final

from load import ports

_reserved: Final[set[int]] = set()


def free_port() -> int:
    """Return a port that is free now and that no outgoing connection will take, and reserve it."""
    while True:
        port = ports.free_port()
        if reserve(port):
            return port


def reserve(port: int) -> bool:
    """Reserve the port against other callers until this process ends; False if another process has it.

    A killed server does not listen until its restart. Until then its port seems to be free.
    """
    if port in _reserved:
        return False
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    _reserved.add(port)
    return True


@cache
def _locks() -> int:
    """A file of this user in which byte *n* is locked by the process that has port *n*."""
    # Not in TMPDIR, because that differs between processes.
    path = f"/tmp/nsq-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
