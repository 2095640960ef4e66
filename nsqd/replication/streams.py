"""What one keeper has of one topic's files, and what is to be sent next; reading a file is a job."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.log.ranges import Ranges, without
from nsqd.log.segment import Segment
from nsqd.log.writer import LogWriter
from nsqd.replication.frames import CopiedFile
from nsqd.storage.slots import NAMES

# A file is read in pieces of this size.
PIECE_BYTES: Final = 1 << 20
_NEW: Final = ".new"


@dataclass(frozen=True, slots=True)
class LetGo:
    """A file that the home had in this life, as it was when the home let go of it."""

    salt: int
    size: int


@dataclass(slots=True)
class ReadJob:
    """A piece of a file of the home to be read: :meth:`run` in any thread, then `HomeLink.ended`."""

    stream: "TopicStream"
    segment: Segment
    path: Path
    # Its name in the copy until the file is whole.
    target: str
    offset: int
    size: int
    data: bytes = b""

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        fd = disk.open_read(self.path)
        try:
            self.data = disk.read(fd, self.size, self.offset)
        finally:
            disk.close(fd)


class TopicStream:
    """One topic on one connection; see the module."""

    __slots__ = (
        "begun",
        "filled",
        "has",
        "linked",
        "live",
        "live_name",
        "log",
        "name",
        "needs_end",
        "needs_notes",
        "number",
        "reading",
        "stated",
        "told",
        "unreadable",
        "whole",
    )

    def __init__(self, number: int, name: str, log: LogWriter) -> None:
        self.number = number
        self.name = name
        self.log = log
        # The files that the keeper said it has; None before that.
        self.told: tuple[CopiedFile, ...] | None = None
        # Sizes of the files in the copy, once all that was sent has arrived.
        self.has: dict[str, int] = {}
        # Files that do not grow any more, and that the keeper knows to be whole.
        self.whole: set[str] = set()
        self.begun = False
        # The segment that is streamed while it is written.
        self.live: Segment | None = None
        self.live_name = ""
        # The copy counts when a checkpoint covers this.
        self.needs_end = 0
        self.needs_notes = 0
        self.linked = False
        self.filled = False
        # How many bytes had been said when the keeper was last told that it is linked or filled.
        self.stated = 0
        self.reading = False
        # Segments that could not be read to their end: they are skipped on this connection.
        self.unreadable: set[Segment] = set()

    def begin(self) -> None:
        """Stream every append from here on; what exists already is filled in behind."""
        self.begun = True
        self.linked = self.filled = False
        self.log.end_segment()
        self.live, self.live_name = None, ""
        self.needs_end, self.needs_notes = self.log.end, self.log.notes

    @property
    def is_empty(self) -> bool:
        """Whether a checkpoint would have nothing to tell."""
        return not (self.log.segments or self.log.notes)

    def covered_by(self, end: int, notes: int) -> bool:
        """Whether a checkpoint up to there, with what was streamed, covers everything."""
        return end >= self.needs_end and notes >= self.needs_notes

    # --- what the keeper has that the home has not ---

    def conflicts(self, gone: dict[str, LetGo], settled: Callable[[str], Ranges]) -> bool:
        """Whether the copy has something that this log has lost.

        *gone* has the files that the home let go of in this life, by name. Messages that are *settled* are no
        loss, nor are notes that the home's checkpoint knows. That the home has given out their numbers proves
        nothing: after a power cut it goes on far above the messages that it has lost. A file of the same size
        proves nothing either: a power cut may have taken something from its middle.
        """
        segments = {segment.path.name: segment for segment in self.log.segments}
        needless: Ranges | None = None
        for one in self.told or ():
            if one.name in NAMES:
                continue
            segment, left = segments.get(one.name), gone.get(one.name)
            if segment is not None:
                if one.salt != segment.header.salt or one.size > segment.size:
                    return True
            elif left is not None and one.salt == left.salt:
                if one.size > left.size:
                    # The home had lost the end of the file before it let go of the rest.
                    return True
            elif not one.next_seq or one.last_note > self.log.known_durable.notes:
                return True
            if one.next_seq:
                if needless is None:
                    needless = settled(self.name)
                if without([(one.first, one.next_seq)], needless):
                    return True
        return False

    def believe(self) -> None:
        """Go on from the files that the keeper has."""
        self.has = {one.name: one.size for one in self.told or () if one.name not in NAMES}

    # --- filling ---

    def next_read(self) -> ReadJob | None:
        """The next piece that the copy lacks, the oldest first; None when there is nothing to read now."""
        if self.reading or not self.begun:
            return None
        for segment in self.log.segments:
            if segment is self.live or segment in self.unreadable:
                continue
            name = segment.path.name
            if name in self.whole:
                continue
            if segment.generation and self.has.get(name) == segment.size:
                # It gets this name only when it is whole.
                self.whole.add(name)
                continue
            target = name + _NEW if segment.generation else name
            offset = self.has.get(target, 0)
            self.reading = True
            size = min(PIECE_BYTES, segment.size - offset)
            return ReadJob(self, segment, segment.path, target, offset, size)
        return None

    def extra(self) -> list[str]:
        """Files of the copy that the home no longer has, and whose replacements the copy has."""
        segments = self.log.segments
        names = {segment.path.name for segment in segments}
        missing = [one.number for one in segments if one is not self.live and one.path.name not in self.whole]
        below = min(missing, default=1 << 62)
        return [
            name
            for name in self.has
            if name not in names
            and name not in NAMES
            and not name.endswith(_NEW)
            and int(name.partition(".")[0]) < below
        ]

    @property
    def is_filled(self) -> bool:
        """Whether the copy has every file that the home has."""
        return all(
            one is self.live or one in self.unreadable or one.path.name in self.whole
            for one in self.log.segments
        )
