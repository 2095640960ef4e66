from nsqadmin.collecting.node_snapshot import NodeSnapshot
from nsqadmin.stats.trend import NodePace
from nsqcore.cluster.models import NodeStats
from tests.support.records import channel_json, topic_stats

SECOND = 10**9


def oldest_of(pace, at_s, **statistics):
    topics = (topic_stats("orders", channel_json("audit", **statistics)),)
    look = NodeSnapshot.of(NodeStats(listed_topics=topics), pace, at_s * SECOND, float(at_s))
    return look.load.oldest_ns


def test_oldest_message_is_oldest_waiting_one():
    pace = NodePace()
    deferred = {"deferred_count": 1, "oldest_message_time": 100 * SECOND}

    assert oldest_of(pace, 110, depth=2, oldest_message_time=100 * SECOND) == 100 * SECOND
    assert oldest_of(pace, 120, **deferred) == 0
    # A message waits since some moment after none did.
    assert oldest_of(pace, 125, depth=1, **deferred) == 120 * SECOND
    assert oldest_of(pace, 130, depth=1, **deferred) == 120 * SECOND
    assert oldest_of(NodePace(), 130, depth=1, **deferred) == -1


def test_channel_with_only_in_flight_messages_has_no_oldest():
    assert oldest_of(NodePace(), 110, in_flight_count=3, oldest_message_time=100 * SECOND) == 0


def is_replicated(*topics):
    return NodeSnapshot.of(NodeStats(listed_topics=topics), NodePace(), 0, 0.0).is_replicated


def test_node_is_replicated_if_its_topics_have_replica_in_sync():
    replicated = topic_stats("orders", channel_json("audit", depth=2), replicas_in_sync=1, replicas_wanted=1)
    not_replicated = topic_stats("payments", channel_json("audit", in_flight_count=1), replicas_wanted=1)
    empty = topic_stats("shipments", channel_json("audit"), replicas_wanted=1)

    assert is_replicated(replicated, empty)
    assert not is_replicated(replicated, not_replicated)
    assert not is_replicated(topic_stats("no-channel", depth=1))


def test_consumers_of_channel_are_remembered_until_its_topic_is_gone():
    pace = NodePace()
    billing = [{"client_id": f"billing-{number}"} for number in range(5)]

    def other():
        return topic_stats("clicks", channel_json("a", clients=[{"hostname": "web"}]))

    def look(at_s, *topics):
        found = NodeSnapshot.of(NodeStats(listed_topics=topics), pace, at_s * SECOND, float(at_s))
        assert not any(channel.clients for one in found.topics.values() for channel in one.channels)
        return {key: (last.names, last.at_s) for key, last in pace.consumers.items()}

    full = topic_stats("orders", channel_json("audit", clients=billing))
    bare = topic_stats("orders", channel_json("audit"))
    seen = ("orders", "audit"), ("billing-0, billing-1, billing-2 and 2 more", 10.0)

    assert look(10, full) == dict([seen])
    assert look(20, bare) == dict([seen])
    assert look(30, bare, other()) == dict([seen, (("clicks", "a"), ("web", 30.0))])
    assert look(40, other()) == {("clicks", "a"): ("web", 40.0)}
