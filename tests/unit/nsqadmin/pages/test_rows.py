from nsqadmin.collecting.members import Member
from nsqadmin.collecting.node_snapshot import NodeSnapshot
from nsqadmin.pages.rows import NodeRow
from nsqadmin.stats.trend import NodePace
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeStats
from tests.support.records import channel_json, producer, topic_stats

SECOND = 1_000_000_000


def look(*topics, pace=None, at_s=0):
    stats = NodeStats(version="1.3.0", health="OK", listed_topics=topics)
    return NodeSnapshot.of(stats, pace or NodePace(), at_s * SECOND, float(at_s))


def test_silent_node_is_shown_with_its_last_backlog():
    error = NodeError("GET", "http://a:1/stats", "a:1", "timed out after 5s")
    last = look(topic_stats("orders", channel_json("a", depth=300)))

    one = NodeRow(Member("a:1", producer(), snapshot=last, error=error))

    assert (one.answers, one.load.depth) == (False, 300)
    assert "it held 300 messages" in one.problems[0].text


def test_draining_node_says_how_far_it_is():
    one = NodeRow(Member("a:1", producer(), snapshot=look(), remaining=300, draining_from=1200))

    assert one.drained == (900, 1200)
    assert [problem.kind for problem in one.problems] == ["draining"]
