"""Disks that behave as real ones do on a bad day."""

import errno
from pathlib import Path

from nsqd.storage.disk import Disk


class FullDisk(Disk):
    """Takes *room* more bytes of messages; then it is full, half-way through a write as a real one is."""

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


class BrokenSync(Disk):
    """Fails every fsync."""

    def sync(self, fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")


class ReadOnlyFolder(Disk):
    """No new files can be made."""

    def open_append(self, path: Path) -> int:
        raise OSError(errno.EROFS, "Read-only file system", str(path))
