"""The seam to the disk: every file operation of the storage goes through here, reads and folders included.

So tests can put a simulated disk in its place that fails any call, or keeps what a power cut may leave.
"""

import fcntl
import os
import shutil
import sys
from pathlib import Path
from typing import Final

_IOV_MAX: Final = 1000
# FS_IOC_GETVERSION of linux/fs.h: the generation of an inode. Ext4, xfs and btrfs draw one for each new file.
_GET_GENERATION: Final = 0x80087601


class Disk:
    """The real one. Paths are absolute, descriptors are the system's; all methods raise OSError."""

    # --- files ---

    def create(self, path: Path) -> int:
        """Open a new file for appending; it must not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def open_append(self, path: Path) -> int:
        """Open a file that is there for appending. Raises FileNotFoundError when there is none."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, fd: int, pieces: list[bytes]) -> None:
        """Write all pieces, in order, or raise: then an unknown part of them is in the file."""
        rest = pieces[0]
        if len(pieces) > 1:
            # One copy of the data less than joining it.
            written = os.writev(fd, pieces[:_IOV_MAX])
            rest = b"".join(pieces)[written:] if written < sum(map(len, pieces)) else b""
        while rest:
            # A short write happens on a full disk; the next one gives the reason.
            written = os.write(fd, rest)
            rest = rest[written:] if written < len(rest) else b""

    def open_read(self, path: Path) -> int:
        """Open a file for :meth:`read`. Raises FileNotFoundError when there is none."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """The bytes ``offset <= position < offset + size``; fewer only where the file ends."""
        data = os.pread(fd, size, offset)
        if len(data) == size:
            return data
        pieces = [data]
        got = len(data)
        while data and got < size:
            data = os.pread(fd, size - got, offset + got)
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def has_name(self, fd: int) -> bool:
        """Whether an open file is in a folder; what is written to one that is not is gone when it closes."""
        return os.fstat(fd).st_nlink > 0

    def read_file(self, path: Path) -> bytes:
        """The whole file. Raises FileNotFoundError when there is none."""
        fd = self.open_read(path)
        try:
            return self.read(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def open_write(self, path: Path) -> int:
        """Open a file for :meth:`write_at`, made if there is none."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write over what is there; a power cut may leave any part of it."""
        while data:
            written = os.pwrite(fd, data, offset)
            data, offset = data[written:], offset + written

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to *size* bytes, durably."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Take *size* bytes of the disk for the file, so that writing them needs no more space."""
        os.posix_fallocate(fd, 0, size)

    def sync(self, fd: int) -> None:
        """Make what was written to the file durable."""
        os.fdatasync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, path: Path, content: bytes, *, durable: bool) -> None:
        """Put *content* in the place of a file; a reader sees the old or the new one.

        With *durable* a power cut leaves the old or the new one, and the new one for sure once the folder is
        synced. Without, it survives the death of the process only: after a power cut anything may be there.
        Two threads must not replace the same file at the same time.
        """
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                rest = content
                while rest:
                    rest = rest[os.write(fd, rest) :]
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            temporary.replace(path)
        except OSError:
            # On a full disk it would keep what others need.
            temporary.unlink(missing_ok=True)
            raise

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file or a folder; *target* is replaced if it is a file."""
        path.rename(target)

    def identity(self, path: Path) -> int:
        """A number that a copy of the file has not got: its inode, with the generation where there is one.

        A file system gives the inode of a removed file to the next one, as when a backup is put in its place,
        and two volumes have the same inodes; the generation is another one.
        """
        fd = self.open_read(path)
        try:
            inode = os.fstat(fd).st_ino
            try:
                generation = fcntl.ioctl(fd, _GET_GENERATION, bytes(8))
            except OSError:
                # Such as on tmpfs, which counts its inodes up, and over NFS.
                return inode
        finally:
            os.close(fd)
        return inode ^ int.from_bytes(generation[:4], sys.byteorder) << 32

    def sync_all(self) -> None:
        """Make everything durable that was written so far; for very many files at once."""
        os.sync()

    def free(self, path: Path) -> tuple[int, int]:
        """How many bytes others may still write to the file system of *path*, and how many it has."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    # --- folders ---

    def names(self, folder: Path) -> list[str]:
        """What a folder holds, sorted. Raises FileNotFoundError when there is no such folder."""
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths

    def make_folder(self, path: Path) -> None:
        """Make a folder. Raises FileExistsError when it is there."""
        path.mkdir(mode=0o700)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder with all that is in it, which may take long; one that is not there is none."""
        if path.exists():
            shutil.rmtree(path)

    def sync_folder(self, path: Path) -> None:
        """Make creations, renames and removals in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
