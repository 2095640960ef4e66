"""The files of one topic at one replica, and the next bytes to send.

Older files follow behind the stream, the oldest first, at a limited rate. Files are read in chunks.
No socket, no clock, no thread.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk
from nsqd.log.ranges import Ranges, without
from nsqd.log.segment import Segment
from nsqd.replication.frames import CopiedFile, FilePart, Remove, Rename, Seal
from nsqd.replication.framing import MAX_DATA
from nsqd.replication.job import StartJob
from nsqd.replication.sender import Sender
from nsqd.storage.slots import NAMES
from nsqd.storage.topic_log import TopicLog

# The size of a chunk of a file.
PIECE_BYTES: Final = 1 << 20
# A compacted file has this suffix at the replica until it is complete.
_INCOMPLETE: Final = ".new"


@dataclass(slots=True, eq=False)
class Piece:
    """A chunk of a file that the replica lacks."""

    stream: "TopicStream"
    segment: Segment
    path: Path
    # Its name at the replica until the file is complete.
    target: str
    offset: int
    size: int
    data: bytes = b""

    def read(self, disk: Disk) -> None:
        """Read the data. For any thread. Raises OSError."""
        fd = disk.open_read(self.path)
        try:
            self.data = disk.read(fd, self.size, self.offset)
        finally:
            disk.close(fd)


@dataclass(slots=True, eq=False)
class TopicStream:
    """One topic on one connection; see the module."""

    number: int
    name: str
    log: TopicLog
    # The files in the replica's earlier copy; None before the replica has answered.
    reported: tuple[CopiedFile, ...] | None = None
    # Sizes of the files in the copy once everything sent has arrived.
    sizes: dict[str, int] = field(default_factory=dict)
    # Files that do not grow any more and are complete in the copy.
    complete: set[str] = field(default_factory=set)
    has_begun: bool = False
    # The topic was deleted.
    is_gone: bool = False
    # The segment whose appends are streamed.
    live: Segment | None = None
    live_name: str = ""
    # The snapshot is a checkpoint that covers these.
    needed_end: int = 0
    needed_notes: int = 0
    # The snapshot was sent, up to this position of the connection, and nothing after it was lost.
    in_sync: bool = False
    in_sync_position: int = 0
    # It is in sync, and all older files were sent, up to this position.
    caught_up: bool = False
    caught_up_position: int = 0
    # Segments that cannot be read completely: they are skipped on this connection.
    unreadable: set[Segment] = field(default_factory=set)

    def begin(self) -> None:
        """Stream every append from here on; older files follow by catch-up."""
        self.has_begun = True
        self.in_sync = self.caught_up = False
        self.log.appender.end_segment()
        self.live, self.live_name = None, ""
        self.needed_end, self.needed_notes = self.log.segments.end, self.log.segments.notes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that a snapshot would describe."""
        return not (self.log.segments or self.log.segments.notes)

    def covered_by(self, end: int, notes: int) -> bool:
        """Whether a checkpoint up to there is the snapshot: with what was streamed, it covers everything."""
        return end >= self.needed_end and notes >= self.needed_notes

    # --- resuming ---

    def conflicts(self, unneeded: Ranges) -> bool:
        """Whether the replica's copy has something that this log has lost.

        *unneeded* are the messages of which no copy is needed, because they are here or not pending. Three
        things prove nothing: that the numbers of messages were delivered (after a power cut they continue far
        above the lost messages), that a file has the same size (a power cut may take its middle), and that
        the file is gone.
        """
        segments = {segment.path.name: segment for segment in self.log.segments}
        for one in self.reported or ():
            segment = segments.get(one.name)
            if segment is None:
                if not one.next_seq or one.last_note > self.log.known_durable.notes:
                    return True
            elif one.salt != segment.header.salt or one.size > segment.size:
                return True
            if one.next_seq and without([(one.first, one.next_seq)], unneeded):
                return True
        return False

    @property
    def has_reported_files(self) -> bool:
        """Whether the replica's earlier copy has log files."""
        return bool(self.reported)

    def resume(self) -> None:
        """Continue the files that the replica has reported."""
        self.sizes = {one.name: one.size for one in self.reported or ()}

    # --- catch-up ---

    def next_read(self) -> Piece | None:
        """The next chunk that the replica lacks, the oldest first; None when nothing can be read now."""
        if not self.has_begun:
            return None
        for segment in self.log.segments:
            if segment is self.live or segment in self.unreadable:
                continue
            name = segment.path.name
            if name in self.complete:
                continue
            if segment.generation and self.sizes.get(name) == segment.size:
                # It gets this name only when it is complete.
                self.complete.add(name)
                continue
            target = name + _INCOMPLETE if segment.generation else name
            offset = self.sizes.get(target, 0)
            size = min(PIECE_BYTES, segment.size - offset)
            return Piece(self, segment, segment.path, target, offset, size)
        return None

    def obsolete(self) -> list[str]:
        """Files of the replica that the log has no longer, and whose replacements the replica has."""
        segments = self.log.segments
        names = {segment.path.name for segment in segments}
        missing = [
            one.number for one in segments if one is not self.live and one.path.name not in self.complete
        ]
        below = min(missing, default=1 << 62)
        return [
            name
            for name in self.sizes
            if name not in names
            and name not in NAMES
            and not name.endswith(_INCOMPLETE)
            and int(name.partition(".")[0]) < below
        ]

    @property
    def has_every_file(self) -> bool:
        """Whether every file of the log was sent completely."""
        return all(one is self.live or one.path.name in self.complete for one in self.log.segments)


