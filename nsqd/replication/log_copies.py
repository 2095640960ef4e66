"""The rules of replication for one log, applied to its copies on this node.

Numbers in comments are those of the rules in docs/internals/replication.md. No socket, no clock, no thread.
"""

from typing import Final

from nsqd.engine.topic import Topic
from nsqd.log.ranges import size_of
from nsqd.replication.channel_states import finished_here
from nsqd.replication.claims import STAGGER_NS, subtract, takeover_wait_ns
from nsqd.replication.dropping import Dropping, ReplicationChecks, open_after_ns
from nsqd.replication.exchange import Exchange
from nsqd.replication.frames import CopyKind
from nsqd.replication.holders import Holders
from nsqd.replication.jobs import Jobs
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import KnownCopy, LogState
from nsqd.replication.node_state import NodeState
from nsqd.replication.yielding import Transfer, Yielding

_S: Final = 1_000_000_000


class LogCopies:
    """See the module."""

    def __init__(self, node: NodeState, holders: Holders, jobs: Jobs, origin: bytes) -> None:
        self.origin = origin
        self.state = LogState(node, holders, origin)
        self.copies = self.state.copies
        self.exchanges: dict[bytes, Exchange] = {}
        self._node = node
        self._jobs = jobs
        self._fresh: frozenset[tuple[bytes, int]] = frozenset()
        # The replicas with pending messages that no owner delivers.
        self._undelivered: dict[LocalCopy, bool] = {}
        self._yielding = Yielding(self.state, self.exchanges)
        self._checks = ReplicationChecks(self.state, self.exchanges)
        self._dropping = Dropping(self.state, self.exchanges)
        self._transfer = Transfer(self.state, self._yielding)

    # --- copies ---

    def add(self, copy: LocalCopy) -> None:
        """Add a copy that was found or made, or into which a stream begins."""
        self.copies.append(copy)
        self.state_changed(copy)

    def remove(self, copy: LocalCopy) -> None:
        """The copy is gone."""
        copy.is_gone = True
        self.copies.remove(copy)
        primary = self.state.primaries.get(copy)
        if primary is not None:
            primary.close()
        self.state.forget(copy)
        self._undelivered.pop(copy, None)
        self.state.changed()

    def state_changed(self, copy: LocalCopy) -> None:
        """The copy was opened or closed: its state is to be sent in full."""
        self.state.forget_pending(copy)
        for exchange in self.exchanges.values():
            exchange.copy_changed(copy)
        self.state.changed()

    def opened(self, copy: LocalCopy) -> None:
        """A copy was opened: it and the other copies here learn from each other, and peers are asked."""
        for other in self.copies:
            for topic in list(other.durable_topics()):
                self.state.merge_topic(topic, other, copy)
            for topic in list(copy.durable_topics()):
                self.state.merge_topic(topic, copy, other)
        self.state_changed(copy)
        for exchange in self.exchanges.values():
            exchange.ask()

    def checkpointed(self, copy: LocalCopy, topic: Topic) -> None:
        """A checkpoint of a topic was written."""
        self.state.pending_again(copy, topic.name)
        primary = self.state.primaries.get(copy)
        senders = [] if primary is None else [stream.sender for stream in primary.streams]
        for exchange in self.exchanges.values():
            exchange.topic_changed(copy, topic.name)
            exchange.checkpointed(topic, senders)
        for other in self.copies:
            self.state.merge_topic(topic, copy, other)
        if len(self.copies) > 1 or self.state.known:
            self.state.changed()

    def topic_removed(self, copy: LocalCopy, name: str) -> None:
        """A topic of the copy was deleted."""
        self.state.pending_again(copy, name)
        for exchange in self.exchanges.values():
            exchange.topic_changed(copy, name)
        self.state.changed()

    @property
    def holders(self) -> dict[bytes, str]:
        """The nodes that hold copies of this log, as any copy here knows them."""
        found: dict[bytes, str] = {}
        for copy in self.copies:
            found |= self.state.holders.of(copy)
        return found

    # --- peers ---

    def exchange(self, link: PeerLink, now_ns: int) -> Exchange:
        """The exchange with a peer; of two connections both nodes use the one of the lower identity."""
        found = self.exchanges.get(link.peer)
        if found is None or found.link.is_closed or (found.link is not link and link.is_preferred):
            link = next((one for one in self._node.links_to(link.peer) if one.is_preferred), link)
            found = self.exchanges[link.peer] = Exchange(self.state, link, now_ns)
        return found

    def link_ended(self, link: PeerLink) -> None:
        """A connection is gone; the last status of the peer counts for the failover timeout."""
        exchange = self.exchanges.get(link.peer)
        if exchange is not None and exchange.link is link:
            del self.exchanges[link.peer]
            for known in self.state.known_at(link.peer):
                known.received_ns = max(known.received_ns, link.heard_ns)
            self.state.changed()

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Apply the rules; called once a second, and after each status."""
        state = self.state
        fresh = frozenset(key for key, known in state.known.items() if state.is_fresh(known, now_ns))
        if fresh != self._fresh:
            self._fresh = fresh
            state.changed()
        self._yielding.end_asking(now_ns)
        if self._node.is_decommissioning:
            self._see_new_messages()
        if state.has_changed:
            state.has_changed = False
            self._undelivered.clear()
            self._yielding.apply(now_ns)
        for copy in list(self.copies):
            copy.waits_for = self._apply(copy, now_ns)
        for peer in self.holders:
            link = None if peer in self.exchanges else self._node.link_to(peer)
            if link is not None:
                self.exchange(link, now_ns)
        for exchange in list(self.exchanges.values()):
            exchange.send(now_ns)

    def _see_new_messages(self) -> None:
        """Count messages as pending that were published since the last checkpoint."""
        for copy in self.copies:
            if copy.is_origin:
                self.state.pending_again(copy)
                self.state.changed()

    def _apply(self, copy: LocalCopy, now_ns: int) -> str:
        """Apply the rules to a copy; returns what it waits for until it is dropped, in words."""
        if copy.is_busy:
            return "a job on its files"
        if copy.is_negotiating:
            return "the owner that resumes its stream"
        if copy.is_streamed:
            return ""
        if copy.record is not None and copy.record.running_jobs:
            return "jobs of its last stream"
        if self._open_again(copy, now_ns):
            return "a job on its files"
        reason = ""
        if copy.is_owner:
            self._raise_epoch(copy, now_ns)
            self._checks.check(copy, now_ns)
            reason = self._transfer.apply(copy, now_ns)
        else:
            self._check_failover(copy, now_ns)
        to_drop = self._drop(copy, now_ns)
        return reason or to_drop

    def _drop(self, copy: LocalCopy, now_ns: int) -> str:
        """Drop a copy if the rules allow it; returns what that waits for."""
        if copy.is_busy:
            return "a job on its files"
        if copy.is_origin and not self._node.is_decommissioning:
            return ""
        reason = self._dropping.waits_for(copy, now_ns)
        if reason:
            return reason
        self._jobs.drop(copy)
        self.state.changed()
        return "" if copy.is_origin else "a job on its files"

    def _open_again(self, copy: LocalCopy, now_ns: int) -> bool:
        """Open a promoted copy that could not be opened, or topics that could not be read."""
        wanted = copy.is_owner and not copy.is_open
        wanted = wanted or (copy.is_open and bool(copy.unreadable) and copy.read_again_ns <= now_ns)
        if copy.is_origin or not wanted or copy.retry_ns > now_ns:
            return False
        self.open(copy)
        return True

    def open(self, copy: LocalCopy) -> None:
        """Recover the topics of a copy."""
        self._jobs.open(copy)
        self.state.changed()

    def _promote(self, copy: LocalCopy, epoch: int, *, failover: bool) -> None:
        self._jobs.promote(copy, epoch, failover=failover)
        self.state.changed()

    def ask(self, copy: LocalCopy, now_ns: int, *, failover: bool = False) -> None:
        """Ask the holders for their status before old messages are delivered (rule 10)."""
        self._yielding.ask(copy, now_ns, failover=failover)

    # --- rule 8: epochs and failover ---

    def _raise_epoch(self, copy: LocalCopy, now_ns: int) -> None:
        if copy.seen <= copy.epoch or copy.asks(now_ns):
            return
        if any(one.claim > copy.claim for one in self.state.owners(now_ns)):
            return
        if any(other.is_owner and other.claim > copy.claim for other in self.copies):
            return
        self._jobs.raise_epoch(copy, copy.seen + 1)
        self.state.changed()

    def _has_answered(self, known: KnownCopy) -> bool:
        """Whether an owner has sent its whole channel state since a copy here was opened."""
        exchange = self.exchanges.get(known.node)
        return known.is_full and (exchange is None or exchange.answered)

    def _has_undelivered(self, copy: LocalCopy, now_ns: int) -> bool:
        """Whether a replica has pending messages that no owner delivers."""
        found = self._undelivered.get(copy)
        if found is None:
            owners = [one.pending for one in self.state.owners(now_ns)]
            owners += [self.state.delivered(one) for one in self.copies if one.is_owner]
            found = self._undelivered[copy] = bool(subtract(self.state.pending(copy), owners))
        return found

    def next_check_ns(self, now_ns: int) -> int:
        """When something may be due: soon while holders are asked, and a second from now at the latest."""
        if any(copy.old_ends for copy in self.copies):
            return now_ns + _S // 10
        wait_ns = self._node.settings.failover_ns
        due = [
            copy.since_ns + takeover_wait_ns(wait_ns, copy.index)
            if copy.is_open
            else copy.detached_ns + open_after_ns(self._node.settings.failover_ns)
            for copy in self.copies
            if not (copy.is_owner or copy.is_streamed or copy.is_busy)
        ]
        return min([one for one in due if one > now_ns] + [now_ns + _S])

    def _check_failover(self, copy: LocalCopy, now_ns: int) -> None:
        """A replica without a stream: is its owner gone, or does the owner lack messages? Rules 8 and 9."""
        record = copy.record
        if copy.is_streamed or record is None or copy.retry_ns > now_ns:
            return
        if not copy.is_open:
            if (
                copy.take_over_epoch
                or now_ns - copy.detached_ns >= open_after_ns(self._node.settings.failover_ns)
                or record.opened
            ):
                self.open(copy)
            return
        if copy.take_over_epoch:
            self._promote(copy, copy.take_over_epoch, failover=False)
            return
        if not self._has_undelivered(copy, now_ns):
            copy.since_ns = now_ns
            return
        owners = self.state.owners(now_ns)
        if not all(self._has_answered(one) for one in owners):
            return
        waited_ns = now_ns - copy.since_ns
        present = [one.received_ns > copy.detached_ns for one in owners if one.epoch >= copy.epoch]
        # An owner that is silent for less than the failover timeout may have more than its last status names.
        if present and all(present):
            if waited_ns >= STAGGER_NS * copy.index:
                self._promote(copy, copy.epoch, failover=False)
        elif waited_ns >= takeover_wait_ns(self._node.settings.failover_ns, copy.index):
            self._promote(copy, max(copy.epoch, copy.seen) + 1, failover=True)

    # --- transfer and streams ---

    def resume_delivery(self) -> None:
        """The transfer was cancelled."""
        for copy in self.copies:
            self._transfer.suspend(copy, suspended=False)

    def may_resume(self, copy: LocalCopy, peer: bytes) -> bool:
        """Rule 5: whether all that is pending in the peer's replica is pending or finished here."""
        replicas = [one for one in self.state.known_at(peer) if one.kind == CopyKind.OPEN]
        if not replicas:
            return True
        newest = max(replicas, key=lambda one: one.number)
        for name, channels in subtract(newest.pending, [self.state.pending(copy)]).items():
            topic = copy.topics.get(name)
            for key, ranges in channels.items():
                if topic is None or size_of(ranges) > size_of(finished_here(topic, key, ranges)):
                    return False
        return True


class Logs(dict[bytes, LogCopies]):
    """The logs of which this node knows, by their origins; `logs[origin]` makes one that is new."""

    def __init__(self, node: NodeState, holders: Holders, jobs: Jobs) -> None:
        super().__init__()
        self._parts = (node, holders, jobs)

    def __missing__(self, origin: bytes) -> LogCopies:
        found = self[origin] = LogCopies(*self._parts, origin)
        return found
