"""A promoted copy of a topic in memory: another node delivers the messages of the first node."""

from nsqd.engine import promoted
from nsqd.engine.topic import Topic
from nsqd.log.gaps import Gap, Why
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges
from nsqd.log.tail import MessageLog
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage import checkpoint, restoring
from tests.support.engine import NODE_ID, Node, NoDisk

OWNER_ID = NODE_ID + 1


class _Stored:
    """A log on disk that has the messages of *segments*."""

    def __init__(self, segments: MessageLog) -> None:
        self.segments = segments


def copy_of(topic: Topic, node: Node, *, node_id: int = NODE_ID) -> Topic:
    """Return what *node* recovers from an up-to-date copy; its messages are read from the origin's log."""
    end = topic.log.next_seq
    state = checkpoint.decode(checkpoint.encoder(topic, 1, CheckpointPosition(end, 0, end, end))())
    ids, stored = MessageIds(node_id), _Stored(topic.log)
    copy = Topic(topic.name, ids, stored, 0, 0, node.broker.wall, origin="origin")
    restoring.fill(copy, state)
    copy.log.next_seq = end
    copy.log.stored_ranges.reset(state.stored_ranges or [], end)
    copy.pump()
    return copy


class _Damaged(NoDisk):
    """A source that can no longer be read."""

    def __init__(self, until: int) -> None:
        self._until = until

    def read(self, seq: int, _end: int) -> Gap:
        return Gap(seq, self._until, Why.DAMAGED)


def lose_all_but(topic: Topic, seq: int) -> None:
    """Damage all messages before *seq*."""
    topic.log.source = _Damaged(seq)
    topic.log.retain([(seq, topic.log.next_seq)])


class Owner(Node):
    """Another node, which delivers the topic of the first node."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.broker.ids = MessageIds(OWNER_ID)

    def promote(self, topic: Topic, suspended: Ranges | None = None) -> Topic:
        """Attach a promoted copy; messages in *suspended* are not delivered."""
        copy = copy_of(topic, self)
        copy.suspended = suspended or []
        promoted.attach(self.broker, copy, self.now_ns)
        self.turn()
        return copy


def suspend_only(node: Node, copy: Topic, ranges: Ranges) -> None:
    """Withhold these messages of a promoted copy and no others, as replication does."""
    copy.suspended = ranges
    for channel in copy.channels.values():
        channel.backlog.suspend(ranges)
        node.broker.serve(channel)
    node.turn()