_MS: Final = 1_000_000
_S: Final = 1_000 * _MS
# Older files are sent only while no more bytes than this are unacknowledged.
_WINDOW_BYTES: Final = 4 << 20
# So much of the rate that was not used may be used later.
_BURST_NS: Final = 100 * _MS


def put_parts(sender: Sender, stream: TopicStream, name: str, offset: int, data: bytes) -> None:
    """Send bytes of a file, in one frame or several."""
    for at in range(0, max(1, len(data)), MAX_DATA):
        part = data[at : at + MAX_DATA]
        sender.put(FilePart(stream.number, name, offset + at, xxh3_64_intdigest(part), part))


class CatchUp:
    """See the module."""

    def __init__(self, sender: Sender, rate: int, now_ns: int, start: StartJob) -> None:
        """*rate* is in bytes a second."""
        self._sender = sender
        self._rate = rate
        # Streams that may lack something.
        self._to_look_at: dict[TopicStream, None] = {}
        self._next_read_ns = now_ns
        self._start = start
        self._is_reading = False

    def recheck(self, stream: TopicStream) -> None:
        """The copy may lack files of this topic, or have obsolete ones."""
        self._to_look_at[stream] = None

    def forget(self, stream: TopicStream) -> None:
        """The topic was deleted."""
        self._to_look_at.pop(stream, None)

    def run(self, now_ns: int) -> None:
        """Begin the catch-up of the replica, as fast as the rate allows."""
        while (
            self._to_look_at
            and not self._is_reading
            and self._sender.lag_bytes < _WINDOW_BYTES
            and now_ns >= self._next_read_ns
        ):
            stream = next(iter(self._to_look_at))
            for name in stream.obsolete():
                self._sender.put(Remove(stream.number, name))
                del stream.sizes[name]
                stream.complete.discard(name)
            piece = stream.next_read()
            if piece is None:
                del self._to_look_at[stream]
                self._looked_at(stream)
            elif not piece.size:
                self._sent(piece)
            else:
                self._next_read_ns = max(self._next_read_ns, now_ns - _BURST_NS)
                self._next_read_ns += piece.size * _S // self._rate
                self._is_reading = True
                self._begin_reading(piece)

    def _begin_reading(self, piece: Piece) -> None:
        self._start(piece.read, lambda error, _now_ns: self._read(piece, error))

    def _looked_at(self, stream: TopicStream) -> None:
        """Nothing can be read now: the replica has every file, unless one cannot be read here."""
        if stream.in_sync and not stream.caught_up and stream.has_every_file:
            stream.caught_up = True
            self._sender.request_sync()
            stream.caught_up_position = self._sender.sent

    def _read(self, piece: Piece, error: Exception | None) -> None:
        """A chunk was read, or could not be read. The topic may have been deleted, and its folder with it."""
        self._is_reading = False
        stream, segment = piece.stream, piece.segment
        if stream.is_gone:
            return
        self._to_look_at[stream] = None
        if segment not in stream.log.segments:
            # It was removed or replaced while it was read.
            if stream.sizes.pop(piece.target, None) is not None and piece.target.endswith(".log"):
                self._sender.put(Remove(stream.number, piece.target))
        elif error is not None or len(piece.data) < piece.size:
            # The log reports unreadable messages when a consumer needs them.
            stream.unreadable.add(segment)
        else:
            self._sent(piece)

    def _sent(self, piece: Piece) -> None:
        stream, segment, name = piece.stream, piece.segment, piece.segment.path.name
        if piece.size:
            put_parts(self._sender, stream, piece.target, piece.offset, piece.data)
            stream.sizes[piece.target] = piece.offset + piece.size
        if stream.sizes.get(piece.target) != segment.size:
            return
        if piece.target == name:
            self._sender.put(Seal(stream.number, name, segment.size))
        else:
            self._sender.put(Rename(stream.number, piece.target, name))
            stream.sizes[name] = stream.sizes.pop(piece.target)
        stream.complete.add(name)
