"""The log of one topic as it lies on disk, for reading: which messages there are, and a block of them.

Reading answers one of three things: a block, a gap, or it fails for now.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from nsqd.engine.block import Block
from nsqd.engine.gaps import CannotRead, Gap, Why
from nsqd.storage.disk import Disk
from nsqd.storage.segment import Segment

# Pages that were read back and may be wanted again: by the next channel, or a message at a time.
_CACHED_PAGES: Final = 4


class StoredLog:
    """The segments of one topic, oldest first."""

    __slots__ = ("_cache", "_disk", "_firsts", "_segments", "_told", "_warn", "end", "folder")

    def __init__(self, disk: Disk, folder: Path, warn: Callable[[str], None]) -> None:
        """*warn* is told in one sentence of what is found lost."""
        self.folder = folder
        # The sequence after the last message that was ever stored.
        self.end = 0
        self._disk = disk
        self._warn = warn
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        self._cache: OrderedDict[tuple[int, int, int, int], list[Block | Gap]] = OrderedDict()
        # Losses that were logged.
        self._told: set[Gap] = set()

    # --- what there is ---

    @property
    def first_seq(self) -> int | None:
        """The first sequence on disk; None when there is no segment."""
        return self._firsts[0] if self._firsts else None

    def extents(self) -> list[tuple[int, int]]:
        """Where messages are: ``start <= seq < end``, in order; no sequence between them can be read."""
        found: list[tuple[int, int]] = []
        for segment in self._segments:
            if segment.first == segment.next:
                continue
            if found and found[-1][1] == segment.first:
                found[-1] = (found[-1][0], segment.next)
            else:
                found.append((segment.first, segment.next))
        return found

    def losses(self) -> list[Gap]:
        """What was stored between or behind the segments and is no longer there."""
        found: list[Gap] = []
        for before, after in zip(self._segments, self._segments[1:], strict=False):
            if before.next < after.header.follows:
                found.append(Gap(before.next, after.header.follows, Why.REMOVED))
        if self._segments and self._segments[-1].next < self.end:
            found.append(Gap(self._segments[-1].next, self.end, Why.REMOVED))
        return found

    def origins(self) -> set[int]:
        """The ids of the nodes that wrote the segments."""
        return {segment.header.origin for segment in self._segments}

    @property
    def segments(self) -> Sequence[Segment]:
        """The files of the log, oldest first."""
        return self._segments

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments)

    def seek(self, time_ns: int) -> int:
        """A sequence less than a page before the first message published at *time_ns* or later."""
        for segment in reversed(self._segments):
            page = bisect_right(segment.page_times, time_ns - 1) - 1
            if page >= 0:
                return segment.page_firsts[page]
        return self._firsts[0] if self._firsts else self.end

    # --- reading ---

    def read(self, seq: int) -> Block | Gap | None:
        """The stored block that holds *seq*, the gap in which it lies, or None past the end.

        Raises CannotRead.
        """
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            end = self._firsts[0] if self._firsts else self.end
            return Gap(seq, end, Why.REMOVED) if seq < end else None
        segment = self._segments[at]
        if seq < segment.next:
            return self._read_in(segment, seq)
        if at + 1 == len(self._segments):
            return self._lost(Gap(segment.next, self.end, Why.REMOVED)) if seq < self.end else None
        following = self._segments[at + 1]
        if seq < following.header.follows:
            return self._lost(Gap(segment.next, following.header.follows, Why.REMOVED))
        return Gap(seq, following.first, Why.UNUSED)

    def _read_in(self, segment: Segment, seq: int) -> Block | Gap:
        if not segment.pages:
            return Gap(seq, segment.next, Why.COMPACTED)
        for found in self._page(segment, segment.page_of(seq)):
            if isinstance(found, Block):
                if found.first <= seq < found.next:
                    return found
            elif found.start <= seq < found.end:
                return self._lost(found) if found.is_loss else found
        return self._lost(Gap(seq, seq + 1, Why.DAMAGED))

    def _page(self, segment: Segment, page: int) -> list[Block | Gap]:
        # The last page of the newest segment grows, so its size is part of what it is known by.
        key = (segment.number, segment.generation, page, segment.page_size(page))
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
            return found
        try:
            found = segment.read_page(self._disk, page)
        except OSError as error:
            raise CannotRead((error.strerror or str(error)).lower()) from error
        self._cache[key] = found
        while len(self._cache) > _CACHED_PAGES:
            self._cache.popitem(last=False)
        return found

    def _lost(self, gap: Gap) -> Gap:
        if gap not in self._told:
            self._told.add(gap)
            count = gap.end - gap.start
            self._warn(
                f"{self.folder}: up to {count} messages from {gap.start:x} on are lost: {gap.why.value}"
            )
        return gap
