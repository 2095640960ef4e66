"""The expected effect of one action on a selection, and its result."""

from nsqadmin.changes.actions import Done
from nsqadmin.figures.sums import ChannelSum, TopicSum
from nsqadmin.pages.bulk_effects import BulkItem, channels_effects, seeks_effects, summary, topics_effects


def test_effects_count_all_that_is_selected():
    topics = [TopicSum("a", depth=3, in_flight=2, deferred=1, consumers=4), TopicSum("b", depth=4)]
    channels = [
        ChannelSum("a", "x", depth=3, in_flight_count=2, deferred_count=1, client_count=4),
        ChannelSum("a", "y", depth=4),
    ]

    assert "10 unfinished messages" in topics_effects("delete", topics)[0]
    assert channels_effects("empty", channels)[0].startswith("10 messages,")
    assert channels_effects("pause", channels) == [
        "Delivery to 4 consumers stops until these channels are resumed.",
        "Waiting and new messages are kept (7 messages).",
    ]


def test_a_seek_says_what_is_owed_now_and_afterwards_on_each_node():
    found = seeks_effects(7, {f"n{number:02d}": number for number in range(10)})

    assert found[0] == "Backlog 7 → 45."
    assert found[1] == "n00: 0 afterwards."
    assert "And 2 more nodes." in found


def test_the_summary_is_by_node_and_names_one_that_is_down_once():
    done = [
        Done(1, 0, (), ("c",), (("a", "done"), ("b", "done: 3"), ("c", "timed out"))),
        Done(1, 0, (), ("c",), (("a", "done"), ("b", "E_BUSY"), ("c", "timed out"))),
    ]

    details, warnings = summary(done, "channel")

    assert details == ["2 channels on a", "1 channel on b"]
    assert warnings == [
        "b: E_BUSY (1 channel)",
        "c was not reached: 2 channels did not change there",
    ]


def test_what_was_done_on_many_nodes_is_one_line():
    done = [Done(20, 0, (), results=tuple((f"n{number}", "done") for number in range(20)))]

    assert summary(done, "topic") == (["1 topic on each of 20 nodes"], [])


def test_a_selected_channel_is_named_with_its_topic():
    assert [BulkItem("a").name, BulkItem("a", "b").name, BulkItem("a", "b").kind] == ["a", "a/b", "channel"]
