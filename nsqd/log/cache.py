"""What a node keeps in memory of the files of all its logs, so that it need not be read again.

One cache serves the whole node, so its size does not depend on the number of topics: the least recently used
entries make room for new ones. All entries of a file are removed together with the file.
"""

from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from typing import Final, Generic, TypeVar

from nsqd.log.disk import Disk
from nsqd.log.frames import Block
from nsqd.log.gaps import Gap
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts

# For blocks that were read back and may be wanted again, by another channel or one message at a time.
STRETCHES_BYTES: Final = 48 << 20
# For the starts of appends in recently written or read pages: enough for some gigabytes of log.
STARTS_BYTES: Final = 16 << 20
# Files from which single messages were read are kept open: only a few, because clients need descriptors.
_FILES: Final = 16
# Rough overhead of an entry in bytes, without its content.
_ENTRY_BYTES: Final = 400

_T = TypeVar("_T")
# A segment, and an offset in its file.
_Key = tuple[Segment, int]


class Stretch:
    """Consecutive blocks and gaps that together cover one range of bytes of a file."""

    __slots__ = ("_firsts", "end", "found", "weight")

    def __init__(self, found: list[Block | Gap], end: int) -> None:
        """*end* is the offset in the file at which these bytes end."""
        self.found = found
        self.end = end
        self._firsts = [one.first if isinstance(one, Block) else one.start for one in found]
        self.weight = _ENTRY_BYTES * (1 + len(found))
        for one in found:
            if isinstance(one, Block):
                self.weight += one.weight

    def at(self, seq: int) -> Block | Gap | None:
        """The block that holds *seq* or the gap in which it lies."""
        place = bisect_right(self._firsts, seq) - 1
        if place < 0:
            return None
        found = self.found[place]
        end = found.next if isinstance(found, Block) else found.end
        return found if seq < end else None


class _Recent(Generic[_T]):
    """A cache that discards its least recently used entries when it is full."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[_Key, tuple[_T, int]] = OrderedDict()
        self._of: dict[Segment, set[_Key]] = {}
        self.size = 0
        # The last lookup and its result, because a reader in the order of the file asks for the same again.
        self._segment: Segment | None = None
        self._offset = 0
        self._found: _T | None = None

    def get(self, segment: Segment, offset: int) -> _T | None:
        if segment is self._segment and offset == self._offset:
            return self._found
        key = (segment, offset)
        entry = self._entries.get(key)
        found = None
        if entry is not None:
            self._entries.move_to_end(key)
            found = entry[0]
        self._segment, self._offset, self._found = segment, offset, found
        return found

    def put(self, key: _Key, thing: _T, size: int) -> list[_T]:
        """Keep *thing*; returns the things that were discarded to make room."""
        self._take(key)
        self._entries[key] = (thing, size)
        self._of.setdefault(key[0], set()).add(key)
        self.size += size
        gone = []
        while self.size > self._most and len(self._entries) > 1:
            gone.append(self._take(next(iter(self._entries))))
        return [one for one in gone if one is not None]

    def forget(self, segment: Segment) -> list[_T]:
        if self._segment is segment:
            self._segment = self._found = None
        gone = [self._take(key) for key in list(self._of.get(segment, ()))]
        return [one for one in gone if one is not None]

    def _take(self, key: _Key) -> _T | None:
        self._segment = self._found = None
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.size -= entry[1]
        keys = self._of[key[0]]
        keys.discard(key)
        if not keys:
            del self._of[key[0]]
        return entry[0]


class Cache:
    """See the module. Not thread-safe."""

    def __init__(
        self, disk: Disk, stretches_bytes: int = STRETCHES_BYTES, starts_bytes: int = STARTS_BYTES
    ) -> None:
        # How many reads of the disk there were, in the event loop.
        self.reads = 0
        self._disk = disk
        self._stretches: _Recent[Stretch] = _Recent(stretches_bytes)
        self._starts: _Recent[Starts] = _Recent(starts_bytes)
        self._files: _Recent[int] = _Recent(_FILES)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._stretches.size + self._starts.size

    def stretch(self, segment: Segment, offset: int, end: int) -> Stretch | None:
        """What was read from *offset* to *end* of the segment's file; None when it is not cached."""
        found = self._stretches.get(segment, offset)
        # The last page of a segment grows, so a stretch that was cached earlier may be too short.
        return found if found is not None and found.end == end else None

    def keep_stretch(self, segment: Segment, offset: int, stretch: Stretch) -> None:
        self._stretches.put((segment, offset), stretch, stretch.weight)

    def starts(self, segment: Segment, offset: int, end: int) -> Starts | None:
        """Where appends start in the page from *offset* to *end*; None when that is not cached."""
        found = self._starts.get(segment, offset)
        return found if found is not None and found.end == end else None

    def keep_starts(self, segment: Segment, offset: int, starts: Starts) -> None:
        self._starts.put((segment, offset), starts, _ENTRY_BYTES + starts.size)

    def read(self, segment: Segment, size: int, offset: int) -> bytes:
        """*size* bytes of the file from *offset* on; the file stays open for a while. Raises OSError."""
        fd = self._opened(segment)
        self.reads += 1
        try:
            return self._disk.read(fd, size, offset)
        except OSError:
            self._close(self._files.forget(segment))
            raise

    def read_ahead(self, segment: Segment, parts: list[tuple[int, int]]) -> None:
        """Let the system read parts of the file, each from an offset to another, all at the same time."""
        fd = self._opened(segment)
        # It only saves time, and not every file system does it.
        with suppress(OSError):
            for start, end in parts:
                self._disk.read_ahead(fd, end - start, start)

    def _opened(self, segment: Segment) -> int:
        """The descriptor of the segment's file. Raises OSError."""
        fd = self._files.get(segment, 0)
        if fd is None:
            fd = self._disk.open_read(segment.path)
            self._close(self._files.put((segment, 0), fd, 1))
        return fd

    def forget(self, segment: Segment) -> None:
        """Discard all entries of *segment*, and close its file."""
        self._stretches.forget(segment)
        self._starts.forget(segment)
        self._close(self._files.forget(segment))

    def _close(self, files: list[int]) -> None:
        for fd in files:
            # The file was only read, and the descriptor is closed even when this raises.
            with suppress(OSError):
                self._disk.close(fd)
