"""One log on one connection at its primary: the negotiation, then new writes, and older files behind them.

The stream of one topic is in the order in which the primary wrote. No socket, no clock, no thread; reading a
file is a job. Times are nanoseconds of a clock that only goes forward.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Final, Protocol

from nsqd.log.ranges import Ranges
from nsqd.log.segment import Segment
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import Have, Holder, Log, Ready, Rename, Seal, Snapshot, Topic
from nsqd.replication.framing import MAX_APPEND, appends_head
from nsqd.replication.job import StartJob
from nsqd.replication.sender import MAX_LAG_BYTES, Sender
from nsqd.replication.topic_stream import CatchUp, TopicStream, put_parts
from nsqd.storage.slots import NAMES, CheckpointJob
from nsqd.storage.topic_log import TopicLog

# The streams of so many topics begin in one call: each may close a file of the log.
_STREAMS_PER_TURN: Final = 50
_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """The settings that the options give."""

    replicas: int = 0
    # Publishers are refused while too few replicas are in sync.
    refuse: bool = False
    strict: bool = False
    timeout_ns: int = 2 * _S
    # Bytes a second.
    catch_up_rate: int = 50 << 20
    failover_ns: int = 30 * _S
    # Be a replica for other nodes.
    accept: bool = True


class StreamedLog(Protocol):
    """The interface of the log that a stream sends; `Primary` is one."""

    origin: bytes
    epoch: int
    copy: int
    holders: tuple[Holder, ...]
    may_resume: Callable[["LogStream"], bool]
    unneeded: Callable[[str], Ranges]
    settings: ReplicaSettings

    def topics(self) -> Iterable[tuple[TopicLog, str]]: ...
    def want_checkpoint(self, log: TopicLog) -> None: ...
    def attach(self, stream: "LogStream") -> None: ...
    def detach(self, stream: "LogStream") -> None: ...


class StreamState(IntEnum):
    """The state of the stream of a log."""

    NEGOTIATING = 0
    STREAMING = 1
    CLOSED = 2


class LogStream:
    """See the module."""

    def __init__(
        self,
        primary: StreamedLog,
        peer: bytes,
        sender: Sender,
        number: int,
        index: int,
        next_topic: Callable[[], int],
        start: StartJob,
        now_ns: int,
    ) -> None:
        """*peer* is the identity of the replica; *number* that of the log on this connection.

        *next_topic* draws numbers of topics; *start* begins a job that reads a file.
        """
        self.primary = primary
        self.peer = peer
        self.sender = sender
        self.number = number
        self.index = index
        self.state = StreamState.NEGOTIATING
        # The stream continues the replica's earlier copy.
        self.resumed = False
        # Why the connection has to end; empty while it has not.
        self.problem = ""
        # Everything up to the newest checkpoint ends at this position of the connection.
        self.checkpoint_position = 0
        self.take_over_sent = False
        self._next_topic = next_topic
        self._catch_up = CatchUp(sender, primary.settings.catch_up_rate, now_ns, start)
        self._streams: dict[TopicLog, TopicStream] = {}
        self._numbers: dict[int, TopicStream] = {}
        # Topics whose copy at the replica has data that this log has lost.
        self._conflicts: set[TopicStream] = set()
        # Topics whose stream is to begin.
        self._to_begin: dict[TopicStream, None] = {}
        sender.put(
            Log(
                number,
                primary.origin,
                primary.epoch,
                primary.copy,
                index,
                primary.settings.strict,
                primary.holders,
            )
        )
        for log, name in primary.topics():
            self._name(log, name)
        sender.put(Ready(number, has_copy=False, others=0))
        primary.attach(self)

    def __repr__(self) -> str:
        return f"<LogStream {self.number} {self.state.name}>"

    def close(self) -> None:
        """The connection is gone, or the primary streams this log to that replica no more."""
        self.state = StreamState.CLOSED
        self.primary.detach(self)

    def fail(self, problem: str) -> None:
        """Stop the stream; the connection has to end with this reason."""
        if self.state is not StreamState.CLOSED:
            self.problem = problem
            self.close()

    def _name(self, log: TopicLog, name: str) -> TopicStream:
        stream = TopicStream(self._next_topic(), name, log)
        self._streams[log] = self._numbers[stream.number] = stream
        self.sender.put(Topic(self.number, stream.number, name))
        return stream

    def has_topic(self, number: int) -> bool:
        """Whether a topic has this number on the connection."""
        return number in self._numbers

    # --- negotiation ---

    def take_have(self, have: Have) -> None:
        """Take the replica's files of a topic. Raises BadFrame."""
        stream = self._numbers.get(have.topic)
        if stream is None:
            # The topic was deleted.
            return
        if self.state is not StreamState.NEGOTIATING or stream.reported is not None:
            raise BadFrame(f"the files of topic {stream.name} were reported already")
        stream.reported = have.files
        if stream.has_reported_files and stream.conflicts(self.primary.unneeded(stream.name)):
            self._conflicts.add(stream)

    def take_ready(self, ready: Ready, now_ns: int) -> None:
        """The replica has answered: begin, in its earlier copy or in a new one. Raises BadFrame."""
        if self.state is StreamState.CLOSED:
            return
        if self.state is not StreamState.NEGOTIATING:
            raise BadFrame("the replica was ready already")
        missing = next((one.name for one in self._numbers.values() if one.reported is None), None)
        if missing is not None:
            raise BadFrame(f"the replica has not reported its files of topic {missing}")
        self.resumed = (
            ready.has_copy
            and not ready.others
            and self._conflicts.isdisjoint(self._numbers.values())
            and self.primary.may_resume(self)
        )
        self.sender.put(Snapshot(self.number, self.resumed))
        self.state = StreamState.STREAMING
        if self.resumed:
            for stream in self._numbers.values():
                stream.resume()
        self._to_begin = dict.fromkeys(self._numbers.values())
        for log, name in self.primary.topics():
            if log not in self._streams:
                # The topic was made during the negotiation.
                self._to_begin[self._name(log, name)] = None
        self.catch_up(now_ns)

    # --- the stream ---

    def _begin(self, stream: TopicStream) -> None:
        """Stream each write to this topic from now on, and send a snapshot of its channel state."""
        self._to_begin.pop(stream, None)
        stream.begin()
        self._catch_up.recheck(stream)
        if stream.is_empty:
            self._set_in_sync(stream)
        else:
            self.primary.want_checkpoint(stream.log)

    def _set_in_sync(self, stream: TopicStream) -> None:
        stream.in_sync = True
        stream.in_sync_position = self.sender.sent
        self._catch_up.recheck(stream)

    def appended(self, log: TopicLog, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        """The primary has just written these bytes."""
        stream = self._streams.get(log)
        if self.state is not StreamState.STREAMING or stream is None:
            return
        if self.sender.lag_bytes > MAX_LAG_BYTES:
            self.fail("the replica does not keep up")
            return
        if not stream.has_begun or (segment is not stream.live and offset):
            # The segment was begun before the stream.
            self._begin(stream)
            return
        if segment is not stream.live:
            self._follow(stream, segment)
        size = sum(map(len, pieces))
        if stream.sizes.get(stream.live_name, 0) != offset or size > MAX_APPEND:
            self._begin(stream)
            return
        self.sender.put_pieces(appends_head(stream.number, stream.live_name, offset, size), pieces, size)
        stream.sizes[stream.live_name] = offset + size

    def _follow(self, stream: TopicStream, segment: Segment) -> None:
        """The log continues in another file."""
        before = stream.live
        if before is not None:
            if stream.sizes.get(stream.live_name) == before.size and before in stream.log.segments:
                self.sender.put(Seal(stream.number, stream.live_name, before.size))
                stream.complete.add(stream.live_name)
            else:
                stream.caught_up = False
                self._catch_up.recheck(stream)
        stream.live, stream.live_name = segment, segment.path.name
        stream.sizes[stream.live_name] = 0

    def checkpointed(self, log: TopicLog, job: CheckpointJob) -> None:
        """The primary has written a checkpoint, which covers nothing that was not streamed before it."""
        stream = self._streams.get(log)
        if self.state is not StreamState.STREAMING or stream is None or not stream.has_begun:
            return
        name = NAMES[job.place]
        if not job.offset:
            put_parts(self.sender, stream, f"{name}.tmp", 0, job.content)
            self.sender.put(Rename(stream.number, f"{name}.tmp", name))
            stream.sizes[name] = len(job.content)
        elif stream.sizes.get(name) == job.offset:
            put_parts(self.sender, stream, name, job.offset, job.content)
            stream.sizes[name] = job.offset + len(job.content)
        else:
            self.primary.want_checkpoint(log)
            return
        self.checkpoint_position = self.sender.sent
        if not stream.in_sync:
            if stream.covered_by(job.mark.next, job.mark.notes):
                self._set_in_sync(stream)
            else:
                self.primary.want_checkpoint(log)

    # --- topics ---

    def topic_added(self, log: TopicLog, name: str) -> None:
        """The log has a new topic."""
        if self.state is StreamState.STREAMING and log not in self._streams:
            self._begin(self._name(log, name))

    def topic_removed(self, log: TopicLog) -> None:
        """Stream that topic no more."""
        stream = self._streams.pop(log, None)
        if stream is not None:
            stream.is_gone = True
            del self._numbers[stream.number]
            self._to_begin.pop(stream, None)
            self._catch_up.forget(stream)

    # --- catch-up ---

    def recheck(self, log: TopicLog) -> None:
        """Files of the log were removed or replaced."""
        stream = self._streams.get(log)
        if stream is not None and stream.has_begun:
            self._catch_up.recheck(stream)

    def catch_up(self, now_ns: int) -> None:
        """Begin the streams of more topics, and the catch-up of the replica."""
        if self.state is StreamState.STREAMING:
            for stream in list(islice(self._to_begin, _STREAMS_PER_TURN)):
                self._begin(stream)
            self._catch_up.run(now_ns)

    # --- state of the replica ---

    @property
    def is_up(self) -> bool:
        """Whether the log is streamed and the replica acknowledges in time."""
        return self.state is StreamState.STREAMING and self.sender.is_up

    def in_sync(self, log: TopicLog) -> bool:
        """Whether publishers of this topic wait for the replica."""
        stream = self._streams.get(log)
        return stream is not None and stream.in_sync and self.is_up

    @property
    def topics(self) -> int:
        """How many topics the log has."""
        return len(self._numbers)

    @property
    def in_sync_topics(self) -> int:
        """How many topics are in sync and have their snapshot at the replica."""
        if not self.is_up:
            return 0
        written = self.sender.written
        return sum(one.in_sync and one.in_sync_position <= written for one in self._numbers.values())

    @property
    def caught_up_topics(self) -> int:
        """How many topics are in sync and have every file at the replica, durably."""
        if not self.is_up:
            return 0
        synced = self.sender.synced
        return sum(one.caught_up and one.caught_up_position <= synced for one in self._numbers.values())

    @property
    def is_caught_up(self) -> bool:
        """Whether all topics are in sync and have every file at the replica, durably."""
        return self.is_up and self.caught_up_topics == len(self._numbers)
