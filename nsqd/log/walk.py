"""Going through the bytes of a file of the log from append to append, damage included.

All readers of appends use it: pages, recovery, compaction, and `nsqd-data`, which reports damage.
"""

import errno
from collections.abc import Iterator
from typing import Final

from nsqd.log.disk import Disk
from nsqd.log.layout import MAX_HEADER_BYTES, Append, decode_append, find_append, mended_header

# The search for headers reads chunks of this size.
_WINDOW_BYTES: Final = 1 << 20


class Window:
    """The part of a file that is in memory: *data*, which lies at *base*. In this class it is everything."""

    def __init__(self, data: bytes, base: int) -> None:
        self.data = data
        self.base = base
        # The offset behind the last byte that may be asked for.
        self.end = base + len(data)

    def reach(self, start: int, end: int) -> None:
        """Have these bytes in memory, as far as they exist. Raises OSError."""

    def cut(self, start: int, end: int) -> bytes:
        """The bytes of ``start <= offset < end``, as far as they exist. Raises OSError."""
        self.reach(start, end)
        return self.data[start - self.base : max(0, end - self.base)]


class FileWindow(Window):
    """A window on an open file that is read chunk by chunk."""

    def __init__(self, disk: Disk, fd: int, name: str) -> None:
        """Raises OSError."""
        super().__init__(b"", 0)
        self.end = disk.size(fd)
        self._disk = disk
        self._fd = fd
        self._name = name

    def reach(self, start: int, end: int) -> None:
        end = min(end, self.end)
        if self.base <= start and end <= self.base + len(self.data):
            return
        size = min(max(end, start + _WINDOW_BYTES), self.end) - start
        data = self._disk.read(self._fd, size, start)
        if len(data) < size:
            raise OSError(errno.EIO, "short read", self._name)
        self.data = data
        self.base = start


class FoundAppend:
    """An append with its header at ``start <= offset < end``, or bytes that belong to no append.

    *mend* is the corrected header when one byte of it is wrong, else empty. The data is not checked.
    """

    __slots__ = ("append", "end", "mend", "start")

    def __init__(self, start: int, end: int, append: Append | None, mend: bytes = b"") -> None:
        self.start = start
        self.end = end
        self.append = append
        self.mend = mend

    def __repr__(self) -> str:
        return f"<FoundAppend {self.start}..{self.end} {self.append}>"


def walk(window: Window, at: int, salt: int, least: int) -> Iterator[FoundAppend]:
    """Yield place after place from the offset *at* to the end of *window*; no message is before *least*.

    Raises OSError, and NewerVersion.
    """
    end = window.end
    while at < end:
        window.reach(at, at + MAX_HEADER_BYTES)
        append, mend = decode_append(window.data, at - window.base, window.base, salt), b""
        if append is None:
            mend = mended_header(window.data, at - window.base, salt)
            if mend:
                append = decode_append(mend, 0, at, salt)
        if append is None:
            following = _search(window, at, salt, least)
            stop = end if following is None else following.begin
            yield FoundAppend(at, stop, None)
            at = stop
            continue
        yield FoundAppend(at, append.end, append, mend)
        least = max(least, append.next)
        at = append.end


def _search(window: Window, at: int, salt: int, least: int) -> Append | None:
    """The next whole header behind *at*."""
    while True:
        window.reach(at, at + _WINDOW_BYTES)
        found = find_append(window.data, at - window.base, window.base, salt, least)
        read_to = window.base + len(window.data)
        if found is not None or read_to >= window.end:
            return found
        # A header may lie across two windows.
        at = max(at + 1, read_to - MAX_HEADER_BYTES)
