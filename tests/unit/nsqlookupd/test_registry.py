import gc
import sys

import pytest

from nsqcore.lookup_protocol import PeerInfo
from nsqlookupd.registry import Registry

S = 1_000_000_000
INACTIVE_AFTER = 300 * S
TOMBSTONE_LIFETIME = 45 * S


@pytest.fixture
def registry():
    return Registry(INACTIVE_AFTER, TOMBSTONE_LIFETIME)


class Directory:
    """A registry with peers named by one letter; two with the same letter are two connections of one nsqd."""

    def __init__(self, registry):
        self.registry = registry
        self.port = 1000

    def peer(self, name="a", now_ns=0, address=None):
        self.port += 1
        return self.registry.add_peer(
            f"10.0.0.1:{self.port}", PeerInfo(address or name, 4150, 4151, "1.3.0"), now_ns
        )

    def replica(self, name, identity, now_ns=0, *, accepts=True):
        self.port += 1
        info = PeerInfo(name, 4150, 4151, "1.3.0", identity=identity, accepts_replicas=accepts)
        return self.registry.add_peer(f"10.0.0.1:{self.port}", info, now_ns)

    def producers(self, topic, now_ns=0):
        return [peer.info.broadcast_address for peer in self.registry.producers(topic, now_ns)]

    def nodes(self, now_ns=0):
        return {
            node.peer.info.broadcast_address: dict(zip(node.topics, node.tombstones, strict=True))
            for node in self.registry.nodes(now_ns)
        }


@pytest.fixture
def directory(registry):
    return Directory(registry)


# -- registering --------------------------------------------------------------------------


def test_registered_channel_brings_its_topic(registry, directory):
    added = registry.register(directory.peer("a"), "t", "c")

    assert added == [("channel", "t", "c"), ("topic", "t", "")]
    assert registry.channels("t") == ["c"]
    assert directory.producers("t") == ["a"]


def test_lists_are_sorted_and_hold_each_name_once(registry, directory):
    for name in "zxy":
        registry.register(directory.peer(name), "t", "c" + name)
        registry.register(directory.peer(name), name)

    assert registry.topics() == ["t", "x", "y", "z"]
    assert registry.channels("t") == ["cx", "cy", "cz"]
    assert directory.producers("t") == ["x", "y", "z"]


def test_unregistered_channel_leaves_topic_alone(registry, directory):
    peer = directory.peer("a")
    registry.register(peer, "t", "c")

    assert registry.unregister_channel(peer, "t", "c")
    assert registry.channels("t") == ["c"]
    assert directory.producers("t") == ["a"]


def test_unregistered_topic_takes_channels_of_that_peer_along(registry, directory):
    peer, other = directory.peer("a"), directory.peer("b")
    registry.register(peer, "t", "c")
    registry.register(other, "t", "c")

    assert registry.unregister_topic(peer, "t") == [("channel", "t", "c"), ("topic", "t", "")]
    assert directory.producers("t") == ["b"]
    assert directory.nodes() == {"a": {}, "b": {"t": False}}


def test_unregistering_unknown_is_harmless(registry, directory):
    peer = directory.peer()

    assert registry.unregister_topic(peer, "t") == []
    assert not registry.unregister_channel(peer, "t", "c")
    assert registry.topics() == []


def test_lost_nsqd_is_listed_until_return_or_five_minutes(registry, directory):
    a, b, empty = directory.peer("a"), directory.peer("b"), directory.peer("c")
    registry.register(a, "t")
    registry.register(b, "t")
    registry.register(b, "u")
    for peer in (a, b, empty):
        registry.remove_peer(peer, 10 * S)
        registry.forget(peer, 9)

    def lost(topic, now_ns):
        return [(one.peer.info.broadcast_address, one.topics) for one in registry.lost(topic, now_ns)]

    assert lost("t", 11 * S) == [("a", {"t"}), ("b", {"t", "u"})]
    assert lost("u", 11 * S) == [("b", {"t", "u"})]
    assert lost("v", 11 * S) == []
    directory.peer("a", 12 * S)
    assert lost("", 310 * S) == [("b", {"t", "u"})]
    assert lost("", 311 * S) == []


