"""Making the contents of a copy durable: files, and the folders that they lie in."""

from pathlib import Path

from nsqd.log.disk import Disk


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
