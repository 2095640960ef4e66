"""A copy of a log on this node: its record, and its state at runtime."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion, NotALog, decode_file_header
from nsqd.log.ranges import Ranges
from nsqd.log.tail_records import CheckpointPosition
from nsqd.replication.claims import Pending
from nsqd.replication.frames import CopyKind
from nsqd.storage import restoring
from nsqd.storage.data_path import DataPath
from nsqd.storage.topic_log import TopicLog


@dataclass(slots=True, eq=False)
class LocalCopy:
    """One copy of a log on this node; *path* is its folder.

    *number* is never that of another copy here; the origin's own copy has 0, and the topics of the broker.
    *owner* is the node that streams into it, or did last. *epoch* is that of the claim: of the owner that
    streamed it or, once *promoted*, of this node. *seen* is the highest epoch that is known. *index* is the
    index in the owner's list of replicas. *opened* is set when the topics were recovered here and may have
    checkpoints of this node. *holders* are the other nodes with copies, and where they were last found.
    """

    origin: bytes
    owner: bytes
    number: int
    path: Path
    origin_node_id: int = 0
    epoch: int = 0
    seen: int = 0
    index: int = 0
    holders: dict[bytes, str] = field(default_factory=dict)
    promoted: bool = False
    opened: bool = False
    # It is on disk: a new one is not before `Copies.create`.
    is_stored: bool = False
    is_dropped: bool = False
    # Jobs of streams that use its files now.
    running_jobs: int = 0
    # An owner streams into it.
    is_streamed: bool = False
    # An owner negotiates whether its stream may enter: the copy stays as it is.
    is_negotiating: bool = False
    # Its topics are recovered. `problems` has those that cannot be, with the reason.
    # The empty name stands for the last job.
    is_open: bool = False
    topics: dict[str, Topic] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    # A thread uses its files.
    is_busy: bool = False
    # The last job, and the reading of topics that could not be read, are not tried again before this time.
    retry_ns: int = 0
    read_again_ns: int = 0
    # Since when no owner with all pending messages of this copy was heard; when the stream into it ended.
    since_ns: int = 0
    detached_ns: int = 0
    # Old messages are not delivered before this time, unless all holders have answered.
    asks_until_ns: int = 0
    # The messages that a higher owner delivers instead.
    yielded: Pending = field(default_factory=dict)
    yielded_count: int = 0
    # While holders have not answered: the end of each topic before; older messages are not delivered.
    old_ends: dict[str, int] = field(default_factory=dict)
    # The epoch of a claim that another owner has transferred to this copy; 0 if none has.
    take_over_epoch: int = 0
    # Delivery is suspended, because the copy is being transferred.
    is_transferring: bool = False
    # Since when its delivery is suspended.
    transfer_ns: int = 0
    is_gone: bool = False
    # Why it is not dropped, in words.
    waits_for: str = ""

    def __repr__(self) -> str:
        return f"<LocalCopy {self.path.name} epoch {self.epoch}>"

    @property
    def is_origin(self) -> bool:
        return not self.number

    @property
    def is_owner(self) -> bool:
        return self.is_origin or self.promoted

    @property
    def unreadable(self) -> list[str]:
        """The topics that cannot be read."""
        return [name for name in self.problems if name]

    @property
    def kind(self) -> int:
        if self.is_origin:
            return CopyKind.ORIGIN
        if self.promoted:
            return CopyKind.PROMOTED
        if self.is_streamed:
            return CopyKind.STREAMED
        return CopyKind.OPEN if self.is_open else CopyKind.REPLICA

    @property
    def has_state(self) -> bool:
        """Whether its topics are open, so that its channel state can be sent and changed."""
        return not self.is_streamed and (self.is_origin or self.is_open)

    def asks(self, now_ns: int) -> bool:
        """Whether old messages wait for the answers of the holders."""
        return bool(self.old_ends) and self.asks_until_ns > now_ns

    def suspended_ranges(self, topic: str) -> Ranges:
        """Messages of the topic whose delivery is suspended."""
        if self.is_transferring:
            return [(0, EVERYTHING)]
        end = self.old_ends.get(topic, 0)
        return [(0, end)] if end else []

    def durable_topics(self) -> Iterable[Topic]:
        return (topic for topic in self.topics.values() if not topic.ephemeral)


def open_topic(data: DataPath, broker: Broker, folder: Path, name: str, copy: LocalCopy) -> Topic:
    """The topic in *folder*, a part of a copy, as its owner would find it after a crash.

    No other object may write into the folder. Raises OSError and NewerVersion.
    """
    store = TopicLog(
        data.disk, folder, 0, data.warn, cache=data.cache, open_files=data.open_files, read_only=True
    )
    state = store.checkpoints.load(data.warn, name)
    unusable = state is None and store.checkpoints.damaged
    found = store.recover(None if unusable else state.checkpoint_position if state else CheckpointPosition())
    ids = MessageIds(node_id_of(data.disk, folder) or copy.origin_node_id)
    for origin in store.segments.origins():
        ids.recognise(origin)
    topic = Topic(name, ids, store, 0, 0, broker.wall, broker.settings_of, origin=copy.origin.hex())
    topic.log.log_start = store.segments.end if store.segments.first_seq is None else store.segments.first_seq
    if state is not None:
        topic.log.log_start = state.log_start
        restoring.fill(topic, state)
        topic.tombstoned = state.tombstoned
        topic.finished_elsewhere = state.finished_elsewhere
    next_seq = state.checkpoint_position.next if state else 0
    stored = restoring.replay_tail(topic, found.tail_records, next_seq, data.warn)
    topic.log.next_seq = store.segments.end
    restoring.load_stored_ranges(
        topic, state.stored_ranges if state else None, stored, found.damaged, store.segments
    )
    topic.awaiting_registration = False
    topic.pump()
    return topic


def node_id_of(disk: Disk, folder: Path) -> int:
    """The id of the node that wrote the newest file of a copy; 0 when there is none. Raises OSError."""
    for name in sorted((name for name in disk.names(folder) if name.endswith(".log")), reverse=True):
        fd = disk.open_read(folder / name)
        try:
            return decode_file_header(disk.read(fd, FILE_HEADER_BYTES, 0)).origin
        except (NotALog, NewerVersion):
            continue
        finally:
            disk.close(fd)
    return 0