def test_reconnected_nsqd_is_not_lost_with_its_old_connection(registry, directory):
    old = directory.peer("a")
    registry.register(old, "t")
    new = directory.peer("a", 5 * S)
    registry.register(old, "gone")
    registry.remove_peer(old, 6 * S)

    assert [one.topics for one in registry.lost("", 7 * S)] == [{"t", "gone"}]
    registry.register(new, "t")
    assert registry.lost("t", 7 * S) == []
    # It has registered all that it still has.
    assert [one.topics for one in registry.lost("", 10 * S)] == [{"gone"}]
    assert registry.lost("", 11 * S) == []


def test_ephemeral_channel_goes_with_its_last_producer(registry, directory):
    one, two = directory.peer("a"), directory.peer("b")
    for peer in (one, two):
        registry.register(peer, "t", "c#ephemeral")

    registry.unregister_channel(one, "t", "c#ephemeral")
    assert registry.channels("t") == ["c#ephemeral"]
    registry.unregister_channel(two, "t", "c#ephemeral")
    assert registry.channels("t") == []


@pytest.mark.parametrize("how", ["unregister", "disconnect"])
def test_ephemeral_topic_and_its_channels_go_with_last_producer(registry, directory, how):
    peer = directory.peer()
    registry.register(peer, "t#ephemeral", "c#ephemeral")
    registry.register(peer, "t#ephemeral", "durable")

    if how == "unregister":
        registry.unregister_topic(peer, "t#ephemeral")
    else:
        registry.remove_peer(peer, 0)
        registry.forget(peer, 9)

    assert registry.topics() == []
    assert registry.channels("t#ephemeral") == []


def test_disconnected_peer_is_hidden_before_it_is_forgotten(registry, directory):
    gone, other = directory.peer("a"), directory.peer("b")
    for peer in (gone, other):
        registry.register(peer, "t", "c")
    registry.remove_peer(gone, 0)

    assert directory.producers("t") == ["b"]
    assert directory.nodes() == {"b": {"t": False}}
    assert [[peer for peer, _ in producers] for _, producers in registry.entries()] == [[other]] * 3
    assert registry.counts() == {"peers": 1, "unavailable": 0, "topics": 1, "channels": 1, "registrations": 1}
    assert registry.missing({gone.node(): frozenset()}) == [gone.node()]


def test_peer_is_forgotten_in_pieces_of_any_size(registry, directory):
    peer = directory.peer()
    for number in range(5):
        registry.register(peer, f"t{number}", "c#ephemeral")
    registry.remove_peer(peer, 0)
    pieces = [registry.forget(peer, 4) for _ in range(3)]

    assert [len(piece) for piece in pieces] == [4, 4, 3]
    assert len({key for piece in pieces for key in piece}) == 11
    assert [registry.channels(topic) for topic in registry.topics()] == [[]] * 5


# -- operators ----------------------------------------------------------------------------


def test_creating_existing_topic_retains_its_producers(registry, directory):
    registry.register(directory.peer("a"), "t", "c")
    registry.create_channel("t", "c")

    assert directory.producers("t") == ["a"]


def test_deleted_topic_is_gone_for_connected_peers_too(registry, directory):
    peer = directory.peer("a")
    registry.register(peer, "t", "c")
    registry.register(peer, "u")

    assert registry.delete_topic("t") == [("channel", "t", "c"), ("topic", "t", "")]
    assert registry.topics() == ["u"]
    assert not registry.knows("t")
    assert directory.nodes() == {"a": {"u": False}}
    assert registry.forget(peer, 9) == [("topic", "u", ""), ("client", "", "")]


# -- tombstones ---------------------------------------------------------------------------


def test_tombstoned_producer_is_hidden_for_that_topic_only(registry, directory):
    peer = directory.peer("a")
    registry.register(peer, "t")
    registry.register(peer, "u")

    assert registry.tombstone("t", "a:4151", 1 * S) == 1
    assert directory.producers("t", 2 * S) == []
    assert directory.producers("u", 2 * S) == ["a"]
    assert directory.nodes(2 * S) == {"a": {"t": True, "u": False}}


