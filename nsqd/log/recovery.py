"""Recovery: finds the contents of a segment after a stop, a crash or a power cut.

All data is checked before it is used to find more data. Whole appends are retained, and a reader finds a
gap where an append is damaged. Only the end of the file may never have been stored: above the durable mark
of the checkpoint, a power cut may leave any part of what was written. A page that never reached the disk
reads as zeros, or the file is too short. Such an end is cut off.

Everything above the durable mark is written again before it is checked, so that the next sync makes it
durable.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.frames import FRAME_OVERHEAD, NOT_DEFERRED, WallNs, published_ns
from nsqd.log.layout import FILE_HEADER_BYTES, Append, NotALog, decode_file_header
from nsqd.log.ranges import Ranges
from nsqd.log.segment import Segment
from nsqd.log.tail_records import CheckpointPosition, RecoveredMessages, RecoveredNote
from nsqd.log.walk import FileWindow, FoundAppend, walk

# Bytes that one step checks.
_SCAN_STEP_BYTES: Final = 1 << 20
_SECTOR_BYTES: Final = 512
# Fewer zeros than this may be the end of a message.
_ZEROS_BYTES: Final = 64
# Enough bytes of an append to see when its first message was published.
_TIME_BYTES: Final = 16


@dataclass(slots=True)
class Recovered:
    """A segment on disk, and its records after the checkpoint, in order."""

    segment: Segment
    tail_records: list[RecoveredMessages | RecoveredNote] = field(default_factory=list)
    # Bytes at the end of the file that were not written completely.
    torn: int = 0
    # Places that cannot be read and have whole ones behind them or lie below the durable mark.
    damages: int = 0
    # Messages known to be in such places.
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
                # The header is part of the first write, which a power cut may have prevented.
                return None
            raise
    finally:
        disk.close(fd)


def _is_empty(disk: Disk, fd: int) -> bool:
    """Whether all bytes after the position of the file header are zeros."""
    at, size = FILE_HEADER_BYTES, disk.size(fd)
    while at < size:
        if disk.read(fd, min(_SCAN_STEP_BYTES, size - at), at).strip(b"\0"):
            return False
        at += _SCAN_STEP_BYTES
    return True


def recover(disk: Disk, segment: Segment, mark: CheckpointPosition, limit: int) -> Recovered:
    """Find the extent of *segment*, which is still empty, and its records after the checkpoint.

    Messages from the sequence *limit* on were refused, as the next segment states. Data that may not be
    durable is rewritten, and the caller syncs it. Raises OSError.
    """
    fd = disk.open_read(segment.path)
    try:
        window = FileWindow(disk, fd, str(segment.path))
        found = Recovered(segment)
        indexed = segment_index.load(disk, segment, window.end)
        if indexed:
            if segment.next <= min(mark.next, mark.synced, limit) and segment.last_note <= mark.notes:
                return found
            # The index does not have the records after the checkpoint.
            empty = Segment(segment.folder, segment.number, segment.header, segment.generation)
            found = Recovered(empty)
        # An index is written after its segment was synced; a compacted file gets its name after its sync.
        durable = indexed or bool(segment.header.ends)
        _Walk(disk, window, found, mark, limit, durable=durable).run()
        # A compacted file covers all sequences that existed before.
        found.segment.next = max(found.segment.next, segment.header.ends)
        return found
    finally:
        disk.close(fd)


class _Walk:
    """Walks through one file from append to append."""

    def __init__(
        self,
        disk: Disk,
        window: FileWindow,
        found: Recovered,
        mark: CheckpointPosition,
        limit: int,
        *,
        durable: bool,
    ) -> None:
        """*durable*: the whole file is known to have reached the disk."""
        self._disk = disk
        self._window = window
        self._size = window.end
        self._durable = durable
        self._limit = limit
        self._found = found
        self._segment = found.segment
        self._salt = found.segment.header.salt
        self._mark = mark
        # The state before the first damaged place, restored if no whole append follows and the end is torn.
        self._sound: _RecoveryPoint | None = None
        # A place behind that state is the result of a power cut.
        self._torn = False

    def run(self) -> None:
        unknown = rewritten = False
        for place in walk(self._window, FILE_HEADER_BYTES, self._salt, self._segment.next):
            append = place.append
            if not rewritten and self._above(append):
                # The file header belongs to the first append.
                start = place.start if place.start > FILE_HEADER_BYTES else 0
                self._disk.rewrite(self._segment.path, start)
                rewritten = True
            if unknown and append is not None:
                self._lose(min(append.first, self._limit))
            unknown = append is None
            if self._is_refused(append):
                # The write of this append was incomplete, and the log continued in another file.
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

    def _pass_over(self, place: FoundAppend) -> None:
        """Count a damaged place. Its messages stay pending, so that a reader finds and counts the loss."""
        if self._above(place.append):
            self._sound = self._sound or _RecoveryPoint(self._found)
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
            # A reader will check the data; checking all of it now would make every start slow.
            return False
        return not append.matches(self._read(append.start, append.end), self._salt)

    def _above(self, append: Append | None) -> bool:
        """Whether a power cut may have prevented the write of this place."""
        if self._durable:
            return False
        position = self._segment.next if append is None else append.first
        return position >= self._mark.synced

    def _read(self, start: int, end: int) -> bytes:
        return self._window.cut(start, min(end, self._size))

    # --- results ---

    def _take(self, append: Append) -> None:
        segment, tail_records = self._segment, self._found.tail_records
        time_ns = 0
        if append.is_note:
            segment.last_note = append.due_ns
            if append.due_ns > self._mark.notes and append.end <= self._size:
                content = self._read(append.start, append.end)
                if append.matches(content, self._salt):
                    tail_records.append(RecoveredNote(append.due_ns, content))
        else:
            if segment.wants_time and append.end <= self._size:
                time_ns = published_ns(self._read(append.start, append.start + _TIME_BYTES))
            if append.next > self._mark.next:
                size = append.end - append.start - FRAME_OVERHEAD * (append.next - append.first)
                self._add_pending(append.first, append.next, append.due_ns, size)
        messages = append.next - append.first
        segment.grow(messages, append.next, min(append.end, self._size), time_ns)

    def _lose(self, end: int) -> None:
        """Count the messages up to the sequence *end* as damaged: how many were stored is not known."""
        self._found.damaged.append((self._segment.next, end))
        if end > max(self._segment.next, self._mark.next):
            self._add_pending(self._segment.next, end, NOT_DEFERRED)

    def _add_pending(self, first: int, end: int, due_ns: WallNs, size: int = 0) -> None:
        size = size * (end - max(first, self._mark.next)) // max(1, end - first)
        first = max(first, self._mark.next)
        tail_records = self._found.tail_records
        last = tail_records[-1] if tail_records else None
        if isinstance(last, RecoveredMessages) and last.next == first and not (due_ns or last.due_ns):
            last.next = end
            last.body_bytes += size
        else:
            tail_records.append(RecoveredMessages(first, end, due_ns, size))

    # --- a torn end ---

    def _is_torn(self, place: FoundAppend) -> bool:
        """Whether this place is the result of a power cut."""
        unknown = place.append is None
        return (
            place.end > self._size
            or (unknown and place.end == self._size)
            or self._was_never_written(place.start, place.end, least=1 if unknown else _ZEROS_BYTES)
        )

    def _was_never_written(self, start: int, end: int, least: int) -> bool:
        """Whether a sector of ``start <= offset < end`` is as the file system made it: zeros.

        In the first sector *least* bytes are enough: one where a header should begin, because none begins
        with 0.
        """
        while start < end:
            stop = min(end, (start // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
            if stop - start >= least and not self._read(start, stop).strip(b"\0"):
                return True
            start, least = stop, _ZEROS_BYTES
        return False


class _RecoveryPoint:
    """The results up to one offset, so that recovery can return to it."""

    def __init__(self, found: Recovered) -> None:
        segment = found.segment
        self._numbers = segment.messages, segment.next, segment.size, segment.last_note
        self._pages = segment.pages
        self._damages = found.damages
        # Copied, because the last one grows.
        self._happenings = [
            replace(one) if isinstance(one, RecoveredMessages) else one for one in found.tail_records[-1:]
        ]
        self._before = len(found.tail_records[:-1])

    def restore(self, found: Recovered) -> None:
        segment = found.segment
        segment.messages, segment.next, segment.size, segment.last_note = self._numbers
        for column in (segment.page_firsts, segment.page_offsets, segment.page_times):
            del column[self._pages :]
        found.damages = self._damages
        found.tail_records[self._before :] = self._happenings
