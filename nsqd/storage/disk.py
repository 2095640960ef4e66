"""The seam to the disk: every call that changes a file goes through here, so that tests can make it fail."""

import os
from pathlib import Path
from typing import Final

_IOV_MAX: Final = 1000


class Disk:
    """The real one. Paths are absolute, descriptors are the system's; all methods raise OSError."""

    def open_append(self, path: Path) -> int:
        """Open a new file for appending; it must not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

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

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_folder(self, path: Path) -> None:
        """Make creations, renames and removals in a folder durable."""
        fd = self.open_folder(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        """Make everything durable that was written so far; for very many files at once."""
        os.sync()

    def duplicate(self, fd: int) -> int:
        return os.dup(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def open_folder(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def replace(self, folder: int, name: str, content: bytes, *, durable: bool = True) -> None:
        """Put *content* in the place of a file of the open *folder*; a reader sees the old or the new one.

        With *durable* a power cut leaves the old or the new one, and the new one for sure once the folder is
        synced; without, it survives the death of the process only. The two kinds may run at the same time,
        in two threads.
        """
        temporary = f"{name}.tmp" if durable else f"{name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            while content:
                content = content[os.write(fd, content) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def find_space(self, folder: Path, size: int) -> None:
        """See whether *size* bytes could be written to a file of the folder now."""
        path = folder / "space.tmp"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
            path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        path.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
