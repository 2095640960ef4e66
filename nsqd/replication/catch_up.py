"""The transfer of older files to one replica: behind the stream, the oldest file first, at a limited rate.

Reading a file is a job. No socket, no clock, no thread.
"""

from collections import deque
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.replication.frames import FilePart, Remove, Rename, Seal
from nsqd.replication.framing import MAX_DATA
from nsqd.replication.sender import Sender
from nsqd.replication.topic_stream import ReadJob, TopicStream

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

    def __init__(self, sender: Sender, rate: int, now_ns: int) -> None:
        """*rate* is in bytes a second."""
        self.bytes_sent = 0
        # The rate is not limited.
        self.is_urgent = False
        # Streams that have caught up, in the order of `caught_up_position`; the owner takes them from here.
        self.finished: deque[TopicStream] = deque()
        self._sender = sender
        self._rate = rate
        # Streams that may lack something.
        self._to_look_at: dict[TopicStream, None] = {}
        self._next_read_ns = now_ns
        self._jobs: list[ReadJob] = []
        self._running: set[ReadJob] = set()

    def look_at(self, stream: TopicStream) -> None:
        """The copy may lack files of this topic, or have obsolete ones."""
        self._to_look_at[stream] = None

    def forget(self, stream: TopicStream) -> None:
        """The topic was deleted."""
        self._to_look_at.pop(stream, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be looked at or read."""
        return not (self._to_look_at or self._running)

    def run(self, now_ns: int) -> None:
        """Begin to read what the replica lacks, as fast as it may be sent."""
        while (
            self._to_look_at
            and not self._running
            and self._sender.lag_bytes < _WINDOW_BYTES
            and (self.is_urgent or now_ns >= self._next_read_ns)
        ):
            stream = next(iter(self._to_look_at))
            for name in stream.obsolete():
                self._sender.put(Remove(stream.number, name))
                del stream.sizes[name]
                stream.complete.discard(name)
            job = stream.next_read()
            if job is None:
                del self._to_look_at[stream]
                self._looked_at(stream)
            elif not job.size:
                self._sent(job)
            else:
                if not self.is_urgent:
                    self._next_read_ns = max(self._next_read_ns, now_ns - _BURST_NS)
                    self._next_read_ns += job.size * _S // self._rate
                self._running.add(job)
                self._jobs.append(job)

    def _looked_at(self, stream: TopicStream) -> None:
        """Nothing can be read now: the replica has every file, unless one cannot be read here."""
        if stream.in_sync and not stream.caught_up and stream.has_every_file:
            stream.caught_up = True
            self._sender.request_sync()
            stream.caught_up_position = self._sender.sent
            self.finished.append(stream)

    def jobs(self) -> list[ReadJob]:
        """Pieces of files to be read."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def owns(self, job: object) -> bool:
        """Whether that job came from here and has not ended."""
        return job in self._running

    def ended(self, job: ReadJob, error: OSError | None) -> None:
        """A piece was read, or could not be read. The topic may have been deleted, and its folder with it."""
        self._running.discard(job)
        stream, segment = job.stream, job.segment
        if stream.is_gone:
            return
        self._to_look_at[stream] = None
        if segment not in stream.log.segments:
            # It was removed or replaced while it was read.
            if stream.sizes.pop(job.target, None) is not None and job.target.endswith(".log"):
                self._sender.put(Remove(stream.number, job.target))
        elif error is not None or len(job.data) < job.size:
            # The log reports unreadable messages when a consumer needs them.
            stream.unreadable.add(segment)
        else:
            self._sent(job)

    def _sent(self, job: ReadJob) -> None:
        stream, segment, name = job.stream, job.segment, job.segment.path.name
        if job.size:
            put_parts(self._sender, stream, job.target, job.offset, job.data)
            self.bytes_sent += job.size
            stream.sizes[job.target] = job.offset + job.size
        if stream.sizes.get(job.target) != segment.size:
            return
        if job.target == name:
            self._sender.put(Seal(stream.number, name, segment.size))
        else:
            self._sender.put(Rename(stream.number, job.target, name))
            stream.sizes[name] = stream.sizes.pop(job.target)
        stream.complete.add(name)
