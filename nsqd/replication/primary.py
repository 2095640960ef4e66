"""One log that this node owns and streams: its topics, its replicas in sync, and waiting publishers.

The log is the node's own, or a promoted copy: to that nothing is appended, but checkpoints are written. A
`Primary` taps all topics of the log. Each connection to a replica has a `LogStream`.
"""

from collections.abc import Callable, Iterable

from nsqd.log.ranges import Ranges
from nsqd.log.segment import Segment
from nsqd.replication.frames import Holder
from nsqd.replication.log_stream import LogStream, ReplicaSettings
from nsqd.replication.sender import PendingAck, too_few
from nsqd.storage.slots import CheckpointJob
from nsqd.storage.topic_log import TopicLog


class _TappedTopic:
    """A topic of the log: each write to it goes to all streams."""

    def __init__(self, primary: "Primary", log: TopicLog, name: str) -> None:
        self.name = name
        self._primary = primary
        self._log = log

    def appended(self, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        for stream in self._primary.streams:
            stream.appended(self._log, segment, offset, pieces)

    def segments_removed(self, segments: list[Segment]) -> None:  # noqa: ARG002 - the streams look again
        for stream in self._primary.streams:
            stream.recheck(self._log)

    def lost(self) -> None:
        """The next connection finds that the replica has more than the log, and begins a new copy."""
        for stream in self._primary.streams:
            stream.fail("files of the log were removed by another program")

    def deleted(self) -> None:
        self._primary.remove(self._log)


class Primary:
    """See the module. No method but `under_replicated` takes time in proportion to the number of topics."""

    def __init__(
        self,
        settings: ReplicaSettings,
        origin: bytes,
        replicas_of: Callable[[str], int] | None = None,
        *,
        copy: int = 0,
        unneeded: Callable[[str], Ranges],
        may_resume: Callable[[LogStream], bool] = lambda _stream: True,
    ) -> None:
        """*replicas_of* gives the number of replicas that the policy of a topic wants.

        *unneeded* gives the messages of a topic of which no copy is needed: they can be read here, or are
        not pending. *may_resume* says whether a stream may enter the replica's earlier copy (rule 5).
        """
        self.may_resume = may_resume
        self.unneeded = unneeded
        self.settings = settings
        self.origin = origin
        # The number of the owner's copy.
        self.copy = copy
        # The epoch of its claim, and the other holders: set before a stream begins.
        self.epoch = 0
        self.holders: tuple[Holder, ...] = ()
        # Replaced, not changed in place: a stream that ends during a loop must not hide the next one.
        self.streams: tuple[LogStream, ...] = ()
        # Topics whose next checkpoint must be written soon, and whole.
        self.wants_checkpoint: dict[TopicLog, None] = {}
        self._replicas_of = replicas_of or (lambda _name: settings.replicas)
        self._topics: dict[TopicLog, _TappedTopic] = {}
        # The last one: the publishers of one write batch share it.
        self._last = PendingAck([], 0, refuse=False)

    # --- topics ---

    def add(self, log: TopicLog, name: str) -> None:
        """Add a topic of the log, found at the start or made since; before anything new is appended to it."""
        self._topics[log] = log.segments.tap = _TappedTopic(self, log, name)
        for stream in self.streams:
            stream.topic_added(log, name)

    def remove(self, log: TopicLog) -> None:
        """Stream a topic no more; a `DeleteTopic` removes it from the copies."""
        if self._topics.pop(log, None) is not None:
            log.segments.tap = None
            self.wants_checkpoint.pop(log, None)
            for stream in self.streams:
                stream.topic_removed(log)

    def topics(self) -> Iterable[tuple[TopicLog, str]]:
        return ((log, topic.name) for log, topic in self._topics.items())

    def name_of(self, log: TopicLog) -> str:
        """The name of a topic; empty for one that is not streamed any more."""
        topic = self._topics.get(log)
        return "" if topic is None else topic.name

    def want_checkpoint(self, log: TopicLog) -> None:
        """Let the next checkpoint of this topic be written soon, and whole."""
        self.wants_checkpoint[log] = None

    def checkpointed(self, log: TopicLog, job: CheckpointJob) -> None:
        """A checkpoint was written."""
        for stream in self.streams:
            stream.checkpointed(log, job)

    def close(self) -> None:
        """The log is not owned by this node any more."""
        for stream in self.streams:
            stream.fail("the log is not owned here any more")
        for log in list(self._topics):
            self.remove(log)

    # --- streams ---

    def attach(self, stream: LogStream) -> None:
        """A stream has begun to negotiate."""
        self.streams = (*self.streams, stream)

    def detach(self, stream: LogStream) -> None:
        """A stream has ended."""
        self.streams = tuple(one for one in self.streams if one is not stream)

    # --- publishers ---

    @property
    def replicates(self) -> bool:
        """Whether publishers may have to wait for replicas."""
        return bool(self.settings.replicas or self.streams)

    def _in_sync(self, log: TopicLog) -> list[LogStream]:
        return [stream for stream in self.streams if stream.in_sync(log)]

    def lacks(self, log: TopicLog) -> str:
        """Why a publish to this topic is refused before it is written; empty when it is not."""
        if not self.settings.refuse:
            return ""
        topic = self._topics.get(log)
        wanted = self.settings.replicas if topic is None else self._replicas_of(topic.name)
        # A topic that is about to be made is in sync wherever the log is streamed.
        have = sum(stream.is_up for stream in self.streams) if topic is None else len(self._in_sync(log))
        return too_few(have, wanted) if have < wanted else ""

    def refusal(self) -> str:
        """Why publishes to all topics are refused; empty when those to some topic are accepted."""
        wanted = self.settings.replicas
        if not (wanted and self.settings.refuse):
            return ""
        have = sum(stream.is_up for stream in self.streams)
        if have >= wanted and self._topics:
            # A topic is refused until the catch-up has reached it.
            have = wanted - all(have < wanted for have, wanted in map(self.replicas_of_topic, self._topics))
        return too_few(have, wanted) if have < wanted else ""

    def replicas_of_topic(self, log: TopicLog) -> tuple[int, int]:
        """How many replicas of a topic are in sync, and how many are wanted."""
        topic = self._topics.get(log)
        return (0, 0) if topic is None else (len(self._in_sync(log)), self._replicas_of(topic.name))

    def under_replicated(self) -> int:
        """How many topics have fewer replicas in sync than are wanted."""
        return sum(have < wanted for have, wanted in map(self.replicas_of_topic, self._topics))

    def wait(self, log: TopicLog, *, is_publish: bool = True) -> PendingAck | None:
        """The acknowledgement that a client needs after an append; None if it waits for no replica.

        Rule 1: the replicas in sync, at most as many as are wanted. Only publishes are refused.
        """
        topic = self._topics.get(log)
        wanted = 0 if topic is None else self._replicas_of(topic.name)
        if not wanted:
            return None
        refuse = self.settings.refuse and is_publish
        positions = [(one.sender, one.sender.sent) for one in self._in_sync(log)]
        last = self._last
        if last.result is None and (last.positions, last.wanted, last.refuse) == (positions, wanted, refuse):
            return last
        pending = PendingAck(positions, wanted, refuse=refuse)
        if pending.result is None:
            self._last = pending
            for sender, _ in positions:
                sender.add_waiter(pending)
        return None if pending.result == "" else pending


class Replicated:
    """The check whether an owner is fully replicated: all is synced here and at caught-up replicas."""

    def __init__(self, streams: list[LogStream], now_ns: int, *, synced_here: bool) -> None:
        self.streams = streams
        self.began_ns = now_ns
        self.synced_here = synced_here
        self.positions = [(one.sender, one.sender.sent) for one in streams]
        self.is_done = False
        for sender, _ in self.positions:
            sender.request_sync()

    def look(self) -> bool:
        """Whether all that existed at the beginning is durable here and there."""
        if not self.is_done:
            there = all(sender.synced >= position for sender, position in self.positions)
            self.is_done = self.synced_here and there
        return self.is_done
