"""Which nodes are replicas, and when one is replaced."""

from collections import Counter

import pytest

from nsqd.replication.choosing import (
    LASTING_REFUSALS,
    Candidate,
    ReplicaHealth,
    choose,
    choose_replicas,
)
from nsqd.replication.frames import REFUSALS, Holder, Refuse

S = 1_000_000_000
PATIENCE_NS = 300 * S


def identity(number):
    return number.to_bytes(16, "big")


ME = Candidate(identity(0), "me:4150", "z1", "h1")


def nodes(count, zones=1):
    return [Candidate(identity(n), f"n{n}:4150", f"z{n % zones}", f"host{n}") for n in range(1, count + 1)]


def numbers(found):
    return [int.from_bytes(one.identity, "big") for one in found]


# --- choose ---


def test_choose_takes_no_node_as_its_own_replica():
    assert choose(ME, [ME, Candidate(ME.identity, "other-name:4150")], 2) == []


def test_choose_prefers_another_zone_then_another_host():
    same_host = Candidate(identity(1), "a:4150", "z1", "h1")
    same_zone = Candidate(identity(2), "b:4150", "z1", "h2")
    elsewhere = Candidate(identity(3), "c:4150", "z2", "h3")

    for number in range(100, 120):
        me = Candidate(identity(number), ME.address, ME.zone, ME.host)
        assert choose(me, [same_host, same_zone, elsewhere], 3) == [elsewhere, same_zone, same_host]


def test_choose_spreads_replicas_over_zones():
    candidates = [
        Candidate(identity(n), f"{n}:4150", zone, f"h{n}") for n, zone in enumerate(["z2"] * 5 + ["z3"], 1)
    ]

    for number in range(100, 120):
        me = Candidate(identity(number), ME.address, ME.zone, ME.host)
        assert {one.zone for one in choose(me, candidates, 2)} == {"z2", "z3"}


def test_choose_counts_unknown_zone_as_elsewhere():
    same_zone, unknown = Candidate(identity(1), "a:4150", "z1", "h2"), Candidate(identity(2), "b:4150")

    assert choose(ME, [same_zone, unknown], 1) == [unknown]


def test_choose_does_not_depend_on_order_of_candidates():
    found = nodes(20, zones=3)

    assert choose(ME, found, 3) == choose(ME, found[::-1], 3)


def test_choose_spreads_nodes_over_replicas():
    found = nodes(10)
    load = Counter(choose(Candidate(identity(n), f"p{n}:1"), found, 1)[0] for n in range(100, 2100))

    assert set(load) == set(found)
    assert max(load.values()) < 300


def test_choose_changes_few_replicas_when_node_joins():
    before, after = nodes(10), nodes(11)
    primaries = [Candidate(identity(n), f"p{n}:1") for n in range(100, 1100)]
    changed = [one for one in primaries if choose(one, before, 1) != choose(one, after, 1)]

    assert 40 < len(changed) < 160
    assert {choose(one, after, 1)[0].address for one in changed} == {"n11:4150"}


def test_choose_takes_each_node_once():
    twice = [Candidate(identity(1), "a:1"), Candidate(identity(1), "a:2")]

    assert len(choose(ME, twice, 3)) == 1


# --- the set of replicas ---


class Node:
    """A node that chooses its replicas once a second."""

    def __init__(self, count=1):
        self.count = count
        self.health = ReplicaHealth(PATIENCE_NS)
        self.replicas = ()
        self.now_ns = 1000 * S

    def update(self, candidates=(), *, seconds=0, accepting=()):
        """Choose for so many seconds, while the replicas *accepting* accept the stream."""
        for second in range(seconds + 1):
            self.now_ns += S * (second > 0)
            for one in self.replicas:
                if one in accepting:
                    self.health.accepts(one.identity, self.now_ns)
            self.replicas = choose_replicas(
                ME, self.replicas, candidates, self.count, self.health, self.now_ns
            )
        return numbers(self.replicas)


@pytest.fixture
def node():
    return Node()


def test_replica_stays_when_better_node_joins(node):
    before = node.update(nodes(3))

    assert node.update(nodes(50), seconds=1000, accepting=node.replicas) == before


def test_replica_is_replaced_after_time_without_its_stream(node):
    before = node.update(nodes(3))

    assert node.update(nodes(3), seconds=299) == before
    after = node.update(nodes(3), seconds=1)
    assert len(after) == 1
    assert after != before
    # It is not chosen again when its successor is replaced a moment later.
    node.health.refuses(node.replicas[0].identity, Refuse.DISK, node.now_ns)
    assert node.update(nodes(3)) not in (before, after)


