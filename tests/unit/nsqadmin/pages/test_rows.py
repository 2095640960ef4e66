from nsqadmin.collecting.look import Look
from nsqadmin.collecting.views import NodeView, TopicView
from nsqadmin.figures import aggregate
from nsqadmin.figures.sums import add_up
from nsqadmin.figures.trend import NodePace
from nsqadmin.pages.rows import NodeRow, TopicRow
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeStats
from tests.support.records import channel_json, producer, topic_stats

SECOND = 1_000_000_000


def look(*topics, pace=None, at_s=0):
    stats = NodeStats(version="1.3.0", health="OK", listed_topics=topics)
    return Look.of(stats, pace or NodePace(), at_s * SECOND, float(at_s))


def row(*channels, **fields):
    stats = topic_stats("orders", *channels, **fields)
    record = aggregate.topic_on(producer(), stats, 0)
    total = aggregate.total_topic("orders", [record])
    shares = {record.node: look(stats).share("orders", record.node)}
    return TopicRow.of(TopicView(total, shares, sum=add_up("orders", shares.values())))


def test_a_topics_depth_includes_its_channels():
    one = row(channel_json("a", depth=3), channel_json("b", depth=4), depth=10)

    assert one.depth == 17


def test_a_single_nodes_share_is_not_judged():
    one = row(channel_json("a", depth=3))

    assert [concern.mark for concern in one.all_concerns] == ["no consumers"]
    assert one.nodes[0].all_concerns == []


def test_delivery_is_shown_in_shares_when_it_is_counted():
    fields = {"zone_local_msg_count": 1, "region_local_msg_count": 1, "global_msg_count": 2}

    assert row(channel_json("a", **fields)).channels[0].delivery == (25, 25, 50)
    assert row(channel_json("a")).channels[0].delivery is None


def test_a_channel_moves_as_fast_as_on_all_its_nodes_together():
    records, shares = [], {}
    for port in (4151, 4251):
        pace = NodePace()
        look(topic_stats("orders", channel_json("a", message_count=0), message_count=0), pace=pace)
        now = topic_stats("orders", channel_json("a", message_count=20), message_count=20)
        record = aggregate.topic_on(producer(port), now, 0)
        records.append(record)
        shares[record.node] = look(now, pace=pace, at_s=2).share("orders", record.node)

    one = TopicRow.of(TopicView(aggregate.total_topic("orders", records), shares))

    assert (one.trend.messages, one.channels[0].trend.messages) == (20, 20)
    assert [node.trend.messages for node in one.nodes] == [10, 10]


def test_a_silent_node_is_shown_with_what_it_held():
    error = NodeError("GET", "http://a:1/stats", "a:1", "timed out after 5s")
    last = look(topic_stats("orders", channel_json("a", depth=300)))

    one = NodeRow(NodeView(producer(), out_of_date=False, look=last, error=error))

    assert (one.answers, one.load.depth) == (False, 300)
    assert "it held 300 messages" in one.concerns[0].text


def test_a_draining_node_says_how_far_it_is():
    one = NodeRow(NodeView(producer(), out_of_date=False, look=look(), remaining=300, draining_from=1200))

    assert one.drained == (900, 1200)
    assert [concern.mark for concern in one.concerns] == ["draining"]
