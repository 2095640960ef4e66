"""Jobs on copies: a copy is opened, promoted, dropped, or its epoch is raised."""

from dataclasses import replace

from nsqd.engine import promoted
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.engine.topic import Topic
from nsqd.replication.holders import Holders
from nsqd.replication.local_copy import DropCopy, LocalCopy, OpenCopy, PromoteCopy, RaiseEpoch
from nsqd.replication.node_state import NodeState
from nsqd.storage.topic_log import TopicLog, store_of


class Jobs:
    """See the module. A copy is busy until its job has ended."""

    def __init__(self, node: NodeState, holders: Holders) -> None:
        self.failovers = 0
        # The copy, and the topic, of each open log of a copy.
        self.copy_of: dict[TopicLog, tuple[LocalCopy, Topic]] = {}
        self._node = node
        self._holders = holders

    def open(self, copy: LocalCopy) -> None:
        """Recover the topics of a copy."""
        node = self._node
        copy.is_busy = True
        node.waiting_jobs.append(OpenCopy(copy, node.copies, node.data, node.broker))

    def promote(self, copy: LocalCopy, epoch: int, *, failover: bool) -> None:
        """Let a replica become an owner."""
        copy.is_busy = True
        self.failovers += failover
        self._node.waiting_jobs.append(PromoteCopy(copy, self._node.copies, epoch, failover))

    def raise_epoch(self, copy: LocalCopy, epoch: int) -> None:
        """Let an owner claim what a silent owner with a higher claim has delivered."""
        copy.is_busy = True
        if copy.record is None:
            self._holders.change(replace(self._holders.record, epoch=epoch, highest_epoch=epoch))
        else:
            self._node.waiting_jobs.append(RaiseEpoch(copy, self._node.copies, epoch))

    def drop(self, copy: LocalCopy) -> None:
        """Remove a copy that is not needed any more."""
        if copy.is_origin:
            # Another owner has all that is pending here: the next start does not deliver it.
            self._holders.change(replace(self._holders.record, is_transferred=True))
            return
        copy.is_busy = True
        topics = list(copy.topics.values())
        for topic in topics:
            self.forget_topic(topic)
        # Nothing is learned for it any more.
        copy.is_open = False
        self._node.waiting_jobs.append(DropCopy(copy, self._node.copies, topics))

    def forget_topic(self, topic: Topic) -> None:
        """A topic of a copy is about to be closed or removed."""
        store = store_of(topic)
        if store is not None:
            self.copy_of.pop(store, None)
        self._node.to_checkpoint.pop(topic, None)
        if isinstance(topic, ReplicaTopic):
            promoted.detach(self._node.broker, topic, force=True)

    def close_topic(self, topic: Topic) -> None:
        """Close a topic of a copy without another checkpoint."""
        self.forget_topic(topic)
        store = store_of(topic)
        if store is not None:
            store.appender.close()