def test_replica_that_is_back_in_time_stays(node):
    before = node.update(nodes(3))
    node.update(nodes(3), seconds=299)
    node.health.accepts(node.replicas[0].identity, node.now_ns)

    assert node.update(nodes(3), seconds=299) == before


def test_replica_that_nobody_can_replace_stays(node):
    before = node.update(nodes(1))

    assert node.update(nodes(1), seconds=1000) == before
    # nsqlookupd knows no node at all.
    assert node.update([], seconds=1000) == before
    assert node.update([ME], seconds=1) == before


def test_replica_that_refuses_stream_each_time_is_replaced(node):
    """B1: a connection that is welcomed and then refused must not count as health."""
    before = node.update(nodes(3))
    for _ in range(PATIENCE_NS // S):
        assert numbers(node.replicas) == before
        node.health.refuses(node.replicas[0].identity, Refuse.EARLIER_INCARNATION, node.now_ns)
        node.update(nodes(3), seconds=1)

    assert numbers(node.replicas) != before


@pytest.mark.parametrize("code", sorted(LASTING_REFUSALS))
def test_replica_with_lasting_refusal_is_replaced_without_wait(node, code):
    before = node.update(nodes(2))

    assert node.health.refuses(node.replicas[0].identity, code, node.now_ns)
    assert not node.health.refuses(node.replicas[0].identity, code, node.now_ns)
    after = node.update(nodes(2))
    assert after != before


@pytest.mark.parametrize("code", sorted(set(REFUSALS) - LASTING_REFUSALS))
def test_replica_with_passing_refusal_stays(node, code):
    before = node.update(nodes(2))

    assert not node.health.refuses(node.replicas[0].identity, code, node.now_ns)
    assert node.update(nodes(2), seconds=1) == before


def test_replica_that_refused_may_be_chosen_again_later(node):
    before = node.update(nodes(2))
    node.health.refuses(node.replicas[0].identity, Refuse.DISK, node.now_ns)
    after = node.update(nodes(2))

    assert node.update(nodes(2), seconds=290, accepting=node.replicas) == after
    node.health.refuses(node.replicas[0].identity, Refuse.DISK, node.now_ns)
    assert node.update(nodes(2)) == after
    assert node.update(nodes(2), seconds=10) == before


def test_replica_that_refused_and_accepts_again_stays(node):
    before = node.update(nodes(1))
    node.health.refuses(node.replicas[0].identity, Refuse.DISK, node.now_ns)
    node.update(nodes(1), seconds=10)
    node.health.accepts(node.replicas[0].identity, node.now_ns)

    assert node.update(nodes(9)) == before


def test_replica_that_drains_is_replaced_though_it_accepts_stream(node):
    before = node.update(nodes(1))
    node.health.drains(node.replicas[0].identity, draining=True)

    assert node.update(nodes(1), seconds=1000, accepting=node.replicas) == before
    after = node.update(nodes(2), accepting=node.replicas)
    assert after != before


def test_replica_that_stops_draining_stays(node):
    before = node.update(nodes(1))
    node.health.drains(node.replicas[0].identity, draining=True)
    node.health.drains(node.replicas[0].identity, draining=False)

    assert node.update(nodes(9), seconds=1000, accepting=node.replicas) == before


def test_replica_is_found_by_its_identity_under_another_address(node):
    node.update(nodes(1))
    moved = Candidate(identity(1), "n1:9999")
    node.update([moved])

    assert node.replicas == (Holder(identity(1), "n1:9999"),)


def test_replicas_keep_their_places():
    node = Node(count=3)
    first, second, third = node.update(nodes(3))
    node.health.refuses(node.replicas[1].identity, Refuse.DISK, node.now_ns)

    assert node.update(nodes(4)) == [first, third, 4]
    assert second not in numbers(node.replicas)


def test_replicas_above_wanted_count_are_let_go():
    node = Node(count=3)
    first, second, third = node.update(nodes(5))
    node.health.refuses(node.replicas[0].identity, Refuse.DISK, node.now_ns)
    node.count = 2

    assert node.update(nodes(5)) == [second, third]
    node.count = 1
    assert node.update(nodes(5)) == [second]
    # A healthy one may be chosen again immediately.
    node.count = 2
    assert node.update([one for one in nodes(5) if one.identity == identity(third)]) == [second, third]
    assert first not in numbers(node.replicas)


def test_replicas_fill_up_when_nodes_join():
    node = Node(count=2)

    assert node.update([]) == []
    assert node.update(nodes(1)) == [1]
    assert node.update(nodes(2)) == [1, 2]
