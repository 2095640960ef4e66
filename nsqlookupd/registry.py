"""The directory of topics, channels and their producers. Pure; time arrives as ``now_ns``.

A *key* is (category, key, subkey) as NSQ counts them: ``client::``, ``topic:<topic>:`` and
``channel:<topic>:<channel>``. A key without producers was created by an operator, or its
last producer left.
"""

import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

from nsqclient.wire.names import is_ephemeral
from nsqcore.lookup_protocol import REPLICAS_MISSING, PeerInfo

Key: TypeAlias = tuple[str, str, str]
NodeKey: TypeAlias = tuple[str, int, int]
"""What tells one nsqd from another: broadcast address, TCP port, HTTP port."""

# In a topic's table: this producer was never tombstoned.
NEVER: Final = 0


@dataclass(eq=False, slots=True)
class Peer:
    """One connection of an nsqd. Its identity is the connection: a reconnect is another peer."""

    id: str
    """The remote ``ip:port``."""
    info: PeerInfo
    last_update_ns: int
    obstacle: str = ""
    """Why it takes no publishes at the moment; empty when it does."""
    text: bytes = b""
    """Its JSON in answers, cached by the HTTP API."""
    node_text: bytes = b""
    """Its JSON in the answers of `/lookup/nodes`, cached by the HTTP API."""
    serial: int = 0
    """Rises with each connection, so the newer of two connections of one nsqd is known."""
    disconnected: bool = False
    """Its connection is closed: no answer names it, though its registrations may not all be forgotten yet."""

    def node(self) -> NodeKey:
        """Name the nsqd, independently of the connection that announced it."""
        return (self.info.broadcast_address, self.info.tcp_port, self.info.http_port)

    @property
    def accepts_replicas(self) -> bool:
        """Whether it may become a replica now. An nsqd that drains or is unhealthy reports an obstacle."""
        return self.info.accepts_replicas and self.obstacle in {"", REPLICAS_MISSING}


