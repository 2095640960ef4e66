"""A space reserve: a node with a full disk can still note finished messages, and so free more space."""

import contextlib
import errno
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk

FILE_NAME: Final = "spare"
SPARE_BYTES: Final = 4 << 20
# The space is reserved again when this much stays free in addition. Otherwise a node that freed it, because a
# checkpoint could not be written, would take it back before the checkpoint is tried again.
_BESIDE_BYTES: Final = 1 << 20
# The errors of a disk or a quota that is full.
NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class Spare:
    """A file that only takes up space."""

    def __init__(self, disk: Disk, data_path: Path) -> None:
        self.path = data_path / FILE_NAME
        self.there = False
        self._disk = disk

    def make(self) -> None:
        """Take the space, if there is enough."""
        if not self.there:
            with contextlib.suppress(OSError):
                self._allocate(self.path, SPARE_BYTES)
                self.there = True

    def refill(self) -> None:
        """Reserve the space again after it was freed, when the disk has plenty."""
        if not self.there and self.is_room_for(SPARE_BYTES + _BESIDE_BYTES):
            self.make()

    def is_room_for(self, size: int) -> bool:
        """Whether so many bytes could be written in addition to the spare."""
        trial = self.path.with_name(FILE_NAME + ".tmp")
        try:
            self._allocate(trial, size)
            self._disk.remove(trial)
        except OSError:
            return False
        return True

    def _allocate(self, path: Path, size: int) -> None:
        fd = self._disk.open_write(path)
        try:
            self._disk.allocate(fd, size)
        except OSError:
            self._disk.remove(path)
            raise
        finally:
            self._disk.close(fd)

    def release(self) -> bool:
        """Free the space for others; False when it was freed already, or cannot be."""
        if not self.there:
            return False
        try:
            self._disk.remove(self.path)
        except OSError:
            # A file system that copies on writing needs space even to remove a file.
            return False
        self.there = False
        return True
