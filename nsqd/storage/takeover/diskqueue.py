"""Reading the disk queues of the original: the messages that its topics and channels had written to disk.

Files ``<name>.diskqueue.NNNNNN.dat`` hold records ``int32 length | int64 timestamp | uint16 attempts |
16 bytes id | body``, big-endian; ``<name>.diskqueue.meta.dat`` says where reading and writing stood.
"""

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nsqd.log.disk import Disk
from nsqd.log.frames import WallNs

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">qH16s")
_META: Final = re.compile(r"(-?\d+)\n(\d+),(\d+)\n(\d+),(\d+)\n")
_FILE_NAME: Final = re.compile(r"(.+)\.diskqueue\.(meta|\d{6,})\.dat")


class Record(NamedTuple):
    """One message; *attempts* is how often it was delivered."""

    timestamp_ns: WallNs
    attempts: int
    body: bytes


class DiskQueue:
    """The files of one queue: of topic ``T``, or of channel ``T:C``."""

    def __init__(self, name: str, meta_path: Path | None, files: dict[int, Path]) -> None:
        self.name = name
        self.meta_path = meta_path
        self.files = files

    @property
    def paths(self) -> list[Path]:
        """All files of the queue."""
        return [*self.files.values(), *([self.meta_path] if self.meta_path else [])]

    def records(self, disk: Disk, warn: Callable[[str], None]) -> Iterator[Record]:
        """The messages that had not been read, in order.

        The files are read to their real end, because after a crash the meta file is behind them. At a damaged
        place the rest of the file is skipped, with a warning, and the next file is read. Raises OSError.
        """
        file_number, position = self._reading_position(disk)
        for number in sorted(self.files):
            if number < file_number:
                continue
            start = position if number == file_number else 0
            yield from _records_of(disk, self.files[number], start, warn)

    def _reading_position(self, disk: Disk) -> tuple[int, int]:
        text = disk.read_file(self.meta_path).decode("latin-1") if self.meta_path else ""
        match = _META.match(text)
        # Without a meta file nothing had been synced yet, so nothing counts as read.
        return (int(match[2]), int(match[3])) if match else (0, 0)


def find_queues(disk: Disk, data_path: Path) -> dict[str, DiskQueue]:
    """All queues that have files, by name. Raises OSError."""
    queues: dict[str, DiskQueue] = {}
    for name in disk.names(data_path):
        match = _FILE_NAME.fullmatch(name)
        if match:
            path = data_path / name
            queue = queues.setdefault(match[1], DiskQueue(match[1], None, {}))
            if match[2] == "meta":
                queue.meta_path = path
            else:
                queue.files[int(match[2])] = path
    return queues


def _records_of(disk: Disk, path: Path, start: int, warn: Callable[[str], None]) -> Iterator[Record]:
    content = disk.read_file(path)
    at = start
    while at < len(content):
        begin = at + _LENGTH.size
        length = int(_LENGTH.unpack_from(content, at)[0]) if begin <= len(content) else -1
        if length <= _HEAD.size or begin + length > len(content):
            warn(
                f"{path}: no message at {at}, the {len(content) - at} bytes from there on are not taken over"
            )
            return
        timestamp_ns, attempts, _ = _HEAD.unpack_from(content, begin)
        yield Record(timestamp_ns, attempts, content[begin + _HEAD.size : begin + length])
        at = begin + length
