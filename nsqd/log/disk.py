"""The disk interface: all file and folder operations of the storage, reads included.

Tests replace it by a simulated disk. That one fails any call, or leaves the data that a power cut may leave.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_IOV_MAX: Final = 1000
# Bytes that `Disk.rewrite` reads and writes in one step.
_REWRITE_BYTES: Final = 1 << 20
# FS_IOC_GETVERSION of linux/fs.h: the generation of an inode. Ext4, xfs and btrfs draw one for each new file.
_GET_GENERATION: Final = 0x80087601


class CannotOpen(OSError):
    """A file or folder could not be opened to be synced, for example for want of descriptors.

    Nothing that was written to it is lost, so the sync can be repeated.
    """


def error_text(error: OSError) -> str:
    """The system's message for a failure, in lower case like NSQ's sentences."""
    return (error.strerror or str(error)).lower()


class Disk:
    """The real disk. Paths are absolute, descriptors are the system's; all methods raise OSError."""

    # --- files ---

    def create(self, path: Path) -> int:
        """Open a new file for appending; it must not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def open_append(self, path: Path) -> int:
        """Open an existing file for appending. Raises FileNotFoundError when there is none."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, fd: int, pieces: list[bytes]) -> None:
        """Write all buffers in order. Raises OSError; then an unknown part of them is in the file."""
        rest = pieces[0]
        if len(pieces) > 1:
            # Compared with joining the buffers first, this saves one copy of the data.
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

    def read_ahead(self, fd: int, size: int, offset: int) -> None:
        """Start to read these bytes in advance, so that :meth:`read` waits less."""
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_WILLNEED)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def has_name(self, fd: int) -> bool:
        """Whether an open file has a name; data written to a file without one is lost when it closes."""
        return os.fstat(fd).st_nlink > 0

    def read_file(self, path: Path) -> bytes:
        """The whole file. Raises FileNotFoundError when there is none."""
        fd = self.open_read(path)
        try:
            return self.read(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def open_write(self, path: Path) -> int:
        """Open a file for :meth:`write_at`; creates it if there is none."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write *data* over what is at *offset*; a power cut may leave any part of it."""
        while data:
            written = os.pwrite(fd, data, offset)
            data, offset = data[written:], offset + written

    def rewrite(self, path: Path, start: int = 0) -> None:
        """Write the bytes of a file from the offset *start* on again, unchanged.

        After a failed sync the kernel may keep pages in memory that are not on the disk, and no later sync
        writes them. An earlier process may have left such pages. Once rewritten, the next sync writes them.
        """
        fd = self.open_write(path)
        try:
            end = self.size(fd)
            for at in range(start, end, _REWRITE_BYTES):
                self.write_at(fd, self.read(fd, min(_REWRITE_BYTES, end - at), at), at)
        finally:
            self.close(fd)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to *size* bytes, durably."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate_open(self, fd: int, size: int) -> None:
        """Truncate an open file to *size* bytes; the next sync makes that durable."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        """Reserve *size* bytes of the disk for the file, so that writing them needs no more space."""
        os.posix_fallocate(fd, 0, size)

    def sync(self, fd: int) -> None:
        """Make all writes to the file durable."""
        os.fdatasync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, path: Path, content: bytes, *, durable: bool) -> None:
        """Replace the content of a file; a reader sees the old or the new content.

        With *durable*, a power cut leaves the old or the new content, and certainly the new one once the
        folder is synced. Without it, the new content survives only the death of the process: a power cut may
        leave anything. Two threads must not replace the same file at the same time.
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
            # On a full disk the temporary file would take space that others need.
            temporary.unlink(missing_ok=True)
            raise

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file or a folder; *target* is replaced if it is a file."""
        path.rename(target)

    def identity(self, path: Path) -> int:
        """A number that a copy of the file does not share: its inode, and its generation if it has one.

        The inode alone is not enough: a file system reuses the inode of a removed file, for example for the
        backup that is put in its place, and two volumes have the same inodes. Their generations differ.
        """
        fd = self.open_read(path)
        try:
            inode = os.fstat(fd).st_ino
            try:
                generation = fcntl.ioctl(fd, _GET_GENERATION, bytes(8))
            except OSError:
                # Tmpfs has no generation, but its inode numbers only grow. NFS has none.
                return inode
        finally:
            os.close(fd)
        return inode ^ int.from_bytes(generation[:4], sys.byteorder) << 32

    def sync_all(self) -> None:
        """Make all earlier writes durable, for very many files in one call."""
        os.sync()

    def free(self, path: Path) -> tuple[int, int]:
        """How many bytes others may still write to the file system of *path*, and its size in bytes."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    # --- folders ---

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted. Raises FileNotFoundError when there is no such folder."""
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths

    def make_folder(self, path: Path) -> None:
        """Make a folder. Raises FileExistsError when it exists."""
        path.mkdir(mode=0o700)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and everything in it, if it exists; this may take long."""
        if path.exists():
            shutil.rmtree(path)

    def sync_folder(self, path: Path) -> None:
        """Make creations, renames and removals in a folder durable. Raises CannotOpen, and OSError."""
        with opening_to_sync():
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def opening_to_sync() -> Iterator[None]:
    """Raises CannotOpen for an OSError, except when the file or folder is gone: it can never be synced."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise CannotOpen(error.errno, error.strerror, error.filename) from error


def remove_folders(disk: Disk, folders: list[Path]) -> None:
    """Remove folders with their contents, and remove each from the list. It is slow.

    Folders that cannot be removed stay in the list. Raises OSError for the first of them, after all others.
    """
    first: OSError | None = None
    for folder in list(folders):
        try:
            disk.remove_folder(folder)
            folders.remove(folder)
        except OSError as error:
            first = first or error
    if first is not None:
        raise first


def make_folders(disk: Disk, path: Path) -> None:
    """Make a folder and those above it; each is durable before anything is put into it."""
    missing = []
    while True:
        try:
            disk.names(path)
            break
        except FileNotFoundError:
            missing.append(path)
            path = path.parent
    for one in reversed(missing):
        disk.make_folder(one)
        disk.sync_folder(one.parent)


def sync_file(disk: Disk, path: Path) -> None:
    """Make a file durable, if it exists. Raises OSError."""
    try:
        fd = disk.open_read(path)
    except FileNotFoundError:
        return
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)
