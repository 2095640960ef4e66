import pytest

from nsqadmin.collecting.members import Member, MemberList, is_reachable, listed, listed_now, nameless
from nsqadmin.collecting.node_snapshot import NodeSnapshot
from nsqadmin.stats.trend import NodePace
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeInfo, NodeStats
from tests.support.records import channel_json, producer, topic_stats


def at(address):
    return NodeInfo(address, "host", 4150, 4151, "1.3.0")


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "[fe80::1]", "fe80::1%eth0"])
def test_link_local_address_is_not_asked(address):
    register = MemberList("l:4161", (at(address), at("10.0.0.1")))

    assert not is_reachable(at(address))
    assert [one.broadcast_address for one in listed([register])] == ["10.0.0.1"]
    assert [one.broadcast_address for one in listed_now([register])] == ["10.0.0.1"]


@pytest.mark.parametrize("address", ["10.0.0.1", "nsqd-0.nsqd", "2001:db8::1", "127.0.0.1"])
def test_other_addresses_are_asked(address):
    assert is_reachable(at(address))


def test_drain_state_is_that_of_latest_request():
    one = Member("10.0.0.1:4151", nameless("10.0.0.1:4151"))
    one.drains(4, asked_ns=1)
    one.drains(None, asked_ns=3)

    one.drains(4, asked_ns=2)

    assert one.remaining is None


def look(*topics):
    stats = NodeStats(version="1.3.0", health="OK", listed_topics=topics)
    return NodeSnapshot.of(stats, NodePace(), 0, 0.0)


def test_silent_node_is_shown_with_its_last_backlog():
    error = NodeError("GET", "http://a:1/stats", "a:1", "timed out after 5s")
    last = look(topic_stats("orders", channel_json("a", depth=300)))

    one = Member("a:1", producer(), snapshot=last, error=error)

    assert (one.answers, one.load.depth) == (False, 300)
    assert "it held 300 messages" in one.problems[0].text


def test_draining_node_says_how_far_it_is():
    one = Member("a:1", producer(), snapshot=look(), remaining=300, draining_from=1200)

    assert one.drained == (900, 1200)
    assert [problem.kind for problem in one.problems] == ["draining"]
