"""Writing a segment: appending to its file, which may be closed in between, and syncing it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk, opening_to_sync
from nsqd.log.frames import Block, published_ns
from nsqd.log.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    LOG_ID_SHIFT,
    MESSAGE_HEADERS,
    NOTE,
    append_header,
)
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts

# In place of a descriptor while the file is closed.
_CLOSED: Final = -1


def new_log_id() -> int:
    """A random number of 32 bits; 0 stands for an unknown one."""
    return int.from_bytes(os.urandom(4), "little") or 1


def new_salt(log_id: int) -> int:
    """The salt of another file of this log."""
    return log_id << LOG_ID_SHIFT | int.from_bytes(os.urandom(4), "little")


class SegmentWriter:
    """See the module."""

    __slots__ = ("_disk", "_keep", "_starts", "fd", "segment")

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        path: Path | None = None,
        keep: Callable[[Segment, int, Starts], None] | None = None,
    ) -> None:
        """Create the file, at *path* if it has another name until it is finished. Raises OSError.

        *keep* is called for each page that was written, with its offset and where its appends start.
        """
        self.segment = segment
        self._disk = disk
        self._keep = keep
        self._starts = Starts(segment.first, FILE_HEADER_BYTES)
        self.fd = disk.create(path or segment.path)

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def reopen(self) -> bool:
        """Open the file again for appending; False if it was removed or has another size. Raises OSError."""
        try:
            fd = self._disk.open_append(self.segment.path)
        except FileNotFoundError:
            return False
        if self._disk.size(fd) != self.segment.size:
            self._disk.close(fd)
            return False
        self.fd = fd
        return True

    def sync(self) -> None:
        """Make the file durable, whether or not it is open. Raises CannotOpen, and OSError."""
        if self.is_open:
            self._disk.sync(self.fd)
            return
        with opening_to_sync():
            fd = self._disk.open_read(self.segment.path)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def close(self) -> None:
        """Close the file, if it is open. Raises OSError."""
        fd, self.fd = self.fd, _CLOSED
        if fd >= 0:
            self._disk.close(fd)

    def truncate(self) -> bool:
        """Remove the bytes of an append that failed; False when the file cannot be used any more."""
        if not self.segment.pages:
            # The file header belongs to the first append.
            return False
        try:
            self._disk.truncate_open(self.fd, self.segment.size)
        except OSError:
            return False
        return True

    def append(self, blocks: list[Block], notes: list[tuple[int, bytes]]) -> list[bytes]:
        """Write notes, each with its number, then blocks; returns the bytes that were written.

        Raises OSError; then :meth:`truncate` must succeed before the next append.
        """
        segment = self.segment
        salt = segment.header.salt
        pieces: list[bytes] = [] if segment.page_offsets else [segment.header.encode()]
        position = blocks[0].first if blocks else segment.next
        for number, content in notes:
            # A note has no due time, so that field has its number.
            pieces.append(append_header(salt, position, 0, number, content, NOTE))
            pieces.append(content)
        for block in blocks:
            data = block.data
            flags = MESSAGE_HEADERS if block.has_headers else 0
            count = block.next - block.first
            pieces.append(append_header(salt, block.first, count, block.due_ns, data, flags))
            pieces.append(data)
        self._disk.append(self.fd, pieces)
        end = segment.size
        for number, content in notes:
            end += APPEND_HEADER_BYTES + len(content)
            if segment.starts_page:
                self._next_page()
            self._starts.add(position, end)
            segment.add(0, position, end, 0)
            segment.last_note = number
        for block in blocks:
            end += APPEND_HEADER_BYTES + len(block.data)
            if segment.starts_page:
                self._next_page()
            time_ns = 0 if segment.page_times[-1] else published_ns(block.data)
            self._starts.add(block.first, end)
            segment.add(block.next - block.first, block.next, end, time_ns)
        return pieces

    def _next_page(self) -> None:
        self.end_page()
        self.segment.begin_page()

    def end_page(self) -> None:
        """End the page that was written last: nothing more is appended to it."""
        starts, segment = self._starts, self.segment
        if self._keep is not None and len(starts):
            self._keep(segment, segment.page_offsets[-1], starts)
        self._starts = Starts(segment.next, segment.size)
