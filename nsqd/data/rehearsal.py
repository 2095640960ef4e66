"""A disk to try recovery on: reads see the real one, changes go to a scratch folder and are listed.

It shows the findings and changes of a start, without touching a file of the data path.
"""

import errno
import os
import shutil
from pathlib import Path

from nsqd.log.disk import Disk


class Rehearsal(Disk):
    """The files below *root* as they would be; other files are out of reach."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root
        # The changes that a start would have made, one sentence for each, in order.
        self.changes: list[str] = []
        self._scratch = scratch
        # The path of the content of a changed file; None when the file would have been removed.
        self._moved: dict[Path, Path | None] = {}
        self._serial = 0
        # The path that each descriptor writes to.
        self._writing: dict[int, Path] = {}

    # --- files ---

    def create(self, path: Path) -> int:
        if self._exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        fd = super().create(self._put(path))
        self._writing[fd] = path
        self._note(f"write {self._shown(path)}")
        return fd

    def open_read(self, path: Path) -> int:
        return super().open_read(self._find(path))

    def open_write(self, path: Path) -> int:
        there = self._find(path) if self._exists(path) else None
        copy = self._put(path)
        if there is not None:
            shutil.copyfile(there, copy)
        fd = super().open_write(copy)
        self._writing[fd] = path
        return fd

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        super().write_at(fd, data, offset)
        self._note(f"write {len(data)} bytes at {offset} of {self._shown(self._writing[fd])}")

    def rewrite(self, path: Path, start: int = 0) -> None:
        """See :meth:`sync`."""

    def truncate(self, path: Path, size: int) -> None:
        there = self._find(path)
        copy = self._put(path)
        with there.open("rb") as source, copy.open("wb") as target:
            while rest := size - target.tell():
                piece = source.read(min(rest, 1 << 20))
                if not piece:
                    break
                target.write(piece)
            target.truncate(size)
        self._note(f"cut {self._shown(path)} to {size} bytes")

    def sync(self, fd: int) -> None:
        """The content of the scratch folder need not be durable."""

    def close(self, fd: int) -> None:
        self._writing.pop(fd, None)
        super().close(fd)

    def replace(self, path: Path, content: bytes, *, durable: bool) -> None:  # noqa: ARG002 - of the real one
        self._put(path).write_bytes(content)
        self._note(f"write {self._shown(path)}, {len(content)} bytes")

    def remove(self, path: Path) -> None:
        if self._exists(path):
            self._moved[path] = None
            self._note(f"remove {self._shown(path)}")

    def rename(self, path: Path, target: Path) -> None:
        self._moved[target] = self._find(path)
        self._moved[path] = None
        self._note(f"rename {self._shown(path)} to {target.name}")

    def identity(self, path: Path) -> int:
        return super().identity(self._find(path))

    def sync_all(self) -> None:
        """See :meth:`sync`."""

    # --- folders ---

    def names(self, folder: Path) -> list[str]:
        names = set(super().names(folder))
        for path, place in self._moved.items():
            if path.parent == folder:
                (names.discard if place is None else names.add)(path.name)
        return sorted(names)

    def make_folder(self, path: Path) -> None:
        # Recovery creates no folders.
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def remove_folder(self, path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def sync_folder(self, path: Path) -> None:
        """See :meth:`sync`."""

    # --- where things are ---

    def _exists(self, path: Path) -> bool:
        if path in self._moved:
            return self._moved[path] is not None
        return path.exists()

    def _find(self, path: Path) -> Path:
        """Where the content of a file is."""
        place = self._moved.get(path, path)
        if place is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return place

    def _put(self, path: Path) -> Path:
        """A new place for the content of a file."""
        self._serial += 1
        place = self._moved[path] = self._scratch / str(self._serial)
        return place

    def _note(self, sentence: str) -> None:
        self.changes.append(sentence)

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.root))
