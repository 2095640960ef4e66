"""The topics of one connection as they are streamed: new data at once, and older files behind it.

The stream of one topic is in the order in which the home wrote. No socket, no clock, no thread; reading a
file is a job.
"""

from collections.abc import Callable
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log.segment import Segment
from nsqd.log.writer import LogWriter
from nsqd.replication.frames import CopiedTopic, CopyState, FilePart, Remove, Rename, Seal
from nsqd.replication.framing import MAX_DATA, MAX_LIVE, appends_head
from nsqd.replication.outgoing import SaidToKeeper
from nsqd.replication.streams import ReadJob, TopicStream
from nsqd.storage.slots import NAMES, CheckpointJob

_MS: Final = 1_000_000
_S: Final = 1_000 * _MS
# Older files are sent only while no more bytes than this are unacknowledged.
_FILL_WINDOW: Final = 4 << 20
# So much of --fill-rate that was not used may be used later.
_FILL_BURST_NS: Final = 100 * _MS


class Streaming:
    """See the module."""

    def __init__(
        self, out: SaidToKeeper, fill_rate: int, now_ns: int, want_checkpoint: Callable[[LogWriter], None]
    ) -> None:
        """*fill_rate* is in bytes a second; *want_checkpoint* is called with a log that needs one."""
        self.bytes_filled = 0
        # Older files are sent without regard to the fill rate.
        self.hurries = False
        self._out = out
        self._fill_rate = fill_rate
        self._want_checkpoint = want_checkpoint
        self._streams: dict[LogWriter, TopicStream] = {}
        self._numbers: dict[int, TopicStream] = {}
        # Streams that may lack something.
        self._to_look: dict[TopicStream, None] = {}
        self._next_number = 1
        self._fill_from_ns = now_ns
        self._jobs: list[ReadJob] = []
        self._reads = 0

    # --- which there are ---

    def name(self, log: LogWriter, name: str) -> TopicStream:
        """Name a topic to the keeper."""
        stream = TopicStream(self._next_number, name, log)
        self._next_number += 1
        self._streams[log] = self._numbers[stream.number] = stream
        self._out.put(CopiedTopic(stream.number, name))
        return stream

    def all(self) -> list[TopicStream]:
        return list(self._numbers.values())

    def of(self, log: LogWriter) -> TopicStream | None:
        return self._streams.get(log)

    def numbered(self, number: int) -> TopicStream | None:
        return self._numbers.get(number)

    def forget(self, log: LogWriter) -> None:
        """Drop the stream of a log whose topic was deleted."""
        stream = self._streams.pop(log, None)
        if stream is not None:
            del self._numbers[stream.number]
            self._to_look.pop(stream, None)

    def begin(self, stream: TopicStream) -> None:
        """Stream what is written to this topic from now on."""
        stream.begin()
        self._to_look[stream] = None
        if stream.is_empty:
            self._link(stream)
        else:
            self._want_checkpoint(stream.log)

    def _link(self, stream: TopicStream) -> None:
        stream.linked = True
        self._state(stream, CopyState.LINKED)

    def _state(self, stream: TopicStream, state: int) -> None:
        """Tell the keeper the state of a copy, which is whole when all that was said so far is durable."""
        self._out.put(CopyState(stream.number, state))
        self._out.want_durable()
        stream.stated = self._out.sent

    # --- what is written ---

    def appended(
        self, stream: TopicStream, segment: Segment, offset: int, pieces: list[bytes], *, new: bool
    ) -> None:
        """The home has just written this; *new*: nothing was said of this topic before."""
        if new:
            stream.begun = True
            if offset or len(stream.log.segments) > 1:
                self.begin(stream)
                return
            self._link(stream)
            self._to_look[stream] = None
        if segment is not stream.live:
            if offset:
                # The segment was begun before this connection.
                self.begin(stream)
                return
            self._follow(stream, segment)
        size = sum(map(len, pieces))
        if stream.has.get(stream.live_name, 0) != offset or size > MAX_LIVE:
            self.begin(stream)
            return
        self._out.put_pieces(appends_head(stream.number, stream.live_name, offset, size), pieces, size)
        stream.has[stream.live_name] = offset + size

    def _follow(self, stream: TopicStream, segment: Segment) -> None:
        """The log continues in another file."""
        before = stream.live
        if before is not None:
            if stream.has.get(stream.live_name) == before.size and before in stream.log.segments:
                self._out.put(Seal(stream.number, stream.live_name, before.size))
                stream.whole.add(stream.live_name)
            else:
                stream.filled = False
                self._to_look[stream] = None
        stream.live, stream.live_name = segment, segment.path.name
        stream.has[stream.live_name] = 0

    def checkpointed(self, log: LogWriter, job: CheckpointJob) -> None:
        """The home has written a checkpoint, which covers nothing that was not streamed before it."""
        stream = self._streams.get(log)
        if stream is None or not stream.begun:
            return
        name = NAMES[job.place]
        if not job.offset:
            self._parts(stream, f"{name}.tmp", 0, job.content)
            self._out.put(Rename(stream.number, f"{name}.tmp", name))
            stream.has[name] = len(job.content)
        elif stream.has.get(name) == job.offset:
            self._parts(stream, name, job.offset, job.content)
            stream.has[name] = job.offset + len(job.content)
        else:
            self._want_checkpoint(log)
            return
        if not stream.linked:
            if stream.covered_by(job.mark.next, job.mark.notes):
                self._link(stream)
            else:
                self._want_checkpoint(log)

    def _parts(self, stream: TopicStream, name: str, offset: int, data: bytes) -> None:
        for at in range(0, max(1, len(data)), MAX_DATA):
            part = data[at : at + MAX_DATA]
            self._out.put(FilePart(stream.number, name, offset + at, xxh3_64_intdigest(part), part))

    # --- filling ---

    def look_at(self, log: LogWriter) -> None:
        """Look at the files of a log again, because some have gone or were replaced."""
        stream = self._streams.get(log)
        if stream is not None:
            self._to_look[stream] = None

    def fill(self, now_ns: int) -> None:
        """Begin to read what the keeper lacks, as fast as it may be sent."""
        while (
            self._to_look
            and not self._reads
            and self._out.behind < _FILL_WINDOW
            and (self.hurries or now_ns >= self._fill_from_ns)
        ):
            stream = next(iter(self._to_look))
            for name in stream.extra():
                self._out.put(Remove(stream.number, name))
                del stream.has[name]
                stream.whole.discard(name)
            job = stream.next_read()
            if job is None:
                del self._to_look[stream]
                if stream.is_filled and not stream.filled and not stream.reading:
                    stream.filled = True
                    self._state(stream, CopyState.FILLED)
                continue
            if not job.size:
                stream.reading = False
                self._filled(stream, job)
                continue
            if not self.hurries:
                self._fill_from_ns = max(self._fill_from_ns, now_ns - _FILL_BURST_NS)
                self._fill_from_ns += job.size * _S // self._fill_rate
            self._reads += 1
            self._jobs.append(job)

    @property
    def is_filled(self) -> bool:
        """Whether nothing is left to be looked at or read."""
        return not (self._to_look or self._reads)

    def jobs(self) -> list[ReadJob]:
        """Pieces of files to be read."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def ended(self, job: ReadJob, error: OSError | None) -> None:
        """A piece was read, or could not be read."""
        self._reads -= 1
        stream, segment = job.stream, job.segment
        stream.reading = False
        if self._numbers.get(stream.number) is not stream:
            return
        self._to_look[stream] = None
        if segment in stream.log.segments:
            if error is not None or len(job.data) < job.size:
                # The home itself reports an unreadable piece that somebody is owed; the copy does without it.
                stream.unreadable.add(segment)
            else:
                self._filled(stream, job)
        elif stream.has.pop(job.target, None) is not None and job.target.endswith(".log"):
            self._out.put(Remove(stream.number, job.target))

    def _filled(self, stream: TopicStream, job: ReadJob) -> None:
        segment, name = job.segment, job.segment.path.name
        if job.size:
            self._parts(stream, job.target, job.offset, job.data)
            self.bytes_filled += job.size
            stream.has[job.target] = job.offset + job.size
        if stream.has.get(job.target) != segment.size:
            return
        if job.target == name:
            self._out.put(Seal(stream.number, name, segment.size))
        else:
            self._out.put(Rename(stream.number, job.target, name))
            stream.has[name] = stream.has.pop(job.target)
        stream.whole.add(name)