def test_nodes_with_the_same_topics_share_list_and_no_tombstone(registry, directory):
    for name, topics in {"a": "tu", "b": "tu", "c": "t", "d": "tu"}.items():
        peer = directory.peer(name)
        for topic in topics:
            registry.register(peer, topic)
    registry.tombstone("t", "b:4151", 1 * S)

    assert directory.nodes(2 * S) == {
        "a": {"t": False, "u": False},
        "b": {"t": True, "u": False},
        "c": {"t": False},
        "d": {"t": False, "u": False},
    }
    a, b, *_ = registry.nodes(2 * S)
    assert a.topics is b.topics


@pytest.mark.parametrize("how", ["unregistered", "deleted"])
def test_tombstones_of_topics_that_are_gone_take_no_memory(registry, directory, how):
    peer = directory.peer("a")

    def one_topic(number):
        registry.register(peer, f"t{number}")
        registry.tombstone(f"t{number}", "a:4151", 1 * S)
        if how == "unregistered":
            registry.unregister_topic(peer, f"t{number}")
        registry.delete_topic(f"t{number}")

    for number in range(100):
        one_topic(number)
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(100, 2100):
        one_topic(number)
    gc.collect()

    assert sys.getallocatedblocks() - before < 200


@pytest.mark.parametrize(
    ("how", "producers"), [("registers again", []), ("unregisters", ["a"]), ("reconnects", ["a"])]
)
def test_tombstone_is_lifted_by_new_registration(registry, directory, how, producers):
    peer = directory.peer("a")
    registry.register(peer, "t")
    registry.tombstone("t", "a:4151", 1 * S)
    if how == "unregisters":
        registry.unregister_topic(peer, "t")
    registry.register(directory.peer("a", 2 * S) if how == "reconnects" else peer, "t")

    assert directory.producers("t", 2 * S) == producers
    assert directory.nodes(2 * S) == {"a": {"t": not producers}}


@pytest.mark.parametrize("node", ["::1:4151", "[::1]:4151"])
def test_ipv6_node_is_tombstoned_with_and_without_brackets(registry, directory, node):
    registry.register(directory.peer("six", address="::1"), "t")

    assert registry.tombstone("t", node, 1) == 1


@pytest.mark.parametrize("node", ["a", "a:4150", "b:4151", ""])
def test_other_node_is_not_tombstoned(registry, directory, node):
    registry.register(directory.peer("a"), "t")

    assert registry.tombstone("t", node, 1) == 0


# -- silence ------------------------------------------------------------------------------


def test_silent_peer_is_left_out_until_it_is_heard_again(registry, directory):
    peer = directory.peer("a", now_ns=0)
    registry.register(peer, "t")

    assert directory.producers("t", INACTIVE_AFTER) == ["a"]
    assert directory.producers("t", INACTIVE_AFTER + 1) == []
    assert directory.nodes(INACTIVE_AFTER + 1) == {}
    assert registry.topics() == ["t"]
    peer.last_update_ns = INACTIVE_AFTER
    assert directory.producers("t", INACTIVE_AFTER + 1) == ["a"]


# -- two connections of one nsqd --------------------------------------------------------------


def test_newest_connection_of_nsqd_is_shown(registry, directory):
    old, new = directory.peer("a"), directory.peer("a")
    for peer in (new, old):
        registry.register(peer, "t")

    assert registry.producers("t", 0) == [new]
    assert [node.peer for node in registry.nodes(0)] == [new]


def test_older_connection_is_shown_while_newer_is_silent(registry, directory):
    old, new = directory.peer("a"), directory.peer("a")
    for peer in (old, new):
        registry.register(peer, "t")
    old.last_update_ns = INACTIVE_AFTER

    assert registry.producers("t", INACTIVE_AFTER + 1) == [old]


def test_same_host_with_another_port_is_another_nsqd(registry, directory):
    registry.register(directory.peer("a"), "t")
    registry.register(registry.add_peer("x:1", PeerInfo("a", 5150, 5151, "1.3.0"), 0), "t")

    assert directory.producers("t") == ["a", "a"]


