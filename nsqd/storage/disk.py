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
        for i in range(0, len(pieces), _IOV_MAX):
            some = pieces[i : i + _IOV_MAX]
            written = os.writev(fd, some)
            left = sum(map(len, some)) - written
            if left:
                # A short write happens on a full disk; the rest gives the reason.
                rest = b"".join(some)[written:]
                while rest:
                    rest = rest[os.write(fd, rest) :]

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_folder(self, path: Path) -> None:
        """Make creations, renames and removals in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def duplicate(self, fd: int) -> int:
        return os.dup(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, path: Path, content: bytes, *, durable: bool = True) -> None:
        """Put *content* in the place of the file; a reader sees the old or the new one.

        Without *durable* it survives the death of the process, but perhaps not a power cut.
        """
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            while content:
                content = content[os.write(fd, content) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
        if durable:
            self.sync_folder(path.parent)

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        path.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
