"""What a segment holds after a stop, a crash or a power cut.

Everything is checked before it is used to find the next thing. Below the durable mark of the checkpoint the
file was once safe on the disk, so damage there is damage: the appends around it are kept, and a reader finds
the gap. Above the mark a power cut may have left any part of what was written. A page that never reached the
disk reads as zeros, or the file is too short; where that is found the log ends at the first damage, because
nothing may be kept behind a hole that somebody would wait for.
"""

import errno
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from nsqd.storage import segment_index
from nsqd.storage.disk import Disk
from nsqd.storage.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    Append,
    NotALog,
    decode_append,
    decode_file_header,
    find_append,
    mend_append,
)
from nsqd.storage.segment import Segment, published_ns

# Headers are looked for in pieces of this size.
_WINDOW_BYTES: Final = 1 << 20
_SECTOR_BYTES: Final = 512
# Fewer zeros than this may be the end of a message.
_ZEROS_BYTES: Final = 64
# Enough of an append to see when its first message was published.
_TIME_BYTES: Final = 16


@dataclass(slots=True)
class Stored:
    """Messages ``first <= seq < next`` of one or more appends, or of one when they are deferred."""

    first: int
    next: int
    due_ns: int = 0


@dataclass(slots=True)
class Noted:
    """A note and its number."""

    number: int
    content: bytes


@dataclass(slots=True)
class Recovered:
    """A segment as it is on disk, and what happened in it, in order, after the checkpoint."""

    segment: Segment
    happenings: list[Stored | Noted] = field(default_factory=list)
    # Bytes at the end of the file that never became whole; the segments behind it do not count either.
    torn: int = 0
    # Places that cannot be read though they were once whole.
    damages: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """What the checkpoint knows: it covers messages below *next* and notes up to *notes*.

    What was appended below the sequence *synced* was durable, and messages were stored up to *end*.
    """

    next: int = 0
    notes: int = 0
    synced: int = 0
    end: int = 0


def open_segment(disk: Disk, path: Path, number: int, generation: int) -> Segment | None:
    """The segment in this file, without its extent; None when nothing was ever stored in it.

    Raises OSError, NewerVersion, and NotALog for a file that holds something else.
    """
    fd = disk.open_read(path)
    try:
        start = disk.read(fd, FILE_HEADER_BYTES, 0)
    finally:
        disk.close(fd)
    try:
        return Segment(path.parent, number, decode_file_header(start), generation)
    except NotALog:
        if not start.strip(b"\0") or len(start) < FILE_HEADER_BYTES:
            # The header is in the first write, and all later ones are synced with it.
            return None
        raise


def recover(disk: Disk, segment: Segment, mark: Mark, limit: int) -> Recovered:
    """Find the extent of *segment*, still empty, and what the checkpoint does not cover.

    Messages from the sequence *limit* on were refused: the segment behind this one says so. Raises OSError.
    """
    fd = disk.open_read(segment.path)
    try:
        size = disk.size(fd)
        found = Recovered(segment)
        indexed = segment_index.load(disk, segment, size)
        if indexed:
            if segment.next <= min(mark.next, mark.synced) and segment.last_note <= mark.notes:
                return found
            # What happened after the checkpoint is not in the index.
            empty = Segment(segment.folder, segment.number, segment.header, segment.generation)
            found = Recovered(empty)
        # An index is written when its segment is synced; a compacted file gets its name then.
        durable = indexed or bool(segment.header.ends)
        _Walk(disk, fd, size, found, mark, limit, durable=durable).run()
        # A compacted file speaks for all that was there before.
        found.segment.next = max(found.segment.next, segment.header.ends)
        return found
    finally:
        disk.close(fd)


class _Walk:
    """Goes from append to append through one file."""

    def __init__(
        self,
        disk: Disk,
        fd: int,
        size: int,
        found: Recovered,
        mark: Mark,
        limit: int,
        *,
        durable: bool,
    ) -> None:
        """*durable*: all of the file is known to have reached the disk."""
        self._disk = disk
        self._durable = durable
        self._limit = limit
        self._fd = fd
        self._size = size
        self._found = found
        self._segment = found.segment
        self._salt = found.segment.header.salt
        self._mark = mark
        self._window = b""
        self._base = 0
        # What to go back to when the file turns out to be torn: as it was before the first damage.
        self._sound: _Extent | None = None

    def run(self) -> None:
        at = FILE_HEADER_BYTES
        while at < self._size:
            append = self._append_at(at)
            if self._segment.next >= self._limit and not (append and append.is_note):
                # What lies here could not be written to its end, and the log went on in another file.
                return
            if append is not None and not self._is_damaged(append):
                self._take(append)
                at = append.end
                continue
            following = None if append is not None else self._search(at)
            if append is not None:
                end = append.end
            else:
                end = self._size if following is None else following.start - APPEND_HEADER_BYTES
            if self._above(append) and self._is_torn(at, end):
                return
            self._found.damages += 1
            # A reader meets the gap and counts what is lost; so it is owed like the rest.
            if append is not None:
                self._take(append)
            elif following is not None:
                self._lose(following.first)
            at = end

    # --- reading the file ---

    def _append_at(self, at: int) -> Append | None:
        if not self._base <= at <= self._base + len(self._window) - APPEND_HEADER_BYTES:
            self._base, self._window = at, self._read(at, at + _WINDOW_BYTES)
        place = at - self._base
        return decode_append(self._window, place, self._base, self._salt) or mend_append(
            self._window, place, self._base, self._salt
        )

    def _search(self, at: int) -> Append | None:
        """The next whole header behind *at*."""
        while True:
            window = self._read(at, at + _WINDOW_BYTES)
            found = find_append(window, 0, at, self._salt, self._segment.next)
            if found is not None or at + len(window) >= self._size:
                return found
            # A header may lie across two windows.
            at += len(window) - APPEND_HEADER_BYTES

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
        size = min(end, self._size) - start
        data = self._disk.read(self._fd, size, start)
        if len(data) < size:
            raise OSError(errno.EIO, "short read", str(self._segment.path))
        return data

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
            if segment.starts_page and append.end <= self._size:
                time_ns = published_ns(self._read(append.start, append.start + _TIME_BYTES))
            if append.next > self._mark.next:
                self._owe(append.first, append.next, append.due_ns)
        messages = append.next - append.first
        segment.grow(messages, append.next, min(append.end, self._size), time_ns)

    def _lose(self, end: int) -> None:
        """What was stored up to the sequence *end* cannot even be counted any more."""
        if end > max(self._segment.next, self._mark.next):
            self._owe(self._segment.next, end, 0)

    def _owe(self, first: int, end: int, due_ns: int) -> None:
        first = max(first, self._mark.next)
        happenings = self._found.happenings
        last = happenings[-1] if happenings else None
        if isinstance(last, Stored) and last.next == first and not (due_ns or last.due_ns):
            last.next = end
        else:
            happenings.append(Stored(first, end, due_ns))

    # --- a torn end ---

    def _is_torn(self, start: int, end: int) -> bool:
        """Whether what lies here is the work of a power cut; then the segment ends at the first damage."""
        if self._sound is None:
            self._sound = _Extent(self._found)
        unknown = self._append_at(start) is None
        if not (
            end > self._size
            or (unknown and end == self._size)
            or self._was_never_written(start, end, least=1 if unknown else _ZEROS_BYTES)
        ):
            return False
        self._sound.restore(self._found)
        self._found.torn = self._size - self._segment.size
        return True

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
