"""Free ports of this machine, for servers that a process starts, stops and starts again."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

# The system takes the ports of outgoing connections from a range above this port. A connection of any other
# program there would keep a server from listening, at its first start or at a later one.
LAST_PORT: Final = 32_000
# A separate generator, because code that seeds the usual one would repeat the same ports in all processes.
dice: Final = random.SystemRandom()

_reserved: Final[set[int]] = set()


def free_port() -> int:
    """Return a port at which nobody listens, which no outgoing connection takes, and reserve it."""
    while True:
        port = dice.randint(10_000, LAST_PORT)
        if is_free(port) and reserve(port):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def reserve(port: int) -> bool:
    """Keep the port from whoever asks here until this process ends; False if somebody has it.

    A server that was killed does not listen until it is started again, and meanwhile its port looks free.
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
    path = Path(tempfile.gettempdir()) / f"nsq-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