# -- walking while it changes --------------------------------------------------------------------


def test_nodes_can_be_walked_while_peers_leave(registry, directory):
    peers = [directory.peer(name) for name in "abc"]
    for peer in peers:
        registry.register(peer, "t")
    walk = registry.nodes(0)
    next(walk)
    registry.remove_peer(peers[1], 0)
    registry.delete_topic("t")

    assert [(node.peer, node.topics) for node in walk] == [(peers[2], [])]


# -- where to publish -------------------------------------------------------------


def publishable(registry, topic="t", now_ns=0):
    return [peer.info.broadcast_address for peer in registry.publishable(topic, now_ns)]


def test_tombstoned_nsqd_is_no_place_for_that_topic(registry, directory):
    registry.register(directory.peer("a"), "t")
    registry.tombstone("t", "a:4151", S)

    assert publishable(registry, "t", 2 * S) == []
    assert publishable(registry, "other", 2 * S) == ["a"]
    assert publishable(registry, "t", S + TOMBSTONE_LIFETIME) == ["a"]


# -- answers that are kept ---------------------------------------------------------------


def test_answer_that_was_given_before_follows_every_change(registry, directory):
    a = directory.peer("a")
    registry.register(a, "t", "c")
    assert directory.producers("t") == ["a"]

    b = directory.peer("b")
    registry.register(b, "t")
    assert directory.producers("t") == ["a", "b"]
    registry.tombstone("t", "a:4151", S)
    assert directory.producers("t", S) == ["b"]
    assert directory.producers("t", S + TOMBSTONE_LIFETIME) == ["a", "b"]
    registry.unregister_topic(a, "t")
    assert directory.producers("t", S + TOMBSTONE_LIFETIME) == ["b"]
    registry.remove_peer(b, 0)
    assert directory.producers("t", S + TOMBSTONE_LIFETIME) == []
    registry.delete_topic("t")
    registry.register(a, "t")
    assert directory.producers("t", S + TOMBSTONE_LIFETIME) == ["a"]


def test_answer_that_was_given_before_follows_time(registry, directory):
    a, b = directory.peer("a"), directory.peer("b")
    for peer in (a, b):
        registry.register(peer, "t")
    assert directory.producers("t") == ["a", "b"]
    b.last_update_ns = INACTIVE_AFTER

    assert directory.producers("t", INACTIVE_AFTER) == ["a", "b"]
    assert directory.producers("t", INACTIVE_AFTER + 1) == ["b"]
    a.last_update_ns = INACTIVE_AFTER + 1
    assert directory.producers("t", INACTIVE_AFTER + 2) == ["a", "b"]


# -- replication --------------------------------------------------------------------------


def test_registry_has_all_addresses_of_identity_newest_first(registry, directory):
    old, new = directory.replica("z", "0" * 32), directory.replica("a", "0" * 32)
    again = directory.replica("z", "0" * 32)

    # The last connection of an address counts.
    assert registry.with_identities({"0" * 32}, 0) == [again, new]
    registry.remove_peer(again, 0)
    assert registry.with_identities({"0" * 32}, 0) == [new, old]


def test_registry_names_no_silent_nsqd_by_identity(registry, directory):
    directory.replica("a", "0" * 32)

    assert len(registry.with_identities({"0" * 32}, INACTIVE_AFTER)) == 1
    assert registry.with_identities({"0" * 32}, INACTIVE_AFTER + 1) == []
    assert registry.replica_candidates(INACTIVE_AFTER + 1) == []


def test_replica_candidates_have_identity_and_accept_replicas(registry, directory):
    directory.peer("original")
    directory.replica("refuses", "1" * 32, accepts=False)
    directory.replica("nameless", "")
    draining, free = directory.replica("a", "2" * 32), directory.replica("b", "3" * 32)
    draining.obstacle = "draining"

    assert registry.replica_candidates(0) == [free]
    for obstacle in ("", "replicas"):
        draining.obstacle = obstacle
        assert registry.replica_candidates(0) == [draining, free]
