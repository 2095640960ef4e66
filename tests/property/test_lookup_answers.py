"""A lookup is answered as if no earlier answer were kept, whatever happened before."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqcore.lookup_protocol import PeerInfo
from nsqlookupd.registry import Peer, Registry

S = 1_000_000_000
INACTIVE_AFTER = 30 * S
TOMBSTONE_LIFETIME = 20 * S
TOPICS = ["t", "u", "v"]
NODES = ["a", "b", "c"]

topics = st.sampled_from(TOPICS)
numbers = st.integers(0, 7)


@dataclass
class Announced:
    """What one connection of an nsqd has announced, as a plain record."""

    peer: Peer
    node: str
    heard: int
    topics: dict[str, int | None] = field(default_factory=dict)
    """Each with the time it was tombstoned."""


class Lookups(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.registry = Registry(INACTIVE_AFTER, TOMBSTONE_LIFETIME)
        self.now = S
        self.connections = []
        self.gone = []

    def one(self, number):
        return self.connections[number % len(self.connections)] if self.connections else None

    @rule(node=st.sampled_from(NODES), registered=st.sets(topics))
    def connect(self, node, registered):
        port = 1000 + len(self.connections) + len(self.gone)
        info = PeerInfo(node, 4150, 4151, "1.3.0")
        connection = Announced(self.registry.add_peer(f"10.0.0.1:{port}", info, self.now), node, self.now)
        self.connections.append(connection)
        for topic in sorted(registered):
            self.register(len(self.connections) - 1, topic)

    @rule(number=numbers, topic=topics)
    def register(self, number, topic):
        if connection := self.one(number):
            self.registry.register(connection.peer, topic, "c")
            connection.topics.setdefault(topic, None)

    @rule(number=numbers, topic=topics)
    def unregister(self, number, topic):
        if connection := self.one(number):
            self.registry.unregister_topic(connection.peer, topic)
            connection.topics.pop(topic, None)

    @rule(number=numbers)
    def ping(self, number):
        if connection := self.one(number):
            connection.peer.last_update_ns = connection.heard = self.now

    @rule(number=numbers)
    def leave(self, number):
        if connection := self.one(number):
            self.registry.remove_peer(connection.peer, 0)
            self.connections.remove(connection)
            self.gone.append(connection)

    @rule()
    def forget(self):
        for connection in self.gone:
            if connection.topics and self.registry.forget(connection.peer, 1)[-1][0] == "client":
                connection.topics.clear()

    @rule(topic=topics, node=st.sampled_from(NODES))
    def tombstone(self, topic, node):
        self.registry.tombstone(topic, f"{node}:4151", self.now)
        for connection in self.connections:
            if connection.node == node and topic in connection.topics:
                connection.topics[topic] = self.now

    @rule(topic=topics)
    def delete(self, topic):
        self.registry.delete_topic(topic)
        for connection in self.connections:
            connection.topics.pop(topic, None)

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds):
        self.now += seconds * S

    def expected(self, topic):
        newest = {}
        for connection in self.connections:  # in the order of connecting
            if topic in connection.topics and self.now - connection.heard <= INACTIVE_AFTER:
                newest[connection.node] = connection
        return [
            newest[node].peer
            for node in sorted(newest)
            if (since := newest[node].topics[topic]) is None or self.now - since >= TOMBSTONE_LIFETIME
        ]

    @invariant()
    def every_lookup_is_exact(self):
        for topic in TOPICS:
            assert self.registry.producers(topic, self.now) == self.expected(topic)


TestLookups = Lookups.TestCase
TestLookups.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