@dataclass(eq=False, slots=True)
class _Channel:
    """A channel with the peers that have it. Peers refer to it, so a million registrations share its name."""

    topic: str
    name: str
    peers: set[Peer]


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A peer as ``/nodes`` shows it: its topics, and for each whether it is tombstoned."""

    peer: Peer
    topics: list[str]
    tombstones: list[bool]


@dataclass(frozen=True, slots=True)
class LostNode:
    """An nsqd whose connection ended, and the topics that it had then."""

    peer: Peer
    topics: frozenset[str]
    since_ns: int


# An nsqd that connects again has registered its topics after so long.
_REGISTERS_NS: Final = 5_000_000_000

_last_update_ns: Final = attrgetter("last_update_ns")
_serial: Final = attrgetter("serial")


@dataclass(frozen=True, slots=True)
class _Answer:
    producers: list[Peer]
    until_ns: int


class Registry:
    """The directory, indexed both ways (topic to peers, peer to topics) so that no request scans it all."""

    def __init__(self, inactive_after_ns: int, tombstone_lifetime_ns: int) -> None:
        self._inactive_after_ns = inactive_after_ns
        self._tombstone_lifetime_ns = tombstone_lifetime_ns
        self._serial = 0
        # For each topic the peers that produce it, with the time a peer was tombstoned for it.
        self._topics: dict[str, dict[Peer, int]] = {}
        # For each topic its channels. A topic may have channels and no key.
        self._channels: dict[str, dict[str, _Channel]] = {}
        # What each peer registered, in the order of connecting.
        self._topics_of: dict[Peer, set[str]] = {}
        self._channels_of: dict[Peer, set[_Channel]] = {}
        # The topics of each peer that it was tombstoned for; most peers have no entry.
        self._marked_of: dict[Peer, set[str]] = {}
        # The nsqds that disconnected, in this order, for as long as a silent one counts as active.
        self._lost: dict[NodeKey, LostNode] = {}
        # Answers to lookups, valid until the topic changes or their time is over.
        self._answers: dict[str, _Answer] = {}
        # The last answer without a tombstone, and all producers it was made of. In a fleet most topics have
        # the same producers, and comparing a thousand takes a twentieth of the time of a new answer.
        self._common: tuple[frozenset[Peer], _Answer] = (frozenset(), _Answer([], 0))

    # -- peers -------------------------------------------------------------------

    def add_peer(self, peer_id: str, info: PeerInfo, now_ns: int) -> Peer:
        self._serial += 1
        peer = Peer(peer_id, info, now_ns, serial=self._serial)
        self._topics_of[peer] = set()
        self._channels_of[peer] = set()
        return peer

    def remove_peer(self, peer: Peer, now_ns: int) -> None:
        """Hide a peer whose connection is gone; :meth:`forget` removes what it registered."""
        peer.disconnected = True
        self._forget_lost(now_ns)
        self._lost.pop(peer.node(), None)
        if topics := frozenset(self._topics_of[peer]):
            self._lost[peer.node()] = LostNode(peer, topics, now_ns)
        self._common = (frozenset(), _Answer([], 0))
        for topic in self._topics_of[peer]:
            self._answers.pop(topic, None)

    def forget(self, peer: Peer, at_most: int) -> list[Key]:
        """Forget up to *at_most* of the keys a removed peer was in; returns them, the client key last of all.

        Ephemeral keys that become empty are removed.
        """
        keys: list[Key] = []
        channels, topics = self._channels_of[peer], self._topics_of[peer]
        while channels and len(keys) < at_most:
            one = channels.pop()
            topic, channel = one.topic, one.name
            self.unregister_channel(peer, topic, channel)
            keys.append(("channel", topic, channel))
        while topics and len(keys) < at_most:
            topic = topics.pop()
            self._remove_from_topic(peer, topic)
            keys.append(("topic", topic, ""))
        if len(keys) < at_most:
            keys.append(("client", "", ""))
            del self._topics_of[peer]
            del self._channels_of[peer]
            self._marked_of.pop(peer, None)
        return keys

    # -- announcements of peers -------------------------------------------------------

    def register(self, peer: Peer, topic: str, channel: str | None = None) -> list[Key]:
        """Note that *peer* has the topic, and the channel; returns the keys it was not yet in.

        A peer that is there already keeps its tombstone.
        """
        added: list[Key] = []
        if channel is not None:
            found = self._channel(topic, channel)
            if peer not in found.peers:
                found.peers.add(peer)
                self._channels_of[peer].add(found)
                added.append(("channel", topic, channel))
        # Many peers announce the same names: one copy of each is stored.
        topic = sys.intern(topic)
        producers = self._topics.setdefault(topic, {})
        if peer not in producers:
            self._answers.pop(topic, None)
            producers[peer] = NEVER
            self._topics_of[peer].add(topic)
            added.append(("topic", topic, ""))
        return added

    def unregister_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        """Take *peer* out of one channel and leave the topic as it is; returns whether it was there."""
        found = self._channels.get(topic, {}).get(channel)
        if found is None:
            return False
        was_there = peer in found.peers
        found.peers.discard(peer)
        self._channels_of[peer].discard(found)
        if not found.peers and is_ephemeral(channel):
            self._drop_channel(topic, channel)
        return was_there

    def unregister_topic(self, peer: Peer, topic: str) -> list[Key]:
        """Take *peer* out of a topic and all its channels; returns the keys it was in, the topic last."""
        removed: list[Key] = [
            ("channel", topic, channel)
            for channel in sorted(self._channels.get(topic, ()))
            if self.unregister_channel(peer, topic, channel)
        ]
        if topic in self._topics_of[peer]:
            removed.append(("topic", topic, ""))
        self._remove_from_topic(peer, topic)
        return removed

    def _channel(self, topic: str, channel: str) -> _Channel:
        channels = self._channels.setdefault(topic, {})
        found = channels.get(channel)
        if found is None:
            found = channels[channel] = _Channel(topic, channel, set())
        return found

    def _take_topic(self, peer: Peer, topic: str) -> None:
        """Forget that *peer* has the topic, and its tombstone."""
        self._topics_of[peer].discard(topic)
        marked = self._marked_of.get(peer)
        if marked:
            marked.discard(topic)
            if not marked:
                del self._marked_of[peer]

    def _remove_from_topic(self, peer: Peer, topic: str) -> None:
        self._take_topic(peer, topic)
        self._answers.pop(topic, None)
        producers = self._topics.get(topic)
        if producers is None:
            return
        producers.pop(peer, None)
        if not producers and is_ephemeral(topic):
            del self._topics[topic]
            # Otherwise the channels of the removed topic would be listed forever.
            for channel in [name for name, one in self._channels.get(topic, {}).items() if not one.peers]:
                self._drop_channel(topic, channel)

    def _drop_channel(self, topic: str, channel: str) -> None:
        channels = self._channels[topic]
        del channels[channel]
        if not channels:
            del self._channels[topic]

    # -- actions of operators ---------------------------------------------------------

    def create_topic(self, topic: str) -> None:
        self._topics.setdefault(topic, {})

    def create_channel(self, topic: str, channel: str) -> None:
        self._channel(topic, channel)
        self.create_topic(topic)

    def delete_topic(self, topic: str) -> list[Key]:
        """Drop a topic and its channels with their producers; returns the removed keys."""
        removed: list[Key] = [
            ("channel", topic, channel)
            for channel in sorted(self._channels.get(topic, ()))
            if self.delete_channel(topic, channel)
        ]
        producers = self._topics.pop(topic, None)
        self._answers.pop(topic, None)
        if producers is not None:
            removed.append(("topic", topic, ""))
            for peer in producers:
                self._take_topic(peer, topic)
        return removed

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Drop a channel with its producers; returns whether it existed."""
        found = self._channels.get(topic, {}).get(channel)
        if found is None:
            return False
        for peer in found.peers:
            self._channels_of[peer].discard(found)
        self._drop_channel(topic, channel)
        return True

    def tombstone(self, topic: str, node: str, now_ns: int) -> int:
        """Hide a node (``address:httpport``) as producer of *topic* for a while; returns how many match."""
        marked = 0
        self._answers.pop(topic, None)
        producers = self._topics.get(topic, {})
        for peer in producers:
            address, port = peer.info.broadcast_address, peer.info.http_port
            # An IPv6 address is written with brackets by some callers and without by others.
            if node in {f"{address}:{port}", f"[{address}]:{port}"}:
                producers[peer] = now_ns
                self._marked_of.setdefault(peer, set()).add(topic)
                marked += 1
        return marked

    # -- queries of readers -----------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def knows(self, topic: str, channel: str | None = None) -> bool:
        """Whether the names are in use, and therefore valid."""
        if channel is None:
            return topic in self._topics
        channels = self._channels.get(topic)
        return channels is not None and channel in channels

    def channels(self, topic: str) -> list[str]:
        return sorted(self._channels.get(topic, ()))

    def producers(self, topic: str, now_ns: int) -> list[Peer]:
        """List the producers of *topic* that are active and not tombstoned, each nsqd once."""
        answer = self._answers.get(topic)
        if answer is None or now_ns >= answer.until_ns:
            answer = self._answers[topic] = self._answer(self._topics.get(topic, {}), now_ns)
        return answer.producers

    def _answer(self, producers: dict[Peer, int], now_ns: int) -> _Answer:
        if any(producers.values()):  # a few have tombstones, most topics none
            found = [
                peer
                for peer in self._newest(producers, now_ns)
                if not self._is_tombstoned(producers[peer], now_ns)
            ]
            return _Answer(found, self._until(producers, now_ns))
        same, answer = self._common
        if now_ns >= answer.until_ns or producers.keys() != same:
            answer = _Answer(self._newest(producers, now_ns), self._until(producers, now_ns))
            self._common = (frozenset(producers), answer)
        return answer

    def publishable(self, topic: str, now_ns: int) -> list[Peer]:
        """List the nsqds that take messages of *topic* now, whether they have the topic or not."""
        producers = self._topics.get(topic, {})
        return [
            peer
            for peer in self._newest(self._topics_of, now_ns)
            if not peer.obstacle and not self._is_tombstoned(producers.get(peer, NEVER), now_ns)
        ]

    def with_identities(self, identities: Container[str], now_ns: int) -> list[Peer]:
        """List the nsqds with these identities, the last one to connect first.

        There are several of one identity while the connection from its last address is still open.
        """
        asked = (peer for peer in self._topics_of if peer.info.identity in identities)
        return sorted(self._newest(asked, now_ns), key=_serial, reverse=True)

    def replica_candidates(self, now_ns: int) -> list[Peer]:
        """List the nsqds that accept replicas of the logs of others."""
        return [
            peer
            for peer in self._newest(self._topics_of, now_ns)
            if peer.info.identity and peer.accepts_replicas
        ]

    def lost(self, topic: str, now_ns: int) -> list[LostNode]:
        """List the nsqds with *topic* that disconnected within the last five minutes and are not back.

        The five minutes are ``--inactive-producer-timeout``. All topics count if *topic* is empty.
        """
        self._forget_lost(now_ns)
        here = {peer.node(): peer for peer in self._topics_of if not peer.disconnected} if self._lost else {}
        found: list[LostNode] = []
        for node, one in self._lost.items():
            peer, missing = here.get(node), one.topics
            if peer is not None:
                if now_ns - peer.last_update_ns > _REGISTERS_NS:
                    continue
                missing -= self._topics_of[peer]
            if topic in missing or (missing and not topic):
                found.append(LostNode(one.peer, missing, one.since_ns))
        return found

    def _forget_lost(self, now_ns: int) -> None:
        while self._lost:
            node, one = next(iter(self._lost.items()))
            if now_ns - one.since_ns <= self._inactive_after_ns:
                break
            del self._lost[node]

    def _until(self, producers: Mapping[Peer, int], now_ns: int) -> int:
        """When an answer made now may become wrong without a change; a PING only delays that."""
        heard_ns = min(map(_last_update_ns, producers), default=now_ns)
        # An inactive peer returns with its next PING, so an answer without it is not cached.
        until_ns = max(now_ns, heard_ns + self._inactive_after_ns + 1)
        for tombstoned_ns in filter(None, producers.values()):
            if self._is_tombstoned(tombstoned_ns, now_ns):
                until_ns = min(until_ns, tombstoned_ns + self._tombstone_lifetime_ns)
        return until_ns

    def nodes(self, now_ns: int) -> Iterator[ListedNode]:
        """Yield every active nsqd once, with all its topics. The registry may change between two of them.

        Most nsqds of a fleet have the same topics: they share one list of topics, and one of tombstones.
        """
        known: frozenset[str] = frozenset()
        topics: list[str] = []
        none_marked: list[bool] = []
        for peer in self._newest(self._topics_of, now_ns):
            if peer.disconnected:
                continue
            if self._topics_of[peer] != known:
                known = frozenset(self._topics_of[peer])
                topics = sorted(known)
                none_marked = [False] * len(topics)
            marked = self._marked_of.get(peer)
            tombstones = none_marked
            if marked:
                tombstones = [
                    topic in marked and self._is_tombstoned(self._topics[topic][peer], now_ns)
                    for topic in topics
                ]
            yield ListedNode(peer, topics, tombstones)

    def missing(self, expected: Mapping[NodeKey, frozenset[str]]) -> list[NodeKey]:
        """List the nsqds of *expected* that have not announced themselves and all these topics."""
        newest: dict[NodeKey, Peer] = {}
        for peer in self._topics_of:
            if not peer.disconnected:
                newest[peer.node()] = peer  # in the order of connecting
        return [
            node
            for node, topics in expected.items()
            if node not in newest or not topics <= self._topics_of[newest[node]]
        ]

    def entries(self, only: str = "") -> Iterator[tuple[Key, list[tuple[Peer, int]]]]:
        """Yield every key that has producers, or those of one topic; each producer with its tombstone time.

        The time is 0 where there is no tombstone. As with :meth:`nodes`, the registry may change in between.
        """
        clients = [(peer, NEVER) for peer in self._topics_of if not peer.disconnected]
        if clients and not only:
            yield ("client", "", ""), clients
        for topic in [only] if only else sorted(self._topics.keys() | self._channels.keys()):
            producers = [item for item in self._topics.get(topic, {}).items() if not item[0].disconnected]
            if producers:
                yield ("topic", topic, ""), producers
            for channel in self.channels(topic):
                found = self._channels.get(topic, {}).get(channel)
                peers = [peer for peer in found.peers if not peer.disconnected] if found is not None else []
                if peers:
                    yield ("channel", topic, channel), [(peer, NEVER) for peer in peers]

    def counts(self) -> dict[str, int]:
        """Counts of peers, topics, channels and registrations, for metrics."""
        return {
            "peers": sum(not peer.disconnected for peer in self._topics_of),
            "unavailable": sum(1 for peer in self._topics_of if peer.obstacle and not peer.disconnected),
            "topics": len(self._topics),
            "channels": sum(len(channels) for channels in self._channels.values()),
            "registrations": sum(
                len(topics) for peer, topics in self._topics_of.items() if not peer.disconnected
            ),
        }

    def is_active(self, peer: Peer, now_ns: int) -> bool:
        return not peer.disconnected and now_ns - peer.last_update_ns <= self._inactive_after_ns

    def _is_tombstoned(self, since_ns: int, now_ns: int) -> bool:
        return since_ns != NEVER and now_ns - since_ns < self._tombstone_lifetime_ns

    def _newest(self, peers: Iterable[Peer], now_ns: int) -> list[Peer]:
        """The newest connection of each active nsqd, in a stable order."""
        newest: dict[NodeKey, Peer] = {}
        for peer in peers:
            if self.is_active(peer, now_ns):
                node = peer.node()
                other = newest.get(node)
                if other is None or other.serial < peer.serial:
                    newest[node] = peer
        return sorted(newest.values(), key=Peer.node)
