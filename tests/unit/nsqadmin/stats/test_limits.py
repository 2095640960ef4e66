import pytest

from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.limits import limited, parse_limit
from nsqadmin.stats.problems import Level
from nsqadmin.stats.sums import add_up
from tests.support.records import channel_json, topic_stats


def cluster(**depths):
    topics = {}
    for name, depth in depths.items():
        stats = topic_stats(name, channel_json("a", depth=depth))
        topics[name] = add_up(name, [(stats, (), 0, "n:1")])
    return ClusterSum(topics)


def found(total, *limits):
    return [
        (one.kind, one.topic, one.level)
        for one in limited(total.topics.values(), total.problems, [parse_limit(text) for text in limits])
    ]


def test_backlog_over_limit_of_topic_is_problem():
    total = cluster(pay=11, orders=11, small=10)
    over = ("over limit", "pay", Level.PROBLEM)

    assert over in found(total, "pay*:depth:10")
    assert [one for one in found(total, "pay*:depth:10", "*:depth:10") if one[0] == "over limit"] == [
        over,
        ("over limit", "orders", Level.PROBLEM),
    ]


def test_topics_that_are_off_are_worth_look_at_most():
    assert found(cluster(test=5), "test*:off") == [("no consumers", "test", Level.WARNING)]


@pytest.mark.parametrize("text", ["", "a", "a:", "a:depth", "a:depth:x", ":off", "a:on"])
def test_invalid_limit_is_refused_with_sentence(text):
    with pytest.raises(ValueError, match="is neither PATTERN:depth:N nor PATTERN:off"):
        parse_limit(text)
