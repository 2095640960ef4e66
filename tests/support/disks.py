"""Disks with the faults of real ones."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nsqd.log.disk import Disk


class FullDisk(Disk):
    """Takes *room* more bytes of messages and then is full, possibly in the middle of a write."""

    def __init__(self, room: int) -> None:
        self.room = room

    def append(self, fd: int, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        if self.room:
            super().append(fd, [data[: self.room]])
        if len(data) > self.room:
            self.room = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)


class Counting(Disk):
    """Counts the bytes that were read."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self.sizes.append(size)
        return super().read(fd, size, offset)


class FaultyDisk(Disk):
    """Fails the calls named in ``faults`` with the errno given there, until they are removed from it."""

    def __init__(self, **faults: int) -> None:
        self.faults = faults
        # The names of all calls so far, in order.
        self.calls: list[str] = []

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls.append(name)
        if name in self.faults:
            number = self.faults[name]
            where = next((str(arg) for arg in args if isinstance(arg, Path)), None)
            raise OSError(number, os.strerror(number), where)


class DyingDisk(FaultyDisk):
    """The process is killed at one call: that call and all later ones do nothing.

    If that call is an append, half of its bytes are written. Files can still be closed, so that none leaks.
    """

    def __init__(self, calls: int) -> None:
        """*calls* calls are done before the kill."""
        super().__init__()
        self._left = calls

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        super().before(name, args)
        self._left -= 1
        if self._left == -1 and name == "append":
            fd, pieces = args
            data = b"".join(pieces)
            Disk.append(self, fd, [data[: len(data) // 2]])
        if self._left < 0:
            raise Killed


class Killed(OSError):
    """The process was killed, so nothing that it does has an effect any more."""


_CALLS: Final = (
    "create",
    "append",
    "open_append",
    "open_read",
    "read",
    "size",
    "has_name",
    "read_file",
    "open_write",
    "write_at",
    "truncate",
    "truncate_open",
    "allocate",
    "sync",
    "replace",
    "remove",
    "rename",
    "identity",
    "sync_all",
    "names",
    "make_folder",
    "remove_folder",
    "sync_folder",
)


def _watched(name: str) -> Callable[..., Any]:
    real = getattr(Disk, name)

    def call(self: FaultyDisk, *args: Any, **options: Any) -> Any:
        self.before(name, args)
        return real(self, *args, **options)

    return call


for _name in _CALLS:
    setattr(FaultyDisk, _name, _watched(_name))
