from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.problems import Level, worst_first
from nsqadmin.stats.sums import add_up
from nsqadmin.stats.trend import Counted
from tests.support.records import channel_json, topic_stats

SECOND = 1_000_000_000


def topic(name, *channels, **fields):
    return add_up(name, [(topic_stats(name, *channels, **fields), (), 0, "a:1")])


def names(rows):
    return [one.name for one in rows]


def test_topic_is_added_up_over_nodes_and_channels():
    first = topic_stats("orders", channel_json("a", depth=3, backend_depth=1, client_count=2), depth=10)
    second = topic_stats("orders", channel_json("b", depth=4, in_flight_count=7), message_count=9)

    total = add_up("orders", [(first, (), 0, "a:1"), (second, (), 0, "b:1")])

    assert (total.nodes, total.own_depth, total.depth, total.memory_depth) == (2, 10, 17, 16)
    assert (total.backend_depth, total.in_flight, total.consumers, total.message_count) == (1, 7, 2, 9)
    assert [channel.channel_name for channel in total.channels] == ["a", "b"]


def test_rates_are_added_and_unknown_if_one_is():
    before = topic_stats("orders", channel_json("a", message_count=100, depth=1), message_count=100)
    now = topic_stats("orders", channel_json("a", message_count=120, depth=1), message_count=120)
    new = topic_stats("orders", channel_json("a", message_count=10**6), message_count=10**6)
    seen = [(now, [Counted([before], 0)], 2 * SECOND, "a:1"), (now, [Counted([before], 0)], SECOND, "b:1")]

    total = add_up("orders", seen)
    with_new = add_up("orders", [*seen, (new, (), 0, "c:1")])

    assert (total.trend.messages, total.trend.span_s) == (30, 1)
    assert (total.channels[0].trend.finished, total.channels[0].trend.span_s) == (30, 1)
    assert (with_new.trend, with_new.channels[0].trend) == (None, None)
    assert ClusterSum({"orders": with_new}).totals.rate is None


def test_node_without_consumers_is_found_among_forty():
    fine = topic_stats("orders", channel_json("a", client_count=2, depth=3))
    bare = topic_stats("orders", channel_json("a", depth=21506))

    total = add_up("orders", [(fine, (), 0, f"n{n}:1") for n in range(39)] + [(bare, (), 0, "n39:1")])

    assert [(one.kind, one.messages) for one in total.problems] == [("no consumers", 21506)]
    assert "n39:1" in total.problems[0].text


def test_topic_is_as_bad_as_its_worst_channel_and_shows_each_mark_once():
    one = topic(
        "orders", channel_json("a", depth=3), channel_json("b", depth=4), channel_json("c", paused=True)
    )

    assert one.level == Level.PROBLEM
    assert [mark.kind for mark in one.badges] == ["no consumers", "paused"]


def test_topic_paused_on_one_node_is_paused():
    shares = [(topic_stats("orders", paused=on), (), 0, "a:1") for on in (False, True, False)]

    assert add_up("orders", shares).paused


def test_topic_says_when_its_fullest_channel_will_be_empty():
    before = topic_stats("orders", *(channel_json(name, depth=100) for name in "ab"))
    now = topic_stats("orders", channel_json("a", depth=50), channel_json("b", depth=80))
    still = topic_stats("orders", channel_json("a", depth=50), channel_json("b", depth=100))

    sums = [add_up("orders", [(one, [Counted([before], 0)], 10 * SECOND, "a:1")]) for one in (now, still)]

    assert [one.empties_s for one in sums] == [40, None]
    assert sums[0].finished == 7


def test_worst_problems_of_cluster_come_first():
    cluster = ClusterSum(
        {
            "small": topic("small", channel_json("a", depth=3)),
            "large": topic("large", channel_json("a", depth=300)),
            "paused": topic("paused", paused=True),
        }
    )

    found = worst_first(cluster.problems)
    assert [problem.topic for problem in found] == ["large", "small", "paused"]


def test_changed_topic_gives_new_cluster_sum():
    before = ClusterSum({"a": topic("a", depth=1), "b": topic("b", depth=2)})

    after = before.changed("a", topic("a", depth=5), ()).changed("b", None, ["b"])

    assert (before.totals.depth, after.totals.depth, names(after.rows)) == (3, 5, ["a", "b"])
    assert after.rows[1].is_idle


def test_topics_show_assigned_problems():
    cluster = ClusterSum({name: topic(name, channel_json("a", depth=3)) for name in ("x", "y")})
    shown = next(problem for problem in cluster.problems if problem.topic == "x")

    cluster.show([shown])

    assert cluster.topics["x"].channels[0].problems == [shown]
    assert (cluster.topics["y"].level, cluster.topics["y"].channels[0].level) == (None, None)


def test_oldest_message_of_several_nodes_is_unknown_if_one_is_unknown():
    first = topic_stats(
        "orders", channel_json("a", oldest_message_time=50), channel_json("b", oldest_message_time=0)
    )
    second = topic_stats(
        "orders", channel_json("a", oldest_message_time=20), channel_json("b", oldest_message_time=0)
    )
    other = topic_stats("orders", channel_json("a", depth=3))

    known = add_up("orders", [(first, (), 0, "a:1"), (second, (), 0, "b:1")])
    unknown = add_up("orders", [(first, (), 0, "a:1"), (other, (), 0, "c:1")])

    assert [channel.oldest_ns for channel in known.channels] == [20, 0]
    assert (known.oldest_ns, unknown.oldest_ns) == (20, -1)
    assert ClusterSum({"orders": known}).totals.oldest_ns == 20
    assert ClusterSum({"orders": unknown}).totals.oldest_ns == -1


def test_delivery_is_shown_in_shares_when_it_is_counted():
    fields = {"zone_local_msg_count": 1, "region_local_msg_count": 1, "global_msg_count": 2}

    assert topic("orders", channel_json("a", **fields)).channels[0].delivery == (25, 25, 50)
    assert topic("orders", channel_json("a")).channels[0].delivery is None
