"""A segment: one file of a topic's log, where its pages begin, and the writing of it; `pages` reads it.

Segments are numbered: ``00000001.log``, and ``00000001.2.log`` when it was compacted twice. `layout` has the
bytes.
"""

import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.log.frames import Block, published_ns
from nsqd.log.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    MESSAGE_HEADERS,
    NOTE,
    FileHeader,
    append_header,
)
from nsqd.log.starts import Starts

# Appends are read back together in pages of at least this size.
PAGE_BYTES: Final = 256 << 10
# In place of a descriptor: the file is closed for the time being.
_CLOSED: Final = -1


def new_salt() -> int:
    return int.from_bytes(os.urandom(8), "little")


class Segment:
    """The extent of one segment, and where its pages begin, so that a sequence is found quickly."""

    __slots__ = (
        "_page",
        "folder",
        "generation",
        "header",
        "last_note",
        "messages",
        "next",
        "number",
        "page_firsts",
        "page_offsets",
        "page_times",
        "size",
        "synced",
    )

    def __init__(self, folder: Path, number: int, header: FileHeader, generation: int = 0) -> None:
        self.folder = folder
        self.number = number
        self.header = header
        # How often the segment was compacted.
        self.generation = generation
        self.messages = 0
        self.next = header.first
        self.size = FILE_HEADER_BYTES
        # The number of the newest note in it.
        self.last_note = 0
        # All below this sequence is durable.
        self.synced = header.first
        self.page_firsts: list[int] = []
        self.page_offsets: list[int] = []
        # When the first message of the page was published, in ns since 1970: the time index. Of a page with
        # notes only that of the next one that has messages; 0 where there is none yet.
        self.page_times: list[int] = []
        # The page that was asked for last: whoever reads in order asks for it again.
        self._page = 0

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.first}..{self.next} {self.size} bytes>"

    @property
    def first(self) -> int:
        return self.header.first

    @property
    def path(self) -> Path:
        return self.folder / f"{self._name}.log"

    @property
    def index_path(self) -> Path:
        return self.folder / f"{self._name}.index"

    @property
    def _name(self) -> str:
        return f"{self.number:08}.{self.generation}" if self.generation else f"{self.number:08}"

    @property
    def wants_time(self) -> bool:
        """Whether the messages that are appended next are the first of a page."""
        return self.starts_page or not self.page_times[-1]

    @property
    def starts_page(self) -> bool:
        """Whether the next append begins a page."""
        return not self.page_offsets or self.size - self.page_offsets[-1] >= PAGE_BYTES

    def grow(self, messages: int, next_seq: int, end: int, time_ns: int) -> None:
        """One more append, of so many messages below *next_seq*, ends at the offset *end*."""
        if self.starts_page:
            self.page_firsts.append(self.next)
            self.page_offsets.append(self.size)
            self.page_times.append(0)
        if messages and not self.page_times[-1]:
            # Before it are notes at most, so nothing of that time or later is missed.
            place = len(self.page_times) - 1
            while place >= 0 and not self.page_times[place]:
                self.page_times[place] = time_ns
                place -= 1
        self.messages += messages
        self.next = next_seq
        self.size = end

    def remove(self, disk: Disk) -> None:
        """Delete the files."""
        disk.remove(self.index_path)
        disk.remove(self.path)

    # --- its pages ---

    @property
    def pages(self) -> int:
        return len(self.page_firsts)

    def page_of(self, seq: int) -> int:
        """The page in which *seq* lies if it lies in this segment."""
        firsts, page = self.page_firsts, self._page
        if page + 1 < len(firsts) and firsts[page] <= seq < firsts[page + 1]:
            return page
        self._page = page = max(0, bisect_right(firsts, seq) - 1)
        return page

    def page_size(self, page: int) -> int:
        end = self.page_offsets[page + 1] if page + 1 < self.pages else self.size
        return end - self.page_offsets[page]

    def offset_of(self, seq: int) -> int:
        """About where *seq* lies, as if the messages of a page were of one size."""
        if seq >= self.next:
            return self.size
        page = max(0, bisect_right(self.page_firsts, seq) - 1)
        first, end = self.page_firsts[page], self.page_end(page)
        return self.page_offsets[page] + self.page_size(page) * (seq - first) // max(1, end - first)

    def page_end(self, page: int) -> int:
        """The sequence behind a page."""
        return self.page_firsts[page + 1] if page + 1 < self.pages else self.next


class SegmentWriter:
    """The segment a topic appends to."""

    __slots__ = ("_disk", "_keep", "_starts", "fd", "segment")

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        path: Path | None = None,
        keep: Callable[[Segment, int, Starts], None] | None = None,
    ) -> None:
        """Create the file, which may have another name until it is finished. Raises OSError.

        *keep* is given of each page that was written where it lies and where its appends start.
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
        """Open the file again to append to it; False when it is not there as it was left. Raises OSError."""
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
        """Make the file durable, which need not be open for that. Raises OSError."""
        if self.is_open:
            self._disk.sync(self.fd)
            return
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

    def append(self, blocks: list[Block], notes: list[tuple[int, bytes]]) -> None:
        """Write notes, each with its number, and behind them blocks.

        Raises OSError; then the segment must not be written to again.
        """
        segment = self.segment
        salt = segment.header.salt
        pieces: list[bytes] = [] if segment.page_offsets else [segment.header.encode()]
        position = blocks[0].first if blocks else segment.next
        for number, content in notes:
            # A note has no due time: its number stands there.
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
                self.end_page()
            self._starts.add(position, end)
            segment.grow(0, position, end, 0)
            segment.last_note = number
        for block in blocks:
            end += APPEND_HEADER_BYTES + len(block.data)
            time_ns = published_ns(block.data) if segment.wants_time else 0
            if segment.starts_page:
                self.end_page()
            self._starts.add(block.first, end)
            segment.grow(block.next - block.first, block.next, end, time_ns)

    def end_page(self) -> None:
        """Nothing more comes into the page that was written last."""
        starts, segment = self._starts, self.segment
        if self._keep is not None and len(starts):
            self._keep(segment, segment.page_offsets[-1], starts)
        self._starts = Starts(segment.next, segment.size)
