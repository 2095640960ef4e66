"""What a node decides: its connections, transfers, deletions, and what is shown to operators."""

import errno
from types import SimpleNamespace

import pytest

from nsqd.replication.frames import CopyKind, DeleteTopic
from nsqd.replication.records import NodeRecordFile
from nsqd.storage.topic_log import store_of
from tests.campaign.replication.node import DATA, SECOND
from tests.unit.nsqd.replication.small_site import copies_of, finish, log_of, publish, site_of, take


@pytest.fixture
def site():
    return site_of(2)


def decommission(site, number, *, fewer_copies=False, seconds=30):
    node = site.nodes[number]
    node.replication.decommission("", fewer_copies=fewer_copies)
    for _ in range(seconds):
        site.advance(1)
        if node.replication.decommission_state()["done"]:
            break
    return node.replication.decommission_state()


def test_node_connects_to_its_replicas_and_to_holders_without_stream(site):
    one, other = site.nodes[1], site.nodes[2]

    assert one.replication.wanted_peers() == {other.identity: other.address}


def test_connections_between_two_nodes_have_one_exchange(site):
    one, other = site.nodes[1], site.nodes[2]
    exchanges = {log_of(node, one).exchanges[peer.identity] for node, peer in ((one, other), (other, one))}
    site.advance(20)

    assert len(one.replication.state.links) == 2
    assert exchanges == {
        log_of(one, one).exchanges[other.identity],
        log_of(other, one).exchanges[one.identity],
    }
    connectors = {exchange.link.connector for exchange in exchanges}
    assert connectors == {True, False}


def test_idle_log_sends_no_status(site):
    site.advance(10)
    exchange = log_of(site.nodes[1], site.nodes[1]).exchanges[site.nodes[2].identity]
    serial = exchange._serial
    site.advance(60)

    assert exchange._serial == serial


def test_decommission_moves_pending_messages():
    site = site_of(3)
    node = site.nodes[1]
    publish(node, b"one")
    site.advance(2)

    assert decommission(site, 1)["done"]
    assert sorted(body for number in (2, 3) for body in finish(site.nodes[number])) == [b"one"]


def test_decommission_of_one_of_two_nodes_needs_fewer_copies(site):
    publish(site.nodes[1], b"one")
    site.advance(2)

    state = decommission(site, 1)
    assert not state["done"]
    assert state["waits_for"] == "other nodes to drop or move copies"

    assert decommission(site, 1, fewer_copies=True)["done"]
    assert finish(site.nodes[2]) == [b"one"]


