from nsqadmin.figures import aggregate
from nsqadmin.figures.attention import Level
from nsqadmin.figures.trend import TrendBook
from nsqadmin.pages.rows import ChannelRow, TopicRow, sort_topics
from tests.support.records import channel_json, producer, topic_stats


def row(name, *channels, **fields):
    record = aggregate.topic_on(producer(), topic_stats(name, *channels, **fields), 0)
    return TopicRow(aggregate.total_topic(name, [record]), TrendBook())


def names(rows):
    return [one.name for one in rows]


def test_a_topics_depth_includes_its_channels():
    one = row("orders", channel_json("a", depth=3, backend_depth=1), channel_json("b", depth=4), depth=10)

    assert (one.depth, one.memory_depth, one.backend_depth) == (17, 16, 1)


def test_a_topic_is_as_bad_as_its_worst_channel_and_shows_each_mark_once():
    one = row(
        "orders", channel_json("a", depth=3), channel_json("b", depth=4), channel_json("c", paused=True)
    )

    assert one.level == Level.TROUBLE
    assert [mark.mark for mark in one.marks] == ["no consumers", "paused"]


def test_a_single_nodes_share_is_not_judged():
    one = row("orders", channel_json("a", depth=3))

    assert one.nodes[0].all_concerns == []


def test_the_filter_looks_at_names_of_topics_and_channels_in_any_case():
    one = row("Orders", channel_json("billing"))

    assert one.matches("order")
    assert one.matches("BILL")
    assert not one.matches("audit")


def test_rows_go_by_name_unless_a_known_column_is_named():
    rows = [row("b", depth=1), row("A", depth=2), row("c", depth=2)]

    assert names(sort_topics(rows, "name", descending=False)) == ["A", "b", "c"]
    assert names(sort_topics(rows, "name", descending=True)) == ["c", "b", "A"]
    assert names(sort_topics(rows, "nonsense", descending=False)) == ["A", "b", "c"]
    assert names(sort_topics(rows, "depth", descending=True)) == ["A", "c", "b"]


def test_delivery_is_shown_in_shares_when_it_is_counted():
    fields = {"zone_local_msg_count": 1, "region_local_msg_count": 1, "global_msg_count": 2}
    counted = row("orders", channel_json("a", **fields)).channels[0]
    plain = row("orders", channel_json("a")).channels[0]

    assert counted.delivery == (25, 25, 50)
    assert plain.delivery is None


def test_an_idle_topic_has_no_figures_and_no_concerns():
    idle = TopicRow.idle("abandoned")

    assert (idle.is_idle, idle.depth, idle.all_concerns, idle.level) == (True, 0, [], None)
    assert isinstance(row("orders", channel_json("a")).channels[0], ChannelRow)
