"""The node's cache of file contents, so that the files of its logs need not be read again.

One cache serves the whole node, so its size does not depend on the number of topics: the least recently used
entries make room for new ones. All entries of a file are removed together with the file.
"""

from bisect import bisect_right
from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

from nsqd.log.frames import Block
from nsqd.log.gaps import Gap
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts

# For blocks that were read back. Another channel, or a reader of single messages, may read them again.
STRETCHES_BYTES: Final = 48 << 20
# For the starts of appends in recently written or read pages: enough for some gigabytes of log.
STARTS_BYTES: Final = 16 << 20
# Rough overhead of an entry in bytes, without its content.
ENTRY_BYTES: Final = 400


class _Entry(Protocol):
    """A cached part of a file, up to the offset *end*. It takes *size* bytes of memory."""

    end: int

    @property
    def size(self) -> int: ...


_T = TypeVar("_T", bound=_Entry)


class CachedRange:
    """Consecutive blocks and gaps that together cover one range of bytes of a file."""

    __slots__ = ("_firsts", "blocks", "end")

    def __init__(self, found: list[Block | Gap], end: int) -> None:
        """*end* is the offset in the file at which these bytes end."""
        self.blocks = found
        self.end = end
        self._firsts = [one.first if isinstance(one, Block) else one.start for one in found]

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return sum([ENTRY_BYTES + (one.weight if isinstance(one, Block) else 0) for one in self.blocks])

    def at(self, seq: int) -> Block | Gap | None:
        """The block that holds *seq* or the gap in which it lies."""
        place = bisect_right(self._firsts, seq) - 1
        if place < 0:
            return None
        found = self.blocks[place]
        end = found.next if isinstance(found, Block) else found.end
        return found if seq < end else None


class Recent(Generic[_T]):
    """Entries by segment and offset; the least recently used ones are discarded beyond *max_bytes*."""

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        # Each entry with the bytes that it is counted as.
        self._entries: OrderedDict[tuple[Segment, int], tuple[_T, int]] = OrderedDict()
        self._offsets: dict[Segment, set[int]] = {}

    def get(self, segment: Segment, offset: int, end: int) -> _T | None:
        """The cached entry for the bytes from *offset* to *end* of the segment's file."""
        found = self._entries.get((segment, offset))
        # The last page of a segment grows, so an entry that was made earlier may be too short.
        if found is None or found[0].end != end:
            return None
        self._entries.move_to_end((segment, offset))
        return found[0]

    def put(self, segment: Segment, offset: int, entry: _T) -> None:
        self._discard(segment, offset)
        size = ENTRY_BYTES + entry.size
        self._entries[segment, offset] = (entry, size)
        self._offsets.setdefault(segment, set()).add(offset)
        self.size += size
        while self.size > self._max_bytes and len(self._entries) > 1:
            self._discard(*next(iter(self._entries)))

    def forget(self, segment: Segment) -> None:
        for offset in list(self._offsets.get(segment, ())):
            self._discard(segment, offset)

    def _discard(self, segment: Segment, offset: int) -> None:
        found = self._entries.pop((segment, offset), None)
        if found is not None:
            self.size -= found[1]
            offsets = self._offsets[segment]
            offsets.discard(offset)
            if not offsets:
                del self._offsets[segment]


class Cache:
    """See the module. Not thread-safe."""

    def __init__(self) -> None:
        # How many reads of the disk there were, in the event loop.
        self.reads = 0
        # Pages, and long appends.
        self.stretches: Recent[CachedRange] = Recent(STRETCHES_BYTES)
        # Where the appends of a page start.
        self.starts: Recent[Starts] = Recent(STARTS_BYTES)

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return self.stretches.size + self.starts.size

    def forget(self, segment: Segment) -> None:
        """Discard all entries of *segment*."""
        self.stretches.forget(segment)
        self.starts.forget(segment)
