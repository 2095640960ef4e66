"""The segments of one topic's log: which messages exist, and their blocks.

A read returns a block or a gap, or it fails temporarily.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from nsqd.log import pages
from nsqd.log.cache import Cache
from nsqd.log.disk import Disk, error_text
from nsqd.log.frames import Block, Buffer
from nsqd.log.gaps import EVERYTHING, CannotRead, Gap, Why
from nsqd.log.segment import Segment
from nsqd.log.tail import MAX_READS_PER_TURN


class Tap(Protocol):
    """Receives every write to one log, in order, while the log is replicated."""

    def appended(self, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        """*pieces* were written to a file at *offset*: whole appends, at 0 after the file header."""

    def segments_removed(self, segments: list[Segment]) -> None:
        """*segments* are removed: none of their messages is wanted, or a compacted one replaces them."""

    def lost(self) -> None:
        """Files of the log were removed by hand: only their replicas are left."""

    def deleted(self) -> None:
        """The topic was deleted, with all its files."""


class Segments:
    """The segments of one topic, oldest first; `Appender` and `Cleaner` change them."""

    __slots__ = (
        "_firsts",
        "_logged",
        "_segments",
        "cache",
        "deleted",
        "disk",
        "end",
        "folder",
        "notes",
        "read_only",
        "removable",
        "tap",
        "warn",
    )

    def __init__(
        self, disk: Disk, folder: Path, warn: Callable[[str], None], cache: Cache, *, read_only: bool = False
    ) -> None:
        """*warn* is called with a sentence about each problem; *cache* is that of the node.

        A *read_only* log is a copy of another nsqd's: its origin has the messages that the copy lacks, or
        reports them as lost.
        """
        self.disk = disk
        self.folder = folder
        self.warn = warn
        self.cache = cache
        self.read_only = read_only
        # The sequence after the last message that was ever stored, and how many notes were stored.
        self.end = 0
        self.notes = 0
        # The topic was deleted; nothing of it may be looked up by its name any more.
        self.deleted = False
        # Receives every write while the log is replicated.
        self.tap: Tap | None = None
        # Segments that were removed and whose files still exist.
        self.removable: deque[Segment] = deque()
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        # Losses that were already logged.
        self._logged: set[Gap] = set()

    # --- the list ---

    def __len__(self) -> int:
        return len(self._segments)

    def __contains__(self, segment: object) -> bool:
        return segment in self._segments

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    def load(self, segments: list[Segment]) -> None:
        """Take over the segments that a start has found, oldest first."""
        self._segments = segments
        self._firsts = [segment.first for segment in segments]

    def add(self, segment: Segment) -> None:
        """Add the newest segment."""
        self._segments.append(segment)
        self._firsts.append(segment.first)

    def remove(self, segments: list[Segment]) -> None:
        """Remove *segments* from the log; their files stay."""
        for segment in segments:
            self.cache.forget(segment)
            index = self._segments.index(segment)
            del self._segments[index], self._firsts[index]

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Replace neighbours by one segment."""
        index = self._segments.index(old[0])
        self._segments[index : index + len(old)] = [new]
        self._firsts[index : index + len(old)] = [new.first]
        for segment in old:
            self.cache.forget(segment)

    # --- contents ---

    @property
    def first_seq(self) -> int | None:
        """The first sequence on disk; None when there is no segment."""
        return self._firsts[0] if self._firsts else None

    def extents(self) -> list[tuple[int, int]]:
        """The ranges of messages ``start <= seq < end``, in order. No sequence outside can be read."""
        found: list[tuple[int, int]] = []
        for segment in self._segments:
            if segment.first == segment.next or (segment.header.ends and not segment.pages):
                continue
            if found and found[-1][1] == segment.first:
                found[-1] = (found[-1][0], segment.next)
            else:
                found.append((segment.first, segment.next))
        return found

    def compacted_from(self, seq: int) -> list[Segment]:
        """The compacted segments that have, or could have, messages from *seq* on."""
        return [one for one in self._segments if one.header.ends and one.pages and one.next > seq]

    def losses(self, log_start: int | None = None) -> list[Gap]:
        """The gaps of messages that were stored between or behind the segments and are missing.

        With *log_start*, below which messages were removed, also the gap before the first segment.
        """
        found: list[Gap] = []
        if log_start is not None:
            missing = self._before_first(log_start)
            if missing is not None and missing.is_loss:
                found.append(missing)
        behind = [self._behind(index) for index in range(len(self._segments))]
        return found + [gap for gap in behind if gap is not None and gap.end > (log_start or 0)]

    def _behind(self, index: int) -> Gap | None:
        """The messages that were stored behind a segment and before the next one, and are missing."""
        start = self._segments[index].next
        is_last = index + 1 == len(self._segments)
        end = self.end if is_last else self._segments[index + 1].header.follows
        return Gap(start, end, Why.REMOVED) if start < end else None

    def origins(self) -> set[int]:
        """The ids of the nodes that wrote the segments."""
        return {segment.header.origin for segment in self._segments}

    @property
    def synced(self) -> int:
        """Messages below this sequence are durable."""
        for segment in self._segments:
            if segment.synced < segment.next:
                return segment.synced
        return self.end

    @property
    def synced_notes(self) -> int:
        """Notes up to this number are durable."""
        for segment in self._segments:
            if segment.synced_notes < segment.last_note:
                return segment.synced_notes
        return self.notes

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments)

    def seek(self, time_ns: int) -> int:
        """A sequence less than a page before the first message published at *time_ns* or later."""
        for segment in reversed(self._segments):
            times = segment.page_times
            timed = len(times)
            while timed and not times[timed - 1]:
                timed -= 1
            page = bisect_right(times, time_ns - 1, 0, timed) - 1
            if page >= 0:
                return segment.page_firsts[page]
        return self._firsts[0] if self._firsts else self.end

    def page_start(self, seq: int) -> int:
        """The first sequence of the page with *seq*; outside of the segments, the end of the one before."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            return 0
        segment = self._segments[at]
        if seq >= segment.next:
            return segment.next
        return segment.page_firsts[segment.page_of(seq)] if segment.pages else segment.first

    def weigh(self, start: int, end: int, count: Callable[[int, int], int]) -> int:
        """About how many bytes of the files some messages of ``start <= seq < end`` take.

        *count* says how many of a part of them are meant; all messages of a page count as equally long.
        """
        weight = 0
        for segment in self._segments[max(0, bisect_right(self._firsts, start) - 1) :]:
            if segment.first >= end:
                break
            low, high = max(start, segment.first), min(end, segment.next)
            meant = count(low, high) if low < high and segment.pages else 0
            if meant == high - low:
                weight += segment.offset_of(high) - segment.offset_of(low)
            elif meant > 0:
                for page in range(segment.page_of(low), segment.page_of(high - 1) + 1):
                    first, behind = segment.page_firsts[page], segment.page_end(page)
                    part = count(max(low, first), min(high, behind))
                    weight += segment.page_size(page) * part // max(1, behind - first)
        return weight

    # --- reading ---

    def read(self, seq: int, end: int = EVERYTHING) -> Block | Gap | None:
        """The stored block that holds *seq*, the gap in which it lies, or None past the end.

        The reader wants nothing from *end* on, so for few messages little is read. Raises CannotRead.
        """
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            return self._before_first(seq)
        segment = self._segments[at]
        if seq < segment.next:
            return self._read_in(segment, seq, end)
        missing = self._behind(at)
        if missing is not None and seq < missing.end:
            return self._lost(missing)
        return Gap(seq, self._firsts[at + 1], Why.UNUSED) if at + 1 < len(self._firsts) else None

    @property
    def reads(self) -> int:
        """How many reads of the disk there were so far, of all topics."""
        return self.cache.reads

    def frames(self, seqs: list[int], room: int, *, extended: bool) -> list[Buffer]:
        """The frames of *seqs*, which are sorted, in order until *room* bytes are full.

        They are the frames for an *extended* or a plain subscriber.
        They end after some `MAX_READS_PER_TURN` reads of the disk, and before a message that is missing or
        cannot be read now: `read` says which.
        """
        found: list[Buffer] = []
        at = 0
        end_reads = self.cache.reads + MAX_READS_PER_TURN
        while at < len(seqs) and room > 0 and (reads := end_reads - self.cache.reads) > 0:
            segment = self._segments[bisect_right(self._firsts, seqs[at]) - 1] if self._segments else None
            if segment is None or not segment.pages or not segment.first <= seqs[at] < segment.next:
                break
            page = segment.page_of(seqs[at])
            behind = bisect_left(seqs, segment.page_end(page), at)
            wanted = seqs[at:behind]
            try:
                frames = pages.frames(
                    self.disk, self.cache, segment, page, wanted, room, reads, extended=extended
                )
            except OSError:
                break
            found += frames
            if len(frames) < len(wanted):
                break
            room -= sum(map(len, frames))
            at = behind
        return found

    def _before_first(self, seq: int) -> Gap | None:
        """The gap in which *seq* lies, if that is before the first segment.

        The numbers between the last message before a restart and the first one after it were never used.
        """
        if not self._segments:
            return Gap(seq, self.end, Why.REMOVED) if seq < self.end else None
        oldest = self._segments[0]
        if seq >= oldest.first:
            return None
        # The first file of a topic has no predecessor. For other files without that number it is unknown.
        follows = oldest.header.follows or (0 if oldest.number == 1 else oldest.first)
        if seq < follows:
            return Gap(seq, min(follows, oldest.first), Why.REMOVED)
        return Gap(seq, oldest.first, Why.UNUSED)

    def _read_in(self, segment: Segment, seq: int, end: int) -> Block | Gap:
        if not segment.pages:
            return Gap(seq, segment.next, Why.COMPACTED)
        try:
            found = pages.read(self.disk, self.cache, segment, segment.page_of(seq), seq, end)
        except OSError as error:
            raise CannotRead(error_text(error)) from error
        if found is None:
            found = Gap(seq, seq + 1, Why.DAMAGED)
        return self._lost(found) if isinstance(found, Gap) and found.is_loss else found

    def _lost(self, gap: Gap) -> Gap:
        if not self.read_only and gap not in self._logged:
            self._logged.add(gap)
            count = gap.end - gap.start
            self.warn(
                f"{self.folder}: up to {count} messages from {gap.start:x} on are lost: {gap.why.value}"
            )
        return gap