def test_transferred_messages_are_not_delivered_after_restart(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    decommission(site, 1, fewer_copies=True)
    site.kill(1)
    site.start(1)
    site.advance(5)

    assert "t" not in site.nodes[1].broker.topics
    assert finish(site.nodes[2]) == [b"one"]


def test_cancelled_decommission_delivers_again(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    decommission(site, 1, seconds=3)
    site.nodes[1].replication.cancel_decommission()
    site.advance(3)

    assert take(site.nodes[1]) == [b"one"] or take(site.nodes[2]) == [b"one"]


def test_draining_node_still_accepts_streams(site):
    site.nodes[2].broker.draining = True
    site.advance(2)
    (link,) = [one for one in site.nodes[1].replication.state.links if one.connector]

    assert link.peer_drains
    assert link.peer_accepts


def test_draining_node_says_so_on_each_connection(site):
    site.nodes[2].broker.draining = True
    site.advance(2)
    for line in list(site.lines):
        site.cut(line)
    site.advance(1)
    (link,) = [one for one in site.nodes[1].replication.state.links if one.connector]

    assert link.peer_drains


def test_holder_is_forgotten_after_week(site):
    site.kill(2)
    site.advance(5)
    own = site.nodes[1].replication.state.own_copy
    assert own.holders

    site.nodes[1].replication.state.replicas = []
    site.days = 8
    site.advance(3)

    assert own.holders == {}


def test_holder_whose_data_path_was_replaced_is_forgotten(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    origin = site.nodes[1].identity
    site.kill(1)
    site.advance(38)
    assert finish(site.nodes[2]) == [b"one"]
    site.advance(5)
    assert [copy.kind for copy in copies_of(site.nodes[2], origin)] == [CopyKind.PROMOTED]

    site.lose_disk(1)
    site.start(1)
    site.advance(20)

    assert copies_of(site.nodes[2], origin) == []


def test_replica_that_reads_its_copy_refuses_for_moment_only(site):
    site.kill(1)
    site.start(1)
    (copy,) = copies_of(site.nodes[2], site.nodes[1])
    copy.is_busy = True
    site.advance(2)
    assert set(site.nodes[2].replication.state.refusals) == {"busy"}

    copy.is_busy = False
    site.advance(4)

    assert copy.kind == CopyKind.STREAMED


def test_node_record_that_cannot_be_saved_is_warned_of_once(site):
    node = site.nodes[1]
    fault = node.disk.fail(errno.ENOSPC, "*", f"{DATA}/replication.json*", times=None)
    node.delete_topic("t")
    site.advance(5)
    assert len([line for line in node.log if "failed to save replication.json" in line]) == 1

    node.disk.faults.remove(fault)
    site.advance(5)

    assert NodeRecordFile.load(node.disk, DATA, node.identity).record == node.replication.state.record


def test_failed_job_is_tried_again_and_shown(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    origin, node = site.nodes[1].identity, site.nodes[2]
    fault = node.disk.fail(errno.ENOSPC, "*", f"{DATA}/owned*", times=None)
    site.kill(1)
    site.advance(45)
    (copy,) = copies_of(node, origin)
    (shown,) = [one for one in node.replication.to_json(node.now)["copies"] if one["origin"] == origin.hex()]
    assert copy.kind == CopyKind.OPEN
    assert shown["waits_for"] == "another attempt, because of: no space left on device"

    node.disk.faults.remove(fault)
    site.advance(8)

    assert finish(node) == [b"one"]
    assert copy.problems == {}


def test_topic_that_could_not_be_read_once_is_read_soon(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    node = site.nodes[2]
    fault = node.disk.fail(errno.EIO, "open_read", f"{DATA}/replicas/*.log", times=None)
    origin = site.nodes[1].identity
    site.kill(1)
    site.advance(6)
    (copy,) = copies_of(node, origin)
    assert (copy.is_open, copy.unreadable) == (True, ["t"])

    node.disk.faults.remove(fault)
    site.advance(6)

    assert copy.unreadable == []


def test_deletion_is_acknowledged_when_folder_of_copy_is_renamed(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.cut_off = {2}
    site.advance(3)
    site.nodes[1].delete_topic("t")
    site.advance(1)
    assert [one.topic for one in site.nodes[1].replication.state.record.deletions] == ["t"]

    site.cut_off = set()
    site.advance(30)

    assert site.nodes[1].replication.state.record.deletions == ()
    assert all("t" not in copy.topics for copy in copies_of(site.nodes[2], site.nodes[1]))


def test_deleted_topic_that_job_opens_meanwhile_is_closed(site):
    publish(site.nodes[1], b"one")
    site.advance(2)
    origin, node = site.nodes[1].identity, site.nodes[2]
    site.kill(1)
    site.advance(1)
    (copy,) = copies_of(node, origin)
    link = SimpleNamespace(unacknowledged=[])
    node.replication.deleted.take(link, DeleteTopic(origin, "t", 1 << 62), 7)
    node.replication.jobs.open(log_of(node, origin), copy)
    node.work()
    assert list(copy.topics) == ["t"]

    site.advance(3)

    assert list(copy.topics) == []
    assert link.unacknowledged == []


def test_topic_of_promoted_copy_is_deleted_for_good():
    site = site_of(2)
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(40)
    site.nodes[2].delete_topic("t")
    site.advance(2)
    site.kill(2)
    site.start(2)
    site.nodes[2].channel("t", "c")
    site.advance(5)

    assert take(site.nodes[2]) == []


def test_wanted_checkpoint_of_deleted_topic_of_promoted_copy_is_written(site):
    origin = site.nodes[1].identity
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(40)
    node = site.nodes[2]
    node.delete_topic("t")
    site.advance(2)
    (copy,) = copies_of(node, origin)
    topic = copy.topics["t"]

    log_of(node, origin).primaries[copy].want_checkpoint(store_of(topic))
    site.advance(2)

    assert not topic.has_changed


def test_shown_replica_is_caught_up_or_unreachable(site):
    node = site.nodes[1]
    (replica,) = node.replication.to_json(node.now)["replicas"]
    assert (replica["state"], replica["caught_up_topics"]) == ("caught_up", 1)

    site.kill(2)
    site.advance(1)
    (replica,) = node.replication.to_json(node.now)["replicas"]
    assert replica["state"] == "unreachable"


def test_suspension_is_pause_of_more_than_five_seconds(site):
    node = site.nodes[1]
    node.advance(node.now + 4 * SECOND)
    assert not any("suspended" in line for line in node.log)

    node.advance(node.now + 6 * SECOND)
    assert any("suspended" in line for line in node.log)
