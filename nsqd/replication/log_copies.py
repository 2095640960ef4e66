"""All copies of one log on this node, and what it knows of the others: the rules of replication.

Numbers in comments are those of the rules in docs/internals/replication.md. No socket, no clock, no thread.
"""

from collections.abc import Iterable
from typing import Final

from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges
from nsqd.replication.channel_states import finished_here, merge, pending_of, states_of
from nsqd.replication.claims import STAGGER_NS, Pending, subtract, takeover_wait_ns
from nsqd.replication.dropping import Dropping, in_flight, is_unstored, open_after_ns
from nsqd.replication.exchange import Exchange, KnownCopy
from nsqd.replication.frames import ChannelState, CopyId, CopyKind, Status
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.primary import Primary
from nsqd.replication.replicated import ReplicationChecks
from nsqd.replication.roles import CopyOwner, Link
from nsqd.replication.yielding import Yielding

_S: Final = 1_000_000_000


class LogCopies:
    """See the module."""

    def __init__(self, node: CopyOwner, origin: bytes) -> None:
        self.node = node
        self.origin = origin
        self.copies: list[LocalCopy] = []
        self.known: dict[tuple[bytes, int], KnownCopy] = {}
        self.exchanges: dict[bytes, Exchange] = {}
        # Peers that said that they have no copy of this log.
        self.without_copy: set[bytes] = set()
        # The streams of each owner here.
        self.primaries: dict[LocalCopy, Primary] = {}
        self._pending: dict[LocalCopy, Pending] = {}
        self._stale: dict[LocalCopy, set[str]] = {}
        # Something has changed since yields and what replicas have alone were computed.
        self._changed = True
        self._fresh: frozenset[tuple[bytes, int]] = frozenset()
        self._alone: dict[LocalCopy, bool] = {}
        self._yielding = Yielding(self)
        self._checks = ReplicationChecks(self)
        self._dropping = Dropping(self)

    # --- copies ---

    def add(self, copy: LocalCopy) -> None:
        """Add a copy that was found, made or begun."""
        self.copies.append(copy)
        for exchange in self.exchanges.values():
            exchange.copy_changed(copy)
        self.changed()

    def remove(self, copy: LocalCopy) -> None:
        """The copy is gone."""
        copy.is_gone = True
        self.copies.remove(copy)
        self._pending.pop(copy, None)
        self._stale.pop(copy, None)
        self._checks.forget(copy)
        self._alone.pop(copy, None)
        primary = self.primaries.pop(copy, None)
        if primary is not None:
            for link in self.node.links_of(primary):
                link.end("the copy was dropped")
        self.changed()

    def changed(self) -> None:
        """Compute again who delivers what."""
        self._changed = True

    def state_changed(self, copy: LocalCopy) -> None:
        """The copy was opened or closed: its state is to be sent in full."""
        self._pending.pop(copy, None)
        self._stale.pop(copy, None)
        for exchange in self.exchanges.values():
            exchange.copy_changed(copy)
        self.changed()

    def topic_removed(self, copy: LocalCopy, name: str) -> None:
        """A topic of the copy was deleted."""
        if copy in self._pending:
            self._stale.setdefault(copy, set()).add(name)
        for exchange in self.exchanges.values():
            exchange.topic_changed(copy, name)
        self.changed()

    # --- what is pending ---

    def pending(self, copy: LocalCopy) -> Pending:
        """The messages that are pending in a copy here and can be read."""
        if not copy.tells_state:
            return {}
        found = self._pending.get(copy)
        if found is None:
            found = self._pending[copy] = {}
            names: Iterable[str] = list(copy.topics)
        else:
            names = self._stale.pop(copy, ())
        for name in names:
            topic = copy.topics.get(name)
            channels = {} if topic is None else pending_of(topic)
            if channels:
                found[name] = channels
            else:
                found.pop(name, None)
        return found

    def pending_again(self, copy: LocalCopy) -> None:
        """Let the next call of `pending` look at all topics."""
        if copy in self._pending:
            self._stale[copy] = set(copy.topics)

    def delivered(self, copy: LocalCopy) -> Pending:
        """What an owner delivers, or what a replica has pending: all without what is yielded."""
        pending = self.pending(copy)
        return subtract(pending, [copy.yielded]) if copy.yielded else pending

    def topic_changed(self, copy: LocalCopy, topic: Topic) -> None:
        """A checkpoint of a topic was written."""
        if copy in self._pending:
            self._stale.setdefault(copy, set()).add(topic.name)
        primary = self.primaries.get(copy)
        senders = [] if primary is None else [stream.sender for stream in primary.streams]
        for exchange in self.exchanges.values():
            exchange.topic_changed(copy, topic.name)
            exchange.checkpointed(topic, senders)
        for other in self.copies:
            self._merge_topic(topic, copy, other)
        if len(self.copies) > 1 or self.known:
            self.changed()

    # --- peers ---

    def exchange(self, link: Link, now_ns: int) -> Exchange:
        """The exchange with a peer; of two connections both nodes use the one of the lower identity."""
        found = self.exchanges.get(link.peer)
        if found is None or found.link.is_closed or (found.link is not link and link.is_preferred):
            link = next((one for one in self.node.links_to(link.peer) if one.is_preferred), link)
            found = self.exchanges[link.peer] = Exchange(self, link, now_ns)
        return found

    def link_ended(self, link: Link) -> None:
        """A connection is gone; what the peer said counts for the failover timeout."""
        exchange = self.exchanges.get(link.peer)
        if exchange is not None and exchange.link is link:
            del self.exchanges[link.peer]
            for known in self.known.values():
                if known.node == link.peer:
                    known.received_ns = max(known.received_ns, link.heard_ns)
            self.changed()

    def peer_takes_states(self, peer: bytes) -> bool:
        """Whether the peer has a copy that can learn channel state."""
        return any(
            one.is_owner or one.kind == CopyKind.OPEN for (node, _), one in self.known.items() if node == peer
        )

    def has_no_copy(self, peer: bytes) -> None:
        """The peer has no copy of this log (any more)."""
        self.forget_others(peer, set())
        self.without_copy.add(peer)
        self.node.forget_holder(self, peer)

    def forget_others(self, peer: bytes, numbers: set[int]) -> None:
        """The peer has no other copies than these."""
        for key in [key for key in self.known if key[0] == peer and key[1] not in numbers]:
            del self.known[key]

    def learn(self, exchange: Exchange, status: Status) -> None:
        """Learn who holds copies, and which epochs there are."""
        peer = exchange.peer
        self.without_copy.discard(peer)
        self.node.learn_holders(
            self, {peer: exchange.link.address}, {one.identity: one.address for one in status.holders}
        )
        is_owner = status.kind in (CopyKind.PROMOTED, CopyKind.ORIGIN)
        self.node.see_epoch(self, status.epoch if is_owner else status.seen)

    def holders_of(self, copy: LocalCopy) -> dict[bytes, str]:
        """The other nodes that hold copies of this log, as this copy knows them."""
        return self.node.holders_of(copy)

    @property
    def holders(self) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        for copy in self.copies:
            found |= self.holders_of(copy)
        return found

    # --- channel state ---

    def merge(self, states: list[ChannelState]) -> set[Topic]:
        """Take over the channel state of another copy; returns the topics for which it was news."""
        news: set[Topic] = set()
        for copy in self.copies:
            if copy.tells_state:
                for state in states:
                    topic = self._merge_into(copy, state)
                    if topic is not None:
                        news.add(topic)
        return news

    def opened(self, copy: LocalCopy) -> None:
        """A copy was opened: it and the other copies here learn from each other."""
        for other in self.copies:
            for topic in list(other.durable_topics()):
                self._merge_topic(topic, other, copy)
            for topic in list(copy.durable_topics()):
                self._merge_topic(topic, copy, other)
        self.state_changed(copy)

    def _merge_topic(self, topic: Topic, source: LocalCopy, target: LocalCopy) -> None:
        if target is not source and source.tells_state and target.tells_state and topic.name in target.topics:
            for state in states_of(topic, self.origin, source.number, {}):
                self._merge_into(target, state)

    def _merge_into(self, copy: LocalCopy, state: ChannelState) -> Topic | None:
        topic = copy.topics.get(state.topic)
        if topic is None or topic.ephemeral or not merge(self.node.broker, topic, state):
            return None
        if copy in self._pending:
            self._stale.setdefault(copy, set()).add(topic.name)
        self.node.merged(copy, topic)
        self.changed()
        return topic

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Apply the rules; called once a second, and after each status."""
        fresh = frozenset(key for key, known in self.known.items() if self.is_fresh(known, now_ns))
        if fresh != self._fresh:
            self._fresh = fresh
            self.changed()
        self._yielding.end_asking(now_ns)
        if self.node.is_decommissioning:
            self._see_new_messages()
        if self._changed:
            self._changed = False
            self._alone.clear()
            self._yielding.apply(now_ns)
        for copy in list(self.copies):
            copy.waits_for = self._apply(copy, now_ns)
        for peer in self.holders:
            link = None if peer in self.exchanges else self.node.link_to(peer)
            if link is not None:
                self.exchange(link, now_ns)
        for exchange in list(self.exchanges.values()):
            exchange.send(now_ns)

    def _see_new_messages(self) -> None:
        """Count messages as pending that were published since the last checkpoint."""
        for copy in self.copies:
            if copy.is_origin:
                self.pending_again(copy)
                self._changed = True

    def _apply(self, copy: LocalCopy, now_ns: int) -> str:
        """Apply the rules to a copy; returns what it waits for until it is dropped, in words."""
        if copy.is_busy:
            return "a job on its files"
        if copy.is_negotiating:
            return "the owner that resumes its stream"
        if copy.is_streamed:
            return ""
        if self._open_again(copy, now_ns):
            return "a job on its files"
        reason = ""
        if copy.is_owner:
            self._raise_epoch(copy, now_ns)
            self._checks.check(copy, now_ns)
            reason = self._transfer(copy, now_ns)
        else:
            self._check_failover(copy, now_ns)
        to_drop = self._dropping.drop(copy, now_ns)
        return reason or to_drop

    def _open_again(self, copy: LocalCopy, now_ns: int) -> bool:
        """Open a promoted copy that could not be opened, or topics that could not be read."""
        wanted = not copy.is_open if copy.is_owner else False
        wanted = wanted or (copy.is_open and bool(copy.unreadable) and copy.read_again_ns <= now_ns)
        if copy.is_origin or not wanted or copy.retry_ns > now_ns:
            return False
        self.node.open(self, copy)
        return True

    def is_fresh(self, known: KnownCopy, now_ns: int) -> bool:
        """Whether the peer was heard within the failover timeout."""
        exchange = self.exchanges.get(known.node)
        heard_ns = known.received_ns if exchange is None else exchange.link.heard_ns
        return now_ns - heard_ns < self.node.settings.failover_ns

    def owners(self, now_ns: int) -> list[KnownCopy]:
        return [one for one in self.known.values() if one.is_owner and self.is_fresh(one, now_ns)]

    def ask(self, copy: LocalCopy, now_ns: int, *, failover: bool = False) -> None:
        """Ask the holders for their status before old messages are delivered (rule 10)."""
        self._yielding.ask(copy, now_ns, failover=failover)

    def counted(self, copy: LocalCopy, since_ns: int, now_ns: int) -> tuple[CopyId, ...] | None:
        """The replicas because of which this owner is fully replicated since that time; None if it is not."""
        return self._checks.counted(copy, since_ns, now_ns)

    # --- rule 8: epochs and failover ---

    def _raise_epoch(self, copy: LocalCopy, now_ns: int) -> None:
        if copy.seen <= copy.epoch or copy.asks(now_ns):
            return
        if any(one.claim > copy.claim for one in self.owners(now_ns)):
            return
        if any(other.is_owner and other.claim > copy.claim for other in self.copies):
            return
        self.node.raise_epoch(self, copy, copy.seen + 1)

    def _has_answered(self, known: KnownCopy) -> bool:
        """Whether an owner has said what is pending and finished there, since a copy here was opened."""
        exchange = self.exchanges.get(known.node)
        return known.is_full and (exchange is None or exchange.answered)

    def _has_alone(self, copy: LocalCopy, now_ns: int) -> bool:
        """Whether a replica has pending messages that no owner delivers."""
        found = self._alone.get(copy)
        if found is None:
            owners = [one.pending for one in self.owners(now_ns)]
            owners += [self.delivered(one) for one in self.copies if one.is_owner]
            found = self._alone[copy] = bool(subtract(self.pending(copy), owners))
        return found

    def next_check_ns(self, now_ns: int) -> int:
        """When something may be due: soon while holders are asked, and a second from now at the latest."""
        if any(copy.old_ends for copy in self.copies):
            return now_ns + _S // 10
        wait_ns = self.node.settings.failover_ns
        due = [
            copy.since_ns + takeover_wait_ns(wait_ns, copy.place)
            if copy.is_open
            else copy.detached_ns + open_after_ns(self.node.settings.failover_ns)
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
                or now_ns - copy.detached_ns >= open_after_ns(self.node.settings.failover_ns)
                or record.opened
            ):
                self.node.open(self, copy)
            return
        if copy.take_over_epoch:
            self.node.promote(self, copy, copy.take_over_epoch, failover=False)
            return
        if not self._has_alone(copy, now_ns):
            copy.since_ns = now_ns
            return
        owners = self.owners(now_ns)
        if not all(self._has_answered(one) for one in owners):
            return
        waited_ns = now_ns - copy.since_ns
        present = [one.received_ns > copy.detached_ns for one in owners if one.epoch >= copy.epoch]
        # An owner that is silent for less than the failover timeout may have more than it said last.
        if present and all(present):
            if waited_ns >= STAGGER_NS * copy.place:
                self.node.promote(self, copy, copy.epoch, failover=False)
        elif waited_ns >= takeover_wait_ns(self.node.settings.failover_ns, copy.place):
            self.node.promote(self, copy, max(copy.epoch, copy.seen) + 1, failover=True)

    # --- rule 13: transfer ---

    def _transfer(self, copy: LocalCopy, now_ns: int) -> str:
        """Let a replica take over without waiting, because this node is decommissioned.

        Returns what the transfer waits for.
        """
        if not self.node.is_decommissioning or not copy.tells_state:
            return ""
        if copy.asks(now_ns):
            return "the statuses of other nodes"
        primary = self.primaries.get(copy)
        if primary is None or not self.delivered(copy):
            return ""
        stream = self.node.transfer_stream(primary)
        if stream is None or not stream.is_caught_up:
            self._suspend(copy, suspended=False)
            return "a replica that is caught up"
        if not copy.transfer_ns:
            copy.transfer_ns = now_ns
        self._suspend(copy, suspended=True)
        waited_ns = now_ns - copy.transfer_ns
        if waited_ns < self.node.broker.limits.msg_timeout_ns and in_flight(copy):
            return "messages in flight"
        if is_unstored(copy) or stream.sender.synced < stream.checkpoint_position:
            stream.sender.request_sync()
            return "the last channel state at the new owner"
        self.node.send_take_over(stream, max(copy.epoch, copy.seen) + 1)
        return "the takeover by the new owner"

    def _suspend(self, copy: LocalCopy, *, suspended: bool) -> None:
        if copy.is_transferring == suspended:
            return
        copy.is_transferring = suspended
        copy.transfer_ns = 0 if not suspended else copy.transfer_ns
        for name in copy.topics:
            self._yielding.withhold(copy, name)

    def resume_delivery(self) -> None:
        """The transfer was cancelled."""
        for copy in self.copies:
            self._suspend(copy, suspended=False)

    # --- streams ---

    def may_resume(self, copy: LocalCopy, peer: bytes) -> bool:
        """Rule 5: whether all that is pending in the peer's replica is pending or finished here."""
        replicas = [one for one in self.known.values() if one.node == peer and one.kind == CopyKind.OPEN]
        if not replicas:
            return True
        newest = max(replicas, key=lambda one: one.number)
        for name, channels in subtract(newest.pending, [self.pending(copy)]).items():
            topic = copy.topics.get(name)
            for key, ranges in channels.items():
                if topic is None or _size(ranges) > _size(finished_here(topic, key, ranges)):
                    return False
        return True

    def unstreamed(self) -> list[LocalCopy]:
        """The copies of another node's log into which nothing is streamed."""
        return [copy for copy in self.copies if not copy.is_origin and not copy.is_streamed]


def _size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)
