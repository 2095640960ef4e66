"""Search: finds the matching messages of a log, in a thread that uses no shared state.

The event loop selects the parts to search: pages on disk, or the blocks in memory of a log without a disk.
A thread then reads the parts one after the other. Neither costs more than the bytes of its parts.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from nsqd.log import pages
from nsqd.log.cursor import Readable, scan
from nsqd.log.disk import Disk
from nsqd.log.frames import FRAME_OVERHEAD, Block
from nsqd.log.gaps import Gap
from nsqd.log.headers import extension_bytes
from nsqd.log.ranges import Ranges, within
from nsqd.log.segment import Segment
from nsqd.log.segments import Segments

_EXISTS: Final = object()


class BadFilter(ValueError):
    """The text is not a filter; the error says so in a sentence."""


class Contains:
    """The body contains these bytes."""

    def __init__(self, needle: bytes) -> None:
        self._needle = needle

    def may_be_in(self, data: bytes) -> bool:
        """Whether *data* could contain a body that matches."""
        return self._needle in data

    def matches(self, body: bytes | memoryview) -> bool:
        return self._needle in bytes(body)


class JsonValue:
    """The body is JSON with a value at a path; without a given value, anything but null matches."""

    def __init__(self, path: tuple[str, ...], value: str | None) -> None:
        self._path = path
        self._text = value
        self._value = _EXISTS if value is None else _parsed(value)
        # A name that needs no escape is in the JSON either as it is or with escapes, which have a backslash.
        self._name = json.dumps(path[-1], ensure_ascii=False).encode()
        self._prunes = "\\" not in path[-1] and not path[-1].isdecimal()

    def may_be_in(self, data: bytes) -> bool:
        """Whether *data* could contain a body that matches."""
        return not self._prunes or self._name in data or b"\\" in data

    def matches(self, body: bytes | memoryview) -> bool:
        try:
            found: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        for name in self._path:
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return False
        if self._value is _EXISTS:
            return found is not None
        return (
            (type(found), found) == (type(self._value), self._value)
            or found == self._text
            or (_is_number(found) and _is_number(self._value) and found == self._value)
        )


class All:
    """The body matches each of several filters."""

    def __init__(self, *filters: "Contains | JsonValue") -> None:
        self._filters = filters

    def may_be_in(self, data: bytes) -> bool:
        """Whether *data* could contain a body that matches."""
        return all(one.may_be_in(data) for one in self._filters)

    def matches(self, body: bytes | memoryview) -> bool:
        return all(one.matches(body) for one in self._filters)


def parse_json_filter(text: str) -> JsonValue:
    """Read a filter such as ``user.id=42``, ``state=failed`` or only ``error``. Raises BadFilter."""
    path, equals, value = text.partition("=")
    names = tuple(path.split("."))
    if not all(names):
        raise BadFilter(f"{text[:60]!r} is no path in JSON; write name, name.name=value or name.0=value")
    return JsonValue(names, value if equals else None)


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Filter(Protocol):
    """See `matching`."""

    def may_be_in(self, data: bytes) -> bool: ...

    def matches(self, body: bytes | memoryview) -> bool: ...


class SearchRange(Protocol):
    """Messages ``first <= seq < end`` of a log, which take *size* bytes; *segment* is their file."""

    first: int
    end: int
    size: int
    segment: Segment | None

    def read(self) -> bytes:
        """All bytes of the part, as they are stored. Raises OSError."""

    def decode(self, data: bytes) -> list[Block | Gap]:
        """What :meth:`read` returned, as blocks and gaps."""


class PageOnDisk:
    """A page as it was when it was chosen; more may have been appended to it since."""

    def __init__(self, disk: Disk, segment: Segment, page: int) -> None:
        self.segment: Segment | None = segment
        self.first = segment.page_firsts[page]
        self.end = segment.page_end(page)
        self.size = segment.page_size(page)
        self._disk = disk
        self._of = segment
        self._offset = segment.page_offsets[page]

    def read(self) -> bytes:
        return pages.read_bytes(self._disk, self._of, self.size, self._offset)

    def decode(self, data: bytes) -> list[Block | Gap]:
        return pages.blocks_in(self._of, data, self._offset, self.size, self.first, self.end)


class BlockInMemory:
    """A block of a log that has no disk."""

    def __init__(self, block: Block) -> None:
        self.segment: Segment | None = None
        self.first = block.first
        self.end = block.next
        self.size = len(block.data)
        self._block = block

    def read(self) -> bytes:
        return self._block.data

    def decode(self, _data: bytes) -> list[Block | Gap]:
        return [self._block]


def parts_on_disk(
    disk: Disk, segments: Segments, there: Ranges, most: int, *, forward: bool
) -> Iterator[PageOnDisk]:
    """The pages that hold any of *there*, first or last one first, until they have *most* bytes together."""
    for segment in segments if forward else reversed(segments):
        here = within(there, segment.first, segment.next)
        if not here or not segment.pages:
            continue
        low, high = segment.page_of(here[0][0]), segment.page_of(here[-1][1] - 1)
        for page in range(low, high + 1) if forward else range(high, low - 1, -1):
            part = PageOnDisk(disk, segment, page)
            yield part
            most -= part.size
            if most <= 0:
                return


def parts_in_memory(log: Readable, there: Ranges, *, forward: bool) -> list[BlockInMemory]:
    """The blocks that hold any of *there*, first or last one first. Raises CannotRead."""
    found = {
        block.first: BlockInMemory(block)
        for start, end in there
        for _, _, block in scan(log, start, end)
        if isinstance(block, Block)
    }
    return list(found.values()) if forward else list(reversed(found.values()))


@dataclass(slots=True)
class Matches:
    """Matches in the order of the search, and how far the search came.

    Messages at *position* and behind it, in the direction of the search, were not checked.
    """

    position: int
    matches: list[int] = field(default_factory=list)
    scanned: int = 0


class Search:
    """One step of a search; :meth:`run` in any thread."""

    def __init__(
        self,
        parts: Sequence[SearchRange],
        wanted: Filter,
        only: Ranges,
        *,
        forward: bool,
        limit: int,
        pause: Callable[[int], None] = lambda _size: None,
    ) -> None:
        """*parts* are in the order of the search; *only* are the sequences that count, sorted and merged.

        *pause* is called with the bytes of each part, and may wait.
        """
        # The part that is being searched.
        self.current: SearchRange | None = None
        self._parts = parts
        self._wanted = wanted
        self._only = only
        self._forward = forward
        self._limit = limit
        self._pause = pause

    def run(self, found: Matches) -> None:
        """Search the parts, and record in *found* how far the search came. Raises OSError."""
        for part in self._parts:
            self.current = part
            only = within(self._only, part.first, part.end)
            if only:
                data = part.read()
                found.scanned += part.size
                if self._wanted.may_be_in(data) and not self._take(part, data, only, found):
                    return
                self._pause(part.size)
            found.position = part.end if self._forward else part.first - 1

    def _take(self, part: SearchRange, data: bytes, only: Ranges, found: Matches) -> bool:
        """Add the matches of a part; False when there are enough."""
        for seq, body in self._bodies(part.decode(data), only):
            if self._wanted.matches(body):
                found.matches.append(seq)
                if len(found.matches) >= self._limit:
                    found.position = seq + 1 if self._forward else seq - 1
                    return False
        return True

    def _bodies(self, blocks: list[Block | Gap], only: Ranges) -> Iterator[tuple[int, memoryview]]:
        for block in blocks if self._forward else reversed(blocks):
            if isinstance(block, Gap) or not self._wanted.may_be_in(block.data):
                continue
            view = memoryview(block.data)
            ranges = within(only, block.first, block.next)
            for start, end in ranges if self._forward else reversed(ranges):
                for seq in range(start, end) if self._forward else range(end - 1, start - 1, -1):
                    begin = block.offset(seq) + FRAME_OVERHEAD
                    if block.has_headers:
                        begin += extension_bytes(block.data, begin)
                    yield seq, view[begin : block.offset(seq + 1)]


class Breaks:
    """Makes a thread that computes pause in proportion to its work, so that others get their share."""

    def __init__(self, bytes_per_second: int) -> None:
        self._per_second = bytes_per_second
        self._ready_at = 0.0

    def pause(self, size: int) -> None:
        """Wait after the search of *size* bytes."""
        now = time.monotonic()
        self._ready_at = max(self._ready_at, now) + size / self._per_second
        if self._ready_at > now:
            time.sleep(self._ready_at - now)
