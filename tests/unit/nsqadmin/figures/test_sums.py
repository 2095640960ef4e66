from nsqadmin.figures.attention import Level
from nsqadmin.figures.sums import ClusterSum, TopicSum, add_up, sort_topics
from nsqadmin.figures.trend import Mark
from tests.support.records import channel_json, topic_stats

SECOND = 1_000_000_000


def topic(name, *channels, **fields):
    return add_up(name, [(topic_stats(name, *channels, **fields), (), 0)])


def names(rows):
    return [one.name for one in rows]


def test_a_topic_is_added_up_over_nodes_and_channels():
    first = topic_stats("orders", channel_json("a", depth=3, backend_depth=1, client_count=2), depth=10)
    second = topic_stats("orders", channel_json("b", depth=4, in_flight_count=7), message_count=9)

    total = add_up("orders", [(first, (), 0), (second, (), 0)])

    assert (total.nodes, total.own_depth, total.depth, total.memory_depth) == (2, 10, 17, 16)
    assert (total.backend_depth, total.in_flight, total.consumers, total.message_count) == (1, 7, 2, 9)
    assert [channel.channel_name for channel in total.channels] == ["a", "b"]


def test_rates_are_added_for_the_nodes_that_have_been_seen_twice():
    before = topic_stats("orders", channel_json("a", message_count=100, depth=1), message_count=100)
    now = topic_stats("orders", channel_json("a", message_count=120, depth=1), message_count=120)
    new = topic_stats("orders", channel_json("a", message_count=10**6), message_count=10**6)

    total = add_up(
        "orders", [(now, [Mark([before], 0)], 2 * SECOND), (now, [Mark([before], 0)], SECOND), (new, (), 0)]
    )

    assert (total.trend.messages, total.trend.span_s) == (30, 1)
    assert (total.channels[0].trend.finished, total.channels[0].trend.span_s) == (30, 1)


def test_a_topic_is_as_bad_as_its_worst_channel_and_shows_each_mark_once():
    one = topic(
        "orders", channel_json("a", depth=3), channel_json("b", depth=4), channel_json("c", paused=True)
    )

    assert one.level == Level.TROUBLE
    assert [mark.mark for mark in one.marks] == ["no consumers", "paused"]


def test_a_topic_paused_on_one_node_is_paused():
    shares = [(topic_stats("orders", paused=on), (), 0) for on in (False, True, False)]

    assert add_up("orders", shares).paused


def test_the_filter_looks_at_names_of_topics_and_channels_in_any_case():
    one = topic("Orders", channel_json("Billing"))

    assert one.matches("order")
    assert one.matches("bill")
    assert not one.matches("audit")


def test_rows_go_by_name_unless_a_known_column_is_named():
    cluster = ClusterSum({name: topic(name, depth=depth) for name, depth in (("b", 1), ("A", 2), ("c", 2))})
    rows = cluster.rows

    assert names(sort_topics(rows, "name", descending=False)) == ["A", "b", "c"]
    assert names(sort_topics(rows, "name", descending=True)) == ["c", "b", "A"]
    assert names(sort_topics(rows, "nonsense", descending=False)) == ["A", "b", "c"]
    assert names(sort_topics(rows, "depth", descending=True)) == ["A", "c", "b"]


def test_an_idle_topic_has_no_figures_and_no_concerns():
    idle = TopicSum("abandoned", is_idle=True)

    assert (idle.depth, idle.level, idle.to_json()["inactive"]) == (0, None, True)


def test_the_worst_concerns_of_the_cluster_come_first():
    cluster = ClusterSum(
        {
            "small": topic("small", channel_json("a", depth=3)),
            "large": topic("large", channel_json("a", depth=300)),
            "paused": topic("paused", paused=True),
        }
    )

    assert [concern.topic for concern in cluster.concerns] == ["large", "small", "paused"]


def test_one_changed_topic_changes_the_cluster_and_leaves_the_former_as_it_was():
    before = ClusterSum({"a": topic("a", depth=1), "b": topic("b", depth=2)})

    after = before.changed("a", topic("a", depth=5)).changed("b", None)

    assert (before.depth, after.depth, names(after.rows)) == (3, 5, ["a"])
