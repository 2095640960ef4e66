"""All copies of one log on this node, and what it knows of the others: the rules of replication.

Numbers in comments are those of the rules in docs/internals/replication.md. No socket, no clock, no thread.
"""

from collections.abc import Container, Iterable
from typing import Final

from nsqd.engine import promoted, withholding
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, merged
from nsqd.replication.channel_states import finished_here, merge, pending_of, states_of
from nsqd.replication.claims import STAGGER_NS, Claim, Pending, count, subtract, takeover_wait_ns
from nsqd.replication.exchange import Exchange, KnownCopy
from nsqd.replication.frames import ChannelState, CopyId, CopyKind, Status
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_stream import LogStream
from nsqd.replication.primary import Primary
from nsqd.replication.roles import CopyOwner, Link
from nsqd.replication.sender import Sender
from nsqd.storage.topic_store import store_of

_S: Final = 1_000_000_000
# An owner that starts, takes over or was suspended asks the holders for so long.
ASK_NS: Final = 2 * _S
# A replica whose stream does not come back is opened after so long.
OPEN_AFTER_NS: Final = 5 * _S


class Replicated:
    """The check whether an owner is fully replicated: all is synced here and at caught-up replicas."""

    __slots__ = ("began_ns", "is_done", "positions", "streams", "synced_here")

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
        self._checks: dict[LocalCopy, Replicated] = {}
        self._pending: dict[LocalCopy, Pending] = {}
        self._stale: dict[LocalCopy, set[str]] = {}
        # Something has changed since yields and what replicas have alone were computed.
        self._changed = True
        self._fresh: frozenset[tuple[bytes, int]] = frozenset()
        self._alone: dict[LocalCopy, bool] = {}

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
        self._checks.pop(copy, None)
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
        self._end_asking(now_ns)
        if self._changed:
            self._changed = False
            self._alone.clear()
            self._yield(now_ns)
        for copy in list(self.copies):
            copy.waits_for = self._apply(copy, now_ns)
        for peer in self.holders:
            link = None if peer in self.exchanges else self.node.link_to(peer)
            if link is not None:
                self.exchange(link, now_ns)
        for exchange in list(self.exchanges.values()):
            exchange.send(now_ns)

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
            self._check_replicated(copy, now_ns)
            reason = self._transfer(copy, now_ns)
        else:
            self._check_failover(copy, now_ns)
        to_drop = self._drop(copy, now_ns)
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

    def _owners(self, now_ns: int) -> list[KnownCopy]:
        return [one for one in self.known.values() if one.is_owner and self.is_fresh(one, now_ns)]

    # --- rules 6 and 7: yielding ---

    def _yield(self, now_ns: int) -> None:
        """Let each owner here yield what a higher owner delivers."""
        higher: list[tuple[Claim, Pending]] = [(one.claim, one.pending) for one in self._owners(now_ns)]
        for copy in sorted(self.copies, key=lambda one: one.claim, reverse=True):
            if not copy.is_owner or not copy.tells_state:
                continue
            claim = copy.claim
            others = [pending for other, pending in higher if other > claim]
            if not others and self._is_stale(copy, now_ns):
                # Nobody higher was heard for the failover timeout: first the epoch is raised, durably.
                continue
            self._set_yielded(copy, others)
            higher.append((claim, self.delivered(copy)))

    def _is_stale(self, copy: LocalCopy, now_ns: int) -> bool:
        return bool(copy.yielded) and copy.seen > copy.epoch and not copy.asks(now_ns)

    def _set_yielded(self, copy: LocalCopy, others: list[Pending]) -> None:
        yielded: Pending = {}
        for pending in others:
            for name, channels in pending.items():
                if name in copy.topics:
                    mine = yielded.setdefault(name, {})
                    for key, ranges in channels.items():
                        mine[key] = merged([*mine.get(key, ()), *ranges])
        changed = {
            name
            for name in yielded.keys() | copy.yielded.keys()
            if yielded.get(name) != copy.yielded.get(name)
        }
        if not changed:
            return
        copy.yielded = yielded
        for name in changed:
            self._withhold(copy, name)
            for exchange in self.exchanges.values():
                exchange.topic_changed(copy, name)
        all_pending = self.pending(copy)
        copy.yielded_count = count(all_pending) - count(subtract(all_pending, [yielded]))

    def _withhold(self, copy: LocalCopy, name: str) -> None:
        """Withhold on the channels of a topic what is yielded, and old messages while holders are asked."""
        topic = copy.topics.get(name)
        if topic is None or not copy.is_owner:
            return
        hold = copy.held_back(name)
        if isinstance(topic, ReplicaTopic):
            topic.withheld = hold
        yielded = copy.yielded.get(name, {})
        for channel in topic.channels.values():
            ranges = merged([*hold, *yielded.get((channel.name, channel.generation), ())])
            if ranges != channel.withheld:
                withholding.withhold_only(channel, ranges)
                channel.expiry_ns = 0
                self.node.broker.serve(channel)
                self.node.wants_turn = True

    # --- rule 10: asking ---

    def ask(self, copy: LocalCopy, now_ns: int) -> None:
        """Ask the holders for their status before old messages are delivered."""
        peers = self.holders_of(copy).keys() - self.without_copy
        copy.asks_until_ns = now_ns + ASK_NS if peers else now_ns
        copy.old_ends = {name: topic.log.next_seq for name, topic in copy.topics.items()} if peers else {}
        for exchange in self.exchanges.values():
            exchange.ask()
        for name in copy.old_ends:
            self._withhold(copy, name)

    def _end_asking(self, now_ns: int) -> None:
        for copy in self.copies:
            if not copy.old_ends:
                continue
            missing = self.holders_of(copy).keys() - self.without_copy - {self.node.identity}
            missing -= {peer for peer, one in self.exchanges.items() if one.answered}
            if copy.asks_until_ns > now_ns and missing:
                continue
            names, copy.old_ends, copy.asks_until_ns = list(copy.old_ends), {}, 0
            # What was learned meanwhile is taken into account first.
            self._yield(now_ns)
            for name in names:
                self._withhold(copy, name)

    # --- rule 8: epochs and failover ---

    def _raise_epoch(self, copy: LocalCopy, now_ns: int) -> None:
        if copy.seen <= copy.epoch or copy.asks(now_ns):
            return
        if any(one.claim > copy.claim for one in self._owners(now_ns)):
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
            owners = [one.pending for one in self._owners(now_ns)]
            owners += [self.delivered(one) for one in self.copies if one.is_owner]
            found = self._alone[copy] = bool(subtract(self.pending(copy), owners))
        return found

    def _check_failover(self, copy: LocalCopy, now_ns: int) -> None:
        """A replica without a stream: is its owner gone, or does the owner lack messages? Rules 8 and 9."""
        record = copy.record
        if copy.is_streamed or record is None or copy.retry_ns > now_ns:
            return
        if not copy.is_open:
            if copy.take_over_epoch or now_ns - copy.detached_ns >= OPEN_AFTER_NS or record.opened:
                self.node.open(self, copy)
            return
        if copy.take_over_epoch:
            self.node.promote(self, copy, copy.take_over_epoch, failover=False)
            return
        if not self._has_alone(copy, now_ns):
            copy.since_ns = now_ns
            return
        owners = self._owners(now_ns)
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

    # --- fully replicated ---

    def _check_replicated(self, copy: LocalCopy, now_ns: int) -> None:
        """Find out whether all that this owner delivers is synced here and at enough replicas."""
        primary = self.primaries.get(copy)
        streams = [] if primary is None else [one for one in primary.streams if one.is_caught_up]
        check = self._checks.get(copy)
        if len(streams) < self.node.settings.replicas:
            self._checks.pop(copy, None)
            return
        if check is not None and not set(check.streams) <= set(streams):
            check = None
        if check is not None:
            check.look()
            latest = max((one.opened_ns for one in self.exchanges.values()), default=0)
            if not check.is_done or check.began_ns > latest:
                return
        if self.exchanges:
            check = self._checks[copy] = Replicated(streams, now_ns, synced_here=not copy.is_origin)
            if copy.is_origin:
                self.node.request_local_sync(check)

    def counted(self, copy: LocalCopy, since_ns: int, now_ns: int) -> tuple[CopyId, ...] | None:
        """The replicas because of which this owner is fully replicated since that time; None if it is not."""
        check = self._checks.get(copy)
        if not copy.is_owner or copy.asks(now_ns) or check is None or not check.is_done:
            return None
        if check.began_ns <= since_ns:
            return None
        found = []
        for stream in check.streams:
            peer = self.node.peer_of(stream)
            ids = [
                CopyId(node, number)
                for (node, number), one in self.known.items()
                if node == peer and one.kind == CopyKind.STREAMED and one.owner == self.node.identity
            ]
            if not ids:
                return None
            found += ids
        return tuple(sorted(found, key=lambda one: (one.node, one.number)))

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
        if waited_ns < self.node.broker.limits.msg_timeout_ns and self._in_flight(copy):
            return "messages in flight"
        if _is_unstored(copy) or stream.sender.synced < stream.checkpoint_position:
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
            self._withhold(copy, name)

    def resume_delivery(self) -> None:
        """The transfer was cancelled."""
        for copy in self.copies:
            self._suspend(copy, suspended=False)

    # --- rules 11 and 12: dropping ---

    def _drop(self, copy: LocalCopy, now_ns: int) -> str:
        """Drop a copy if the rules allow it; returns what that waits for."""
        if copy.is_busy:
            return "a job on its files"
        if copy.is_origin and not self.node.is_decommissioning:
            return ""
        if copy.retry_ns > now_ns:
            return f"another attempt, because of: {copy.problems.get('', '')}"
        if copy.unreadable:
            return "topics that cannot be read"
        if not copy.is_open:
            return f"its owner, or {OPEN_AFTER_NS // _S} s without a stream"
        if copy.take_over_epoch:
            return "its promotion"
        if self._in_flight(copy):
            return "messages in flight"
        reason = self._needed_by(copy, now_ns)
        if not reason and copy.is_owner:
            # Messages that were published after the last checkpoint count as well.
            self._stale[copy] = set(copy.topics)
            reason = self._needed_by(copy, now_ns)
        if reason:
            return reason
        self.node.drop(self, copy)
        return "" if copy.is_origin else "a job on its files"

    def _needed_by(self, copy: LocalCopy, now_ns: int) -> str:
        """Who still needs a copy of which no message is in flight."""
        if _is_unstored(copy):
            return "a checkpoint of its channel state"
        pending = self.pending(copy)
        if pending:
            using = [one.pending for one in self.known.values() if self._may_rely_on(copy, one)]
            using += [
                self.delivered(one) for one in self.copies if self._may_rely_on_local(copy, one, now_ns)
            ]
            left = subtract(pending, using)
            if left:
                return self._reason(copy, left, now_ns)
        else:
            for peer, address in self.holders_of(copy).items():
                if not self._has_state(peer, copy):
                    return f"{address or peer.hex()} to store the channel state"
        return ""

    @staticmethod
    def _in_flight(copy: LocalCopy) -> bool:
        return any(promoted.in_flight(topic) for topic in copy.topics.values())

    def _reason(self, copy: LocalCopy, left: Pending, now_ns: int) -> str:
        """Why messages of a copy are still needed here."""
        owners = [one for one in self._owners(now_ns) if not copy.is_owner or one.claim > copy.claim]
        missing = subtract(left, [one.pending for one in owners])
        messages = f"{count(missing)} message{'s' * (count(missing) != 1)}"
        if missing:
            return f"consumers of {messages}" if copy.is_owner else f"an owner of {messages}"
        if any(one.node not in self.exchanges for one in owners):
            return "a connection to the owner"
        if not any(one.fully_replicated for one in owners):
            return "the owner to be fully replicated"
        return "the owner to store the channel state"

    def _may_rely_on(self, copy: LocalCopy, known: KnownCopy) -> bool:
        """Rule 11, for an owner on another node."""
        exchange = self.exchanges.get(known.node)
        if exchange is None or not known.is_owner or not known.is_full:
            return False
        if not (known.fully_replicated or (self.node.is_decommissioning and self.node.fewer_copies)):
            return False
        if copy.is_owner and known.claim < copy.claim:
            return False
        if not copy.is_owner and known.received_ns <= copy.detached_ns:
            return False
        if CopyId(self.node.identity, copy.number) in known.counted:
            return False
        return exchange.has_state_of(copy)

    def _may_rely_on_local(self, copy: LocalCopy, other: LocalCopy, now_ns: int) -> bool:
        """Rule 11, for an owner on this node."""
        if other is copy or not other.is_owner or other.is_busy:
            return False
        if copy.is_owner and other.claim < copy.claim:
            return False
        if _is_unstored(other, copy.topics):
            return False
        return self.counted(other, 0, now_ns) is not None

    def _has_state(self, peer: bytes, copy: LocalCopy) -> bool:
        """Rule 12: whether the peer has the channel state of the copy in a checkpoint, or no copy."""
        if peer in self.without_copy or peer == self.node.identity:
            return True
        exchange = self.exchanges.get(peer)
        copies = [one for one in self.known.values() if one.node == peer]
        if exchange is None or not copies:
            return False
        if any(one.kind != CopyKind.STREAMED for one in copies):
            return exchange.has_state_of(copy)
        # The peer learns from the owner that streams into its copy.
        owners = {one.owner for one in copies}
        if owners == {self.node.identity}:
            return self._replica_has_state(peer)
        return all(owner != peer and self._owner_has_state(owner, copy) for owner in owners)

    def _owner_has_state(self, owner: bytes, copy: LocalCopy) -> bool:
        if owner == self.node.identity:
            return True
        exchange = self.exchanges.get(owner)
        return exchange is not None and exchange.has_state_of(copy)

    def _replica_has_state(self, peer: bytes) -> bool:
        """Whether a replica of this node has all checkpoints that were sent to it, durably."""
        streams = [one for primary in self.primaries.values() for one in primary.streams]
        mine = [one for one in streams if self.node.peer_of(one) == peer]
        for stream in mine:
            sender: Sender = stream.sender
            if sender.synced < stream.checkpoint_position:
                sender.request_sync()
                return False
        return bool(mine)

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


def _is_unstored(copy: LocalCopy, names: Container[str] | None = None) -> bool:
    """Whether channel state of a copy, or of some of its topics, is not in a checkpoint yet."""
    for topic in copy.durable_topics():
        if names is not None and topic.name not in names:
            continue
        store = store_of(topic)
        if topic.has_changed or (store is not None and store.checkpoints.is_writing):
            return True
    return False


def _size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)
