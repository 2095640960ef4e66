"""What a segment holds after a stop, a crash or a power cut.

Everything is checked before it is used to find the next thing. What is whole is kept; a reader finds the gap
where something is not. Only at the end of the file it may be that nothing was ever stored there: above the
durable mark of the checkpoint a power cut leaves any part of what was written. A page that never reached the
disk reads as zeros, or the file is too short. Such an end is cut off.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.frames import NOT_DEFERRED, WallNs, published_ns
from nsqd.log.happened import Mark, Noted, Stored
from nsqd.log.layout import FILE_HEADER_BYTES, Append, NotALog, decode_file_header
from nsqd.log.ranges import Ranges
from nsqd.log.segment import Segment
from nsqd.log.walk import AppendPlace, FileWindow, walk

# Bytes in which something is looked for.
_LOOKED_AT_ONCE: Final = 1 << 20
_SECTOR_BYTES: Final = 512
# Fewer zeros than this may be the end of a message.
_ZEROS_BYTES: Final = 64
# Enough of an append to see when its first message was published.
_TIME_BYTES: Final = 16


@dataclass(slots=True)
class Recovered:
    """A segment as it is on disk, and what happened in it, in order, after the checkpoint."""

    segment: Segment
    happenings: list[Stored | Noted] = field(default_factory=list)
    # Bytes at the end of the file that never became whole.
    torn: int = 0
    # Places that cannot be read, with whole ones behind them or below the durable mark.
    damages: int = 0
    # Messages that are known to lie in such places.
    damaged: Ranges = field(default_factory=list)


def open_segment(disk: Disk, path: Path, number: int, generation: int) -> Segment | None:
    """The segment in this file, without its extent; None when nothing was ever stored in it.

    Raises OSError, NewerVersion, and NotALog for a file that holds something else.
    """
    fd = disk.open_read(path)
    try:
        start = disk.read(fd, FILE_HEADER_BYTES, 0)
        try:
            return Segment(path.parent, number, decode_file_header(start), generation)
        except NotALog:
            if start.strip(b"\0") and len(start) == FILE_HEADER_BYTES:
                raise
            if _is_empty(disk, fd):
                # The header is in the first write, and a power cut may have kept that from the disk.
                return None
            raise
    finally:
        disk.close(fd)


def _is_empty(disk: Disk, fd: int) -> bool:
    """Whether nothing but zeros is behind the place of the file header."""
    at, size = FILE_HEADER_BYTES, disk.size(fd)
    while at < size:
        if disk.read(fd, min(_LOOKED_AT_ONCE, size - at), at).strip(b"\0"):
            return False
        at += _LOOKED_AT_ONCE
    return True


def recover(disk: Disk, segment: Segment, mark: Mark, limit: int) -> Recovered:
    """Find the extent of *segment*, still empty, and what the checkpoint does not cover.

    Messages from the sequence *limit* on were refused: the segment behind this one says so. Raises OSError.
    """
    fd = disk.open_read(segment.path)
    try:
        window = FileWindow(disk, fd, str(segment.path))
        found = Recovered(segment)
        indexed = segment_index.load(disk, segment, window.end)
        if indexed:
            if segment.next <= min(mark.next, mark.synced, limit) and segment.last_note <= mark.notes:
                return found
            # What happened after the checkpoint is not in the index.
            empty = Segment(segment.folder, segment.number, segment.header, segment.generation)
            found = Recovered(empty)
        # An index is written when its segment is synced; a compacted file gets its name then.
        durable = indexed or bool(segment.header.ends)
        _Walk(window, found, mark, limit, durable=durable).run()
        # A compacted file speaks for all that was there before.
        found.segment.next = max(found.segment.next, segment.header.ends)
        return found
    finally:
        disk.close(fd)


class _Walk:
    """Goes from append to append through one file."""

    def __init__(
        self, window: FileWindow, found: Recovered, mark: Mark, limit: int, *, durable: bool
    ) -> None:
        """*durable*: all of the file is known to have reached the disk."""
        self._window = window
        self._size = window.end
        self._durable = durable
        self._limit = limit
        self._found = found
        self._segment = found.segment
        self._salt = found.segment.header.salt
        self._mark = mark
        # What to go back to when nothing whole comes any more: as it was before the end that was torn.
        self._sound: _Extent | None = None
        # Something behind that is the work of a power cut.
        self._torn = False

    def run(self) -> None:
        unknown = False
        for place in walk(self._window, FILE_HEADER_BYTES, self._salt, self._segment.next):
            append = place.append
            if unknown and append is not None:
                self._lose(min(append.first, self._limit))
            unknown = append is None
            if self._is_refused(append):
                # What lies here could not be written to its end, and the log went on in another file.
                break
            if append is not None and not self._is_damaged(append):
                self._sound, self._torn = None, False
                self._take(append)
            else:
                self._pass_over(place)
        if self._sound is not None and self._torn:
            self._sound.restore(self._found)
            self._found.torn = self._size - self._segment.size

    def _is_refused(self, append: Append | None) -> bool:
        if append is None:
            return self._segment.next >= self._limit
        return append.first >= self._limit and not append.is_note

    def _pass_over(self, place: AppendPlace) -> None:
        """What is damaged here a reader meets as a gap, and counts it as lost; so it is owed too."""
        if self._above(place.append):
            self._sound = self._sound or _Extent(self._found)
            self._torn = self._torn or self._is_torn(place)
        self._found.damages += 1
        if place.append is not None:
            self._found.damaged.append((place.append.first, place.append.next))
            self._take(place.append)

    # --- reading the file ---

    def _is_damaged(self, append: Append) -> bool:
        if append.end > self._size:
            return True
        if not self._above(append):
            # A reader will see for itself; to look at all the data now would make every start slow.
            return False
        return not append.matches(self._read(append.start, append.end), self._salt)

    def _above(self, append: Append | None) -> bool:
        """Whether a power cut may have kept this place from the disk."""
        if self._durable:
            return False
        position = self._segment.next if append is None else append.first
        return position >= self._mark.synced

    def _read(self, start: int, end: int) -> bytes:
        return self._window.cut(start, min(end, self._size))

    # --- what is found ---

    def _take(self, append: Append) -> None:
        segment, happenings = self._segment, self._found.happenings
        time_ns = 0
        if append.is_note:
            segment.last_note = append.due_ns
            if append.due_ns > self._mark.notes and append.end <= self._size:
                content = self._read(append.start, append.end)
                if append.matches(content, self._salt):
                    happenings.append(Noted(append.due_ns, content))
        else:
            if segment.wants_time and append.end <= self._size:
                time_ns = published_ns(self._read(append.start, append.start + _TIME_BYTES))
            if append.next > self._mark.next:
                self._owe(append.first, append.next, append.due_ns)
        messages = append.next - append.first
        segment.grow(messages, append.next, min(append.end, self._size), time_ns)

    def _lose(self, end: int) -> None:
        """What was stored up to the sequence *end* cannot even be counted any more."""
        self._found.damaged.append((self._segment.next, end))
        if end > max(self._segment.next, self._mark.next):
            self._owe(self._segment.next, end, NOT_DEFERRED)

    def _owe(self, first: int, end: int, due_ns: WallNs) -> None:
        first = max(first, self._mark.next)
        happenings = self._found.happenings
        last = happenings[-1] if happenings else None
        if isinstance(last, Stored) and last.next == first and not (due_ns or last.due_ns):
            last.next = end
        else:
            happenings.append(Stored(first, end, due_ns))

    # --- a torn end ---

    def _is_torn(self, place: AppendPlace) -> bool:
        """Whether what lies here is the work of a power cut."""
        unknown = place.append is None
        return (
            place.end > self._size
            or (unknown and place.end == self._size)
            or self._was_never_written(place.start, place.end, least=1 if unknown else _ZEROS_BYTES)
        )

    def _was_never_written(self, start: int, end: int, least: int) -> bool:
        """Whether a sector of ``start <= offset < end`` is as the file system made it: zeros.

        Of the first sector *least* bytes are enough: one, where a header should begin, which no zero does.
        """
        while start < end:
            stop = min(end, (start // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
            if stop - start >= least and not self._read(start, stop).strip(b"\0"):
                return True
            start, least = stop, _ZEROS_BYTES
        return False


class _Extent:
    """What was found up to some place."""

    def __init__(self, found: Recovered) -> None:
        segment = found.segment
        self._numbers = segment.messages, segment.next, segment.size, segment.last_note
        self._pages = segment.pages
        self._damages = found.damages
        # Copied, because the last one grows.
        self._happenings = [replace(one) if isinstance(one, Stored) else one for one in found.happenings[-1:]]
        self._before = len(found.happenings[:-1])

    def restore(self, found: Recovered) -> None:
        segment = found.segment
        segment.messages, segment.next, segment.size, segment.last_note = self._numbers
        for column in (segment.page_firsts, segment.page_offsets, segment.page_times):
            del column[self._pages :]
        found.damages = self._damages
        found.happenings[self._before :] = self._happenings
