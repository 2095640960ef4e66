"""Who delivers, who takes over and who may drop a copy: the rules, each in a small case."""

import pytest

from nsqd.replication.claims import STAGGER_NS
from nsqd.replication.dropping import waits_for
from nsqd.replication.frames import CopyId, CopyKind, Holder
from tests.campaign.replication.node import SECOND
from tests.unit.nsqd.replication.small_site import (
    CHANNEL,
    TOPIC,
    copies_of,
    finish,
    log_of,
    publish,
    site_of,
    take,
)

FAILOVER_S = 30


@pytest.fixture
def site():
    return site_of(2)


@pytest.fixture
def three():
    return site_of(3)


def replica_of(site, node):
    """The node that has the replica of this node's log."""
    identity = node.replication.state.replicas[0]
    return site.node_with(identity)


def fail_over(site):
    """Node 2 delivers the message of node 1, which is killed."""
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(FAILOVER_S + 8)


def test_replica_takes_over_after_failover_timeout(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    origin = site.nodes[1].identity
    site.kill(1)

    site.advance(FAILOVER_S - 3)
    assert take(site.nodes[2]) == []
    assert [copy.kind for copy in copies_of(site.nodes[2], origin)] == [CopyKind.OPEN]

    site.advance(8)
    assert finish(site.nodes[2]) == [b"one"]
    (copy,) = copies_of(site.nodes[2], origin)
    assert (copy.kind, copy.epoch) == (CopyKind.PROMOTED, 1)


@pytest.mark.parametrize("failover_s", [4, 10, FAILOVER_S])
def test_replica_of_suspended_owner_takes_over_after_failover_timeout(failover_s):
    site = site_of(2, failover_s=failover_s)
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.suspended.add(1)

    site.advance(failover_s - 1)
    assert take(site.nodes[2]) == []
    site.advance(2)

    assert take(site.nodes[2]) == [b"one"]


def test_replica_whose_owner_returns_in_time_is_resumed(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(10)
    site.start(1)
    site.advance(8)

    (copy,) = copies_of(site.nodes[2], site.nodes[1])
    assert (copy.kind, copy.number) == (CopyKind.STREAMED, 1)
    assert finish(site.nodes[1]) == [b"one"]


def test_replica_without_pending_messages_is_not_promoted(site):
    origin = site.nodes[1].identity
    site.kill(1)
    site.advance(3 * FAILOVER_S)

    assert all(copy.kind != CopyKind.PROMOTED for copy in copies_of(site.nodes[2], origin))


def test_second_replica_waits_longer():
    site = site_of(3, replicas=2)
    publish(site.nodes[1], b"one")
    site.advance(2)
    origin = site.nodes[1].identity
    first = replica_of(site, site.nodes[1])
    site.kill(1)
    site.advance(FAILOVER_S + STAGGER_NS / SECOND + 10)

    owners = [
        node
        for node in site.nodes.values()
        for copy in copies_of(node, origin)
        if copy.kind == CopyKind.PROMOTED
    ]
    assert owners == [first]


def test_returned_origin_yields_what_new_owner_has_pending(site):
    fail_over(site)
    site.start(1)
    site.advance(4)

    assert take(site.nodes[1]) == []
    assert site.nodes[1].replication.yielded() == 1
    publish(site.nodes[1], b"two")
    assert finish(site.nodes[1]) == [b"two"]
    assert finish(site.nodes[2]) == [b"one"]


def test_silent_owner_is_yielded_to_for_failover_timeout_only(site):
    fail_over(site)
    site.start(1)
    site.advance(4)
    site.kill(2)

    site.advance(FAILOVER_S - 3)
    assert take(site.nodes[1]) == []
    site.advance(6)
    assert finish(site.nodes[1]) == [b"one"]
    assert site.nodes[1].replication.state.own_copy.epoch == 2


def test_promoted_copy_is_dropped_when_all_is_finished_everywhere(site):
    identity = site.nodes[1].identity
    fail_over(site)
    assert finish(site.nodes[2]) == [b"one"]

    (copy,) = copies_of(site.nodes[2], identity)
    site.advance(5)
    assert "to store the channel state" in copy.waits_for
    site.start(1)
    site.advance(12)

    assert all(copy.kind == CopyKind.STREAMED for copy in copies_of(site.nodes[2], identity))
    assert take(site.nodes[1]) == []


def test_origin_delivers_old_messages_after_holders_have_answered(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.start(1)

    assert take(site.nodes[1]) == []
    assert site.nodes[1].replication.state.own_copy.asks(site.nodes[1].now)
    site.advance(1.5)
    assert finish(site.nodes[1]) == [b"one"]


def test_origin_that_starts_asks_holders_for_two_seconds_at_most(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.kill(2)
    site.start(1)
    publish(site.nodes[1], b"two")
    # New messages do not wait for the answers.
    assert finish(site.nodes[1]) == [b"two"]

    site.advance(1.5)
    assert take(site.nodes[1]) == []
    site.advance(1.5)
    assert finish(site.nodes[1]) == [b"one"]


@pytest.mark.parametrize(("failover_s", "pause_s"), [(2, 1.1), (10, 2.6), (FAILOVER_S, 5.1)])
def test_suspended_owner_asks_holders(failover_s, pause_s):
    site = site_of(2, failover_s=failover_s)
    publish(site.nodes[1], b"one")
    site.advance(2)
    node = site.nodes[1]
    node.advance(node.now + int(pause_s * SECOND))

    assert take(node) == []
    assert any("suspended" in line for line in node.log)


def test_owner_is_fully_replicated_with_caught_up_replicas_only(site):
    log, node = log_of(site.nodes[1], site.nodes[1]), site.nodes[1]
    assert log.counted(node.replication.state.own_copy, 0, node.now) is not None

    site.kill(2)
    site.advance(2)

    assert log.counted(node.replication.state.own_copy, 0, node.now) is None


def test_replica_that_was_replaced_is_dropped(three):
    node = three.nodes[1]
    publish(node, b"one")
    three.advance(2)
    before = replica_of(three, node)
    after = next(one for one in three.nodes.values() if one not in (node, before))
    node.replication.set_replicas((Holder(after.identity, after.address),))
    three.advance(12)

    assert [copy.kind for copy in copies_of(before, node)] == []
    assert finish(node) == [b"one"]


def test_copy_is_not_dropped_for_void_status(three, monkeypatch):
    node = three.nodes[1]
    publish(node, b"one")
    three.advance(2)
    before = replica_of(three, node)
    after = next(one for one in three.nodes.values() if one not in (node, before))
    monkeypatch.setattr(before.replication.jobs, "drop", lambda *_: None)
    node.replication.set_replicas((Holder(after.identity, after.address),))
    three.advance(12)
    log, (copy,) = log_of(before, node), copies_of(before, node)
    (status,) = log.known_at(node.identity)
    assert waits_for(log, copy, before.now) == ""

    counted, status.counted = status.counted, (CopyId(before.identity, copy.number),)
    assert waits_for(log, copy, before.now) != ""
    status.counted, status.received_ns = counted, copy.detached_ns
    assert waits_for(log, copy, before.now) != ""


def test_deleted_topic_is_not_pending_in_copy_any_more(site):
    fail_over(site)
    site.nodes[2].delete_topic("t")
    site.advance(3)
    site.start(1)
    site.advance(10)

    assert take(site.nodes[1]) == []


def test_copy_is_not_dropped_before_other_replica_has_its_state(site, monkeypatch):
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.suspended.add(1)
    site.advance(FAILOVER_S + 2)
    node, origin = site.nodes[2], site.nodes[1].identity
    monkeypatch.setattr(node.replication.jobs, "drop", lambda *_: None)
    assert finish(node) == [b"one"]
    site.advance(2)
    site.resume()
    site.advance(12)
    log = log_of(node, site.nodes[1])
    promoted = next(copy for copy in log.copies if copy.promoted)
    assert waits_for(log, promoted, node.now) == ""

    replica = node.replication.state.copies.new(origin, origin)
    log.copies.append(replica)
    assert waits_for(log, promoted, node.now) == "another copy here to be opened"
    replica.is_open = True
    assert waits_for(log, promoted, node.now) == ""


@pytest.mark.parametrize("first", [1, 2, 0])
def test_backlog_without_channel_is_delivered_by_one_node_after_failover(first):
    site = site_of(2, channel="")
    publish(site.nodes[1], b"one", b"two")
    site.advance(2)
    site.kill(1)
    site.advance(FAILOVER_S + 8)
    site.start(1)
    site.advance(6)

    if first:
        site.nodes[first].channel(TOPIC, CHANNEL)
        site.advance(6)
    readers = [(node, node.read(TOPIC, CHANNEL, 100)) for node in site.nodes.values()]
    for _ in range(8):
        site.advance(1)
    got = sorted(body for _, reader in readers for _, body in reader.take())

    assert got == [b"one", b"two"]


def test_backlog_of_returned_origin_is_not_suspended_for_ephemeral_channel():
    site = site_of(2, channel="")
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(FAILOVER_S + 8)
    site.start(1)
    site.advance(6)
    node = site.nodes[1]
    topic = node.broker.topics[TOPIC]
    assert topic.suspended

    # Copies have no ephemeral channels, so no other owner delivers to this one.
    node.channel(TOPIC, "c#ephemeral")
    assert topic.channels["c#ephemeral"].backlog.suspended == []
    site.advance(3)
    assert topic.channels["c#ephemeral"].backlog.suspended == []


def test_backlog_without_channel_is_delivered_by_origin_when_its_owner_is_lost():
    site = site_of(2, channel="")
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(FAILOVER_S + 8)
    site.start(1)
    site.advance(6)
    reader = site.nodes[1].read(TOPIC, CHANNEL, 100)
    site.kill(2)
    site.advance(5)
    assert reader.take() == []

    site.advance(FAILOVER_S + 5)

    assert [body for _, body in reader.take()] == [b"one"]
