"""Jobs on the copies of this node, and the actions after their end. A copy is busy until its job has ended.

A promoted copy is attached to the broker and delivers. A replica into which no owner streams is *opened*: its
topics are recovered as by a start. It can then send its pending messages, merge finished ranges, and take
over.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from nsqd.engine import finished_ranges, promoted
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.ranges import Ranges, size_of
from nsqd.replication import yielding
from nsqd.replication.channel_states import finished_here
from nsqd.replication.claims import subtract
from nsqd.replication.frames import CopyKind, DeleteTopic
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy, open_topic
from nsqd.replication.log_state import LogState
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary
from nsqd.storage.data_path import extents_of
from nsqd.storage.topic_log import TopicLog, store_of

# Topics that cannot be read are tried again after so long; the first time sooner, if the reason passes.
_READ_AGAIN_NS: Final = 60_000_000_000
_READ_SOON_NS: Final = 5_000_000_000


class Jobs:
    """See the module."""

    def __init__(self, node: NodeState) -> None:
        self.failovers = 0
        # The copy, and the topic, of each open log of a copy.
        self.copy_of: dict[TopicLog, tuple[LocalCopy, Topic]] = {}
        self._node = node

    def _start(
        self,
        log: LogState,
        copy: LocalCopy,
        run: Callable[[Disk], None],
        then: Callable[[int], None] = lambda _now_ns: None,
        failed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        copy.is_busy = True
        log.changed()

        def ended(error: Exception | None, now_ns: int) -> None:
            copy.is_busy = False
            if error is None:
                copy.problems.pop("", None)
                then(now_ns)
            else:
                failed(self._node.job_failed(copy, error, now_ns))
            log.changed()

        self._node.start(run, ended, copy.origin)

    # --- open ---

    def open(self, log: LogState, copy: LocalCopy) -> None:
        """Recover the topics of a copy that are not open yet. A topic that cannot be read delays no other."""
        node = self._node
        found: dict[str, Topic] = {}
        failed: dict[str, str] = {}

        def run(_disk: Disk) -> None:
            node.copies.finish_files(copy)
            for name in node.copies.topics(copy):
                if name in copy.topics:
                    continue
                folder = node.copies.folder(copy, name).path
                try:
                    found[name] = open_topic(node.data, node.broker, folder, name, copy)
                except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic
                    failed[name] = str(error) or type(error).__name__
            if not copy.promoted and not copy.opened:
                copy.opened = True
                node.copies.save(copy)

        self._start(log, copy, run, lambda now_ns: self._opened(log, copy, found, failed, now_ns))

    def _opened(
        self,
        log: LogState,
        copy: LocalCopy,
        found: dict[str, Topic],
        failed: dict[str, str],
        now_ns: int,
    ) -> None:
        news = {name: reason for name, reason in failed.items() if copy.problems.get(name) != reason}
        for name, reason in news.items():
            self._node.warn(f"REPLICATION: topic {name} of {copy.origin.hex()[:8]} cannot be read - {reason}")
        copy.problems = failed
        copy.read_again_ns = now_ns + (_READ_SOON_NS if news else _READ_AGAIN_NS)
        copy.topics.update(found)
        copy.is_open = True
        for topic in found.values():
            # The recovered files are on the disk.
            topic.take_changed()
            self._add_topic(log, copy, topic)
        log.opened(copy)
        if copy.is_owner:
            self._deliver(log, copy, found.values(), now_ns)

    # --- promote ---

    def promote(self, log: LogState, copy: LocalCopy, epoch: int, *, failover: bool) -> None:
        """Let a replica become an owner; *failover*: its owner was silent."""
        self.failovers += failover

        def run(_disk: Disk) -> None:
            self._node.copies.promote(copy, epoch)

        def then(now_ns: int) -> None:
            copy.take_over_epoch = 0
            for name, topic in copy.topics.items():
                store = store_of(topic)
                if store is not None and store.segments.read_only:
                    store.move_to(self._node.copies.folder(copy, name).path)
            log.state_changed(copy)
            topics = "1 topic" if len(copy.topics) == 1 else f"{len(copy.topics)} topics"
            self._node.info(f"REPLICATION: took over {copy.origin.hex()[:8]}, epoch {epoch}, {topics}")
            self._deliver(log, copy, copy.topics.values(), now_ns, failover=failover)

        self._start(log, copy, run, then)

    def raise_epoch(self, log: LogState, copy: LocalCopy, epoch: int) -> None:
        """Let an owner claim the messages that a silent owner with a higher claim has delivered."""
        if copy.is_origin:
            self._node.change_record(replace(self._node.record, epoch=epoch))

        def run(_disk: Disk) -> None:
            if copy.is_origin:
                self._node.save(copy)
            else:
                self._node.copies.promote(copy, epoch)

        def then(_now_ns: int) -> None:
            copy.epoch, copy.seen = epoch, max(copy.seen, epoch)

        self._start(log, copy, run, then)

    def _deliver(
        self,
        log: LogState,
        copy: LocalCopy,
        topics: Iterable[Topic],
        now_ns: int,
        *,
        failover: bool = False,
    ) -> None:
        """Begin to deliver from a promoted copy; old messages wait until the holders have answered."""
        if copy not in log.primaries:
            self.make_primary(log, copy)
        yielding.await_statuses(log, copy, now_ns, failover=failover)
        for topic in topics:
            if topic.origin:
                promoted.attach(self._node.broker, topic, now_ns)
                self._add_topic(log, copy, topic)
        self._node.wants_turn = True

    def make_primary(
        self, log: LogState, copy: LocalCopy, replicas_of: Callable[[str], int] | None = None
    ) -> None:
        """Let an owner stream; *replicas_of* gives the number of replicas of a topic, if topics differ."""

        def unneeded(name: str) -> Ranges:
            topic = copy.topics.get(name)
            return [] if topic is None else finished_ranges.readable_or_finished(topic, extents_of(topic))

        log.primaries[copy] = Primary(
            self._node.settings,
            copy.origin,
            replicas_of,
            copy=copy.number,
            unneeded=unneeded,
            may_resume=lambda stream: may_resume(log, copy, stream.peer),
        )

    def _add_topic(self, log: LogState, copy: LocalCopy, topic: Topic) -> None:
        store = store_of(topic)
        if store is None:
            return
        self.copy_of[store] = (copy, topic)
        primary = log.primaries.get(copy)
        if primary is not None:
            primary.add(store, topic.name)

    # --- drop and delete ---

    def drop(self, log: LogState, copy: LocalCopy) -> None:
        """Remove a copy that is not needed any more: its folder is renamed, so that it is not found again."""
        if copy.is_origin:
            # Another owner has all that is pending here: the next start does not deliver it.
            self._node.change_record(replace(self._node.record, is_transferred=True))
            log.changed()
            return
        topics = list(copy.topics.values())
        for topic in topics:
            self.forget_topic(topic)
        # No state is merged into it any more.
        copy.topics, copy.is_open = {}, False

        def run(_disk: Disk) -> None:
            for topic in topics:
                store = store_of(topic)
                if store is not None:
                    store.appender.close()
            self._node.copies.drop(copy)

        def then(_now_ns: int) -> None:
            log.remove(copy)
            self._node.info(f"REPLICATION: the copy {copy.number} of {copy.origin.hex()[:8]} was dropped")

        self._start(log, copy, run, then)

    def delete_topic(
        self, log: LogState, copy: LocalCopy, frame: DeleteTopic, link: PeerLink, position: int
    ) -> None:
        """Rename the folder of a topic that was deleted at its origin, unless it has later messages.

        The origin is notified when the job has ended. Before, *link* acknowledges nothing from *position* on.
        """

        def run(_disk: Disk) -> None:
            self._node.copies.delete_topic(copy, frame.name, frame.below)

        def then(_now_ns: int) -> None:
            link.unacknowledged.remove(position)

        def failed(reason: str) -> None:
            link.unacknowledged.remove(position)
            link.end(f"a deleted topic is still here: {reason}")

        self._start(log, copy, run, then, failed)

    def forget_topic(self, topic: Topic) -> None:
        """A topic of a copy is about to be closed or removed."""
        store = store_of(topic)
        if store is not None:
            self.copy_of.pop(store, None)
        self._node.to_checkpoint.pop(topic, None)
        if topic.origin:
            promoted.detach(self._node.broker, topic, force=True)

    def close_topic(self, topic: Topic) -> None:
        """Close a topic of a copy without another checkpoint."""
        self.forget_topic(topic)
        store = store_of(topic)
        if store is not None:
            store.appender.close()


def may_resume(log: LogState, copy: LocalCopy, peer: bytes) -> bool:
    """Rule 5: whether all that is pending in the peer's replica is pending or finished in an owner here."""
    replicas = [one for one in log.known_at(peer) if one.kind == CopyKind.OPEN]
    if not replicas:
        return True
    newest = max(replicas, key=lambda one: one.number)
    for name, channels in subtract(newest.pending, [log.pending(copy)]).items():
        topic = copy.topics.get(name)
        for key, ranges in channels.items():
            if topic is None or size_of(ranges) > size_of(finished_here(topic, key, ranges)):
                return False
    return True
