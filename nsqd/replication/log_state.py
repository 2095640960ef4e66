"""One log as a node knows it: its copies here and elsewhere, and the pending messages of each. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from nsqd.engine.topic import Topic
from nsqd.log.ranges import merged
from nsqd.replication.channel_states import merge, pending_of, states_of
from nsqd.replication.claims import ChannelKey, Claim, Pending, subtract
from nsqd.replication.exchange import Exchange, no_copy
from nsqd.replication.frames import ChannelState, CopyId, CopyKind, Holder, Status
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary, Replicated


@dataclass(slots=True, eq=False)
class PeerCopy:
    """The last status of a copy of a peer, and the connection over which it came."""

    node: bytes
    number: int
    kind: int = CopyKind.NONE
    epoch: int = 0
    owner: bytes = b""
    fully_replicated: bool = False
    counted: tuple[CopyId, ...] = ()
    # Its pending messages; complete once a full status has come.
    pending: Pending = field(default_factory=dict)
    is_full: bool = False
    received_ns: int = 0
    link: PeerLink | None = None

    @property
    def is_owner(self) -> bool:
        return self.kind in (CopyKind.PROMOTED, CopyKind.ORIGIN)

    @property
    def claim(self) -> Claim:
        return Claim(self.epoch, self.kind == CopyKind.ORIGIN, self.node, self.number)

    @property
    def heard_ns(self) -> int:
        """The time of the last frame from the peer."""
        return self.received_ns if self.link is None else max(self.received_ns, self.link.heard_ns)

    def take(self, status: Status, states: list[ChannelState], now_ns: int) -> None:
        """Replace the known state by a newer status."""
        self.kind, self.epoch, self.owner = status.kind, status.epoch, status.owner
        self.fully_replicated, self.counted = status.fully_replicated, status.counted
        self.received_ns = now_ns
        if status.full:
            self.pending, self.is_full = {}, True
        elif status.kind == CopyKind.STREAMED:
            self.pending, self.is_full = {}, False
        changed: Pending = {}
        for state in states:
            channels = changed.setdefault(state.topic, {})
            if state.pending:
                key: ChannelKey = (state.channel, state.generation)
                channels[key] = merged([*channels.get(key, ()), *state.pending])
        for topic, channels in changed.items():
            if channels:
                self.pending[topic] = channels
            else:
                self.pending.pop(topic, None)


class LogState:
    """See the module."""

    def __init__(self, node: NodeState, origin: bytes) -> None:
        self.node = node
        self.origin = origin
        self.copies: list[LocalCopy] = []
        self.peer_copies: dict[tuple[bytes, int], PeerCopy] = {}
        # Peers without a copy of this log, by their own status.
        self.without_copy: set[bytes] = set()
        # The streams of each owner here, and the checks whether it is fully replicated.
        self.primaries: dict[LocalCopy, Primary] = {}
        self.checks: dict[LocalCopy, Replicated] = {}
        # The statuses and channel state that are exchanged with each peer.
        self.exchanges: dict[bytes, Exchange] = {}
        # Something has changed since the rules were applied.
        self.has_changed = True
        # Which peers were heard, and the claims here, when the rules were applied last.
        self.seen_before: object = None
        # The replicas with pending messages that no owner delivers.
        self.undelivered: dict[LocalCopy, bool] = {}
        # Holders without a query, because they were not reached for the failover timeout.
        self.unreached: set[bytes] = set()
        self._pending: dict[LocalCopy, Pending] = {}
        self._stale: dict[LocalCopy, set[str]] = {}

    # --- copies here ---

    def add(self, copy: LocalCopy) -> None:
        """Add a copy that was found or made, or into which a stream begins."""
        self.copies.append(copy)
        self.state_changed(copy)

    def remove(self, copy: LocalCopy) -> None:
        """The copy is gone."""
        copy.is_gone = True
        self.copies.remove(copy)
        primary = self.primaries.pop(copy, None)
        if primary is not None:
            primary.close()
        self.checks.pop(copy, None)
        self.undelivered.pop(copy, None)
        self._forget_pending(copy)
        self.changed()

    def state_changed(self, copy: LocalCopy) -> None:
        """The copy was opened or closed: its state is to be sent in full."""
        self._forget_pending(copy)
        for exchange in self.exchanges.values():
            exchange.copy_changed(copy)
        self.changed()

    def opened(self, copy: LocalCopy) -> None:
        """A copy was opened: the copies here merge their states, and peers get a query."""
        for other in self.copies:
            for topic in list(other.durable_topics()):
                self._merge_topic(topic, other, copy)
            for topic in list(copy.durable_topics()):
                self._merge_topic(topic, copy, other)
        self.state_changed(copy)
        for exchange in self.exchanges.values():
            exchange.request_full_state()

    def checkpointed(self, copy: LocalCopy, topic: Topic) -> None:
        """A checkpoint of a topic was written."""
        self.pending_again(copy, topic.name)
        primary = self.primaries.get(copy)
        senders = [] if primary is None else [stream.sender for stream in primary.streams]
        for exchange in self.exchanges.values():
            exchange.topic_changed(copy, topic.name)
            exchange.checkpointed(topic, senders)
        for other in self.copies:
            self._merge_topic(topic, copy, other)
        if len(self.copies) > 1 or self.peer_copies:
            self.changed()

    def topic_removed(self, copy: LocalCopy, name: str) -> None:
        """A topic of the copy was deleted."""
        self.pending_again(copy, name)
        for exchange in self.exchanges.values():
            exchange.topic_changed(copy, name)
        self.changed()

    @property
    def all_holders(self) -> dict[bytes, str]:
        """The nodes that hold copies of this log, as any copy here knows them."""
        found: dict[bytes, str] = {}
        for copy in self.copies:
            found |= copy.holders
        return found

    def changed(self) -> None:
        """Compute again which owner delivers which messages."""
        self.has_changed = True

    def claim(self, copy: LocalCopy) -> Claim:
        """The claim of an owner here."""
        return Claim(copy.epoch, copy.is_origin, self.node.identity, copy.number)

    # --- pending messages ---

    def pending(self, copy: LocalCopy) -> Pending:
        """The messages that are pending in a copy here and can be read."""
        if not copy.has_state:
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

    def _forget_pending(self, copy: LocalCopy) -> None:
        """The copy was opened or closed."""
        self._pending.pop(copy, None)
        self._stale.pop(copy, None)

    def pending_again(self, copy: LocalCopy, name: str = "") -> None:
        """Let the next call of `pending` check a topic, or all topics."""
        if copy in self._pending:
            self._stale.setdefault(copy, set()).update([name] if name else copy.topics)

    def delivered(self, copy: LocalCopy) -> Pending:
        """The messages that an owner delivers, or a replica has pending, without the yielded ones."""
        pending = self.pending(copy)
        return subtract(pending, [copy.yielded]) if copy.yielded else pending

    # --- copies elsewhere ---

    def exchange(self, link: PeerLink, now_ns: int) -> Exchange:
        """The exchange with a peer; of two connections both nodes use the one of the lower identity."""
        found = self.exchanges.get(link.peer)
        if found is None or found.link.is_closed or (found.link is not link and link.is_preferred):
            link = next((one for one in self.node.links_to(link.peer) if one.is_preferred), link)
            found = self.exchanges[link.peer] = Exchange(link, now_ns)
        return found

    def send_status(self, exchange: Exchange, now_ns: int) -> None:
        """Send a peer the statuses of all copies here, if anything in them has changed."""
        copies = [
            one for one in self.copies if not (one.is_gone or (one.is_origin and self.node.is_transferred))
        ]
        heads = [self._status(copy, exchange.opened_ns, now_ns) for copy in copies]
        exchange.send(
            copies,
            heads or [no_copy(self.origin, self.node.identity)],
            self.delivered,
            takes_states=any(
                one.is_owner or one.kind == CopyKind.OPEN for one in self.known_at(exchange.peer)
            ),
        )

    def _status(self, copy: LocalCopy, since_ns: int, now_ns: int) -> Status:
        """The status of a copy, without serials."""
        counted = self.counted(copy, since_ns, now_ns)
        return Status(
            *(copy.origin, copy.number, copy.kind, copy.epoch, copy.seen, copy.owner),
            fully_replicated=counted is not None,
            counted=counted or (),
            holders=tuple(Holder(*one) for one in sorted(copy.holders.items())),
        )

    def take_status(self, exchange: Exchange, status: Status, now_ns: int) -> None:
        """Take the status of a peer's copy, and the channel state that came before it."""
        states = exchange.take(status)
        news: set[Topic] = set()
        if status.kind == CopyKind.NONE:
            self.has_no_copy(exchange.peer)
        else:
            news = self._learn(exchange.link, status, states, now_ns)
        exchange.learned(status.serial, news)
        if status.last:
            self._forget_others(exchange.peer, exchange.last_taken())
        self.changed()

    def link_ended(self, link: PeerLink) -> None:
        """A connection is gone; the last status of the peer counts for the failover timeout."""
        exchange = self.exchanges.get(link.peer)
        if exchange is not None and exchange.link is link:
            del self.exchanges[link.peer]
            for known in self.known_at(link.peer):
                known.received_ns = max(known.received_ns, link.heard_ns)
            self.changed()

    def known_at(self, peer: bytes) -> list[PeerCopy]:
        """The copies of a peer."""
        return [one for one in self.peer_copies.values() if one.node == peer]

    def has_no_copy(self, peer: bytes) -> None:
        """The peer has no copy of this log (any more)."""
        self._forget_others(peer, set())
        self.without_copy.add(peer)
        self.node.forget_holder(self.copies, peer)

    def _forget_others(self, peer: bytes, numbers: set[int]) -> None:
        """The peer has no other copies than these."""
        for key in [key for key in self.peer_copies if key[0] == peer and key[1] not in numbers]:
            del self.peer_copies[key]

    def _learn(self, link: PeerLink, status: Status, states: list[ChannelState], now_ns: int) -> set[Topic]:
        """Take the status of a peer's copy; returns the topics for which its channel state was news."""
        peer = link.peer
        known = self.peer_copies.setdefault((peer, status.copy), PeerCopy(peer, status.copy))
        known.take(status, states, now_ns)
        known.link = link
        self.without_copy.discard(peer)
        self.node.learn_holders(self.copies, self.without_copy, Holder(peer, link.address), status.holders)
        self.node.see_epoch(self.copies, status.epoch if known.is_owner else status.seen_incarnation)
        return self._merge(states)

    def is_fresh(self, known: PeerCopy, now_ns: int) -> bool:
        """Whether the peer was heard within the failover timeout."""
        return now_ns - known.heard_ns < self.node.settings.failover_ns

    def owners(self, now_ns: int) -> list[PeerCopy]:
        """The owners elsewhere that were heard within the failover timeout."""
        return [one for one in self.peer_copies.values() if one.is_owner and self.is_fresh(one, now_ns)]

    def counted(self, copy: LocalCopy, since_ns: int, now_ns: int) -> tuple[CopyId, ...] | None:
        """The replicas because of which this owner is fully replicated since that time; None if it is not."""
        check = self.checks.get(copy)
        if not copy.is_owner or copy.asks(now_ns) or check is None or not check.is_done:
            return None
        if check.began_ns <= since_ns:
            return None
        found = []
        for stream in check.streams:
            ids = [
                CopyId(one.node, one.number)
                for one in self.known_at(stream.peer)
                if one.kind == CopyKind.STREAMED and one.owner == self.node.identity
            ]
            if not ids:
                return None
            found += ids
        return tuple(sorted(found, key=lambda one: (one.node, one.number)))

    # --- channel state ---

    def _merge(self, states: list[ChannelState]) -> set[Topic]:
        """Take over the channel state of another copy; returns the topics for which it was news."""
        news: set[Topic] = set()
        for copy in self.copies:
            if copy.has_state:
                for state in states:
                    topic = self._merge_into(copy, state)
                    if topic is not None:
                        news.add(topic)
        return news

    def _merge_topic(self, topic: Topic, source: LocalCopy, target: LocalCopy) -> None:
        """Take over the channel state of a topic from one copy here to another."""
        if target is not source and source.has_state and target.has_state and topic.name in target.topics:
            for state in states_of(topic, self.origin, source.number, {}):
                self._merge_into(target, state)

    def _merge_into(self, copy: LocalCopy, state: ChannelState) -> Topic | None:
        topic = copy.topics.get(state.topic)
        if topic is None or topic.ephemeral or not merge(self.node.broker, topic, state):
            return None
        self.pending_again(copy, topic.name)
        self.node.wants_turn = True
        if topic.origin and (topic.tombstoned or not copy.is_owner):
            self.node.to_checkpoint[topic] = None
        self.changed()
        return topic


class Logs(dict[bytes, LogState]):
    """The logs of which this node knows, by their origins; `logs[origin]` makes one that is new."""

    def __init__(self, node: NodeState) -> None:
        super().__init__()
        self._node = node

    def __missing__(self, origin: bytes) -> LogState:
        found = self[origin] = LogState(self._node, origin)
        return found
