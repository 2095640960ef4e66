"""A segment: one file of a topic's log, with its extent, its state, and where its pages begin.

`segment_writer` appends to it, `pages` reads it. Segments are numbered: ``00000001.log``, and
``00000001.2.log`` when it was compacted twice. `layout` has the bytes.
"""

from bisect import bisect_right
from enum import Enum
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.log.layout import FILE_HEADER_BYTES, FileHeader

# Appends are read back together in pages of at least this size.
PAGE_BYTES: Final = 256 << 10


class SegmentState(Enum):
    """What may happen to a segment next. A segment is in one state, and moves on only as `FOLLOWING` says."""

    # The log appends to it.
    OPEN = "open"
    # Nothing is appended any more, and not all of it is durable.
    SEALED = "sealed"
    # All of it is durable.
    SYNCED = "synced"


# What a segment in each state may become.
FOLLOWING: Final = {
    SegmentState.OPEN: (SegmentState.SEALED,),
    SegmentState.SEALED: (SegmentState.SYNCED,),
    SegmentState.SYNCED: (),
}


class Segment:
    """The extent of one segment, and where its pages begin, so that a sequence is found quickly."""

    __slots__ = (
        "_page",
        "folder",
        "generation",
        "header",
        "index_path",
        "last_note",
        "messages",
        "next",
        "number",
        "page_firsts",
        "page_offsets",
        "page_times",
        "path",
        "size",
        "state",
        "synced",
        "synced_notes",
    )

    def __init__(self, folder: Path, number: int, header: FileHeader, generation: int = 0) -> None:
        self.number = number
        self.header = header
        # How often the segment was compacted.
        self.generation = generation
        self.move_to(folder)
        self.messages = 0
        self.next = header.first
        self.size = FILE_HEADER_BYTES
        # The number of the newest note in it.
        self.last_note = 0
        self.state = SegmentState.OPEN
        # All below this sequence is durable.
        self.synced = header.first
        # Notes up to this number are durable.
        self.synced_notes = header.notes
        self.page_firsts: list[int] = []
        self.page_offsets: list[int] = []
        # The time index: when the first message of each page was published, in ns since 1970. A page that has
        # only notes has the time of the next page with messages, or 0 when there is none yet.
        self.page_times: list[int] = []
        # The page of the last read, because a sequential reader reads it again.
        self._page = 0

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.first}..{self.next} {self.size} bytes>"

    @property
    def first(self) -> int:
        return self.header.first

    @property
    def began_ns(self) -> int:
        """When its first message was published, in ns since 1970; 0 if it has none."""
        return self.page_times[0] if self.page_times else 0

    @property
    def closed(self) -> bool:
        """Whether the file is neither appended to nor synced any more."""
        return self.state is SegmentState.SYNCED

    @property
    def is_durable(self) -> bool:
        """Whether it has data, and all of it was synced."""
        return bool(self.pages) and self.synced >= self.next and self.synced_notes >= self.last_note

    def become(self, state: SegmentState) -> None:
        if state not in FOLLOWING[self.state]:
            raise AssertionError(f"{self} is {self.state.value} and cannot become {state.value}")
        self.state = state
        if state is SegmentState.SYNCED:
            self.synced, self.synced_notes = self.next, self.last_note

    def end_synced(self) -> None:
        """Mark it as whole and durable: it is from before the start, or a compaction made it."""
        self.become(SegmentState.SEALED)
        self.become(SegmentState.SYNCED)

    def move_to(self, folder: Path) -> None:
        """Its files are in this folder."""
        self.folder = folder
        name = f"{self.number:08}.{self.generation}" if self.generation else f"{self.number:08}"
        self.path = folder / f"{name}.log"
        self.index_path = folder / f"{name}.index"

    @property
    def wants_time(self) -> bool:
        """Whether the messages that are appended next are the first of a page."""
        return self.starts_page or not self.page_times[-1]

    @property
    def starts_page(self) -> bool:
        """Whether the next append begins a page."""
        return not self.page_offsets or self.size - self.page_offsets[-1] >= PAGE_BYTES

    def grow(self, messages: int, next_seq: int, end: int, time_ns: int) -> None:
        """Add an append of so many *messages* below *next_seq*, which ends at the offset *end*."""
        if self.starts_page:
            self.begin_page()
        self.add(messages, next_seq, end, time_ns)

    def begin_page(self) -> None:
        """Begin a page with the next append."""
        self.page_firsts.append(self.next)
        self.page_offsets.append(self.size)
        self.page_times.append(0)

    def add(self, messages: int, next_seq: int, end: int, time_ns: int) -> None:
        """See :meth:`grow`; the append belongs to the page that was begun last."""
        if messages and not self.page_times[-1]:
            # Only notes may come before it in these pages, so no message of that time or later is missed.
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
        """About where *seq* lies, assuming that the messages of a page have one size."""
        if seq >= self.next:
            return self.size
        page = max(0, bisect_right(self.page_firsts, seq) - 1)
        first, end = self.page_firsts[page], self.page_end(page)
        return self.page_offsets[page] + self.page_size(page) * (seq - first) // max(1, end - first)

    def page_end(self, page: int) -> int:
        """The sequence behind the last message of a page."""
        return self.page_firsts[page + 1] if page + 1 < self.pages else self.next
