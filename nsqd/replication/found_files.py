"""The files of a topic's copy as a stop, a crash or a power cut left them. For any thread."""

from pathlib import Path
from typing import Final

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.layout import NewerVersion
from nsqd.replication.copy_file import CopyFile
from nsqd.replication.durable import sync_file
from nsqd.replication.frames import is_copied_name
from nsqd.replication.sound import opened, survey
from nsqd.storage.checkpoint import BadCheckpoint, Sealed, with_serial
from nsqd.storage.slots import NAMES

# Suffixes of files that are not complete.
NEW: Final = ".new"
INCOMPLETE: Final = (".tmp", NEW)
# Complete checkpoints that get their final names after the next fsync, because the file with that name may be
# the only durable checkpoint of the topic.
UNSYNCED: Final = {name + NEW: name for name in NAMES}


def settle(disk: Disk, path: Path, topic: str) -> list[str] | None:
    """Give complete files in a folder their names, and remove incomplete ones.

    Returns the names, or None when there is no folder. Raises OSError.
    """
    names = []
    try:
        found = disk.names(path)
    except FileNotFoundError:
        return None
    for name in found:
        final = UNSYNCED.get(name, "")
        if final:
            if _is_checkpoint(disk, path / name, topic):
                sync_file(disk, path / name)
                disk.rename(path / name, path / final)
                disk.sync_folder(path)
                names.append(final)
            else:
                disk.remove(path / name)
        elif name.endswith(NEW) and is_copied_name(name):
            disk.remove(path / name)
        else:
            names.append(name)
    return sorted(set(names))


def _is_checkpoint(disk: Disk, path: Path, topic: str) -> bool:
    """Whether a file that a power cut may have damaged is a checkpoint; a newer version is one."""
    try:
        Sealed(disk.read_file(path), topic)
    except BadCheckpoint:
        return False
    except NewerVersion:
        return True
    return True


def newest_checkpoint(disk: Disk, path: Path, topic: str) -> tuple[str, bytes] | None:
    """The name of the checkpoint that counts, and its content under the serial number 0. Raises OSError.

    None if there is none, or if it has that number.
    """
    found: list[tuple[int, str, bytes]] = []
    for name in NAMES:
        try:
            content = disk.read_file(path / name)
            found.append((Sealed(content, topic).serial, name, content))
        except (FileNotFoundError, BadCheckpoint):
            continue
        except NewerVersion:
            return None
    if not found or (len(found) == 1 and not found[0][0]):
        return None
    _, name, content = max(found)
    return name, with_serial(content, 0)


def find_file(disk: Disk, path: Path) -> CopyFile | None:
    """A file of a copy; its torn end is cut off. None when nothing in it can be used. Raises OSError."""
    fd = disk.open_read(path)
    try:
        size = disk.size(fd)
    finally:
        disk.close(fd)
    if path.name in NAMES:
        return CopyFile(path.name, size)
    try:
        return _find_log(disk, path, size)
    except NewerVersion as error:
        found = CopyFile(path.name, size)
        found.problem = str(error)
        found.sealed = True
        return found


def _find_log(disk: Disk, path: Path, size: int) -> CopyFile | None:
    segment = opened(disk, path)
    if segment is None:
        # Nothing in it can be checked without its header.
        disk.remove(path)
        return None
    if segment_index.load(disk, segment, size):
        found = CopyFile(path.name, segment.size, segment.header.salt, segment)
        found.sealed = True
        return found
    segment = opened(disk, path) or segment
    extent = survey(disk, segment)
    found = CopyFile(path.name, segment.size, segment.header.salt, segment)
    if extent.is_damaged:
        # The log's own recovery reads what is behind the damage, so it stays until a stream replaces it.
        found.bounds = (segment.first, extent.next, extent.last_note)
    elif segment.size < size:
        disk.truncate(path, segment.size)
    return found
