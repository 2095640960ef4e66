"""Whether a file has changed since it was read."""

from pathlib import Path
from typing import TypeAlias

FileStamp: TypeAlias = tuple[int, int, int]


def stamp_of(path: Path) -> FileStamp:
    """Values that change with a file; a mounted secret is replaced by moving a link. Raises OSError."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
