import pytest

from nsqadmin.changes.commands import ActionResult
from nsqadmin.changes.effects import (
    message_effects,
    queue_effects,
    seek_effects,
    summary,
    tombstone_effects,
)
from nsqadmin.collecting.messages import SeekPreview
from nsqadmin.stats.sums import add_up
from tests.support.records import channel_json, topic_stats


def topic(*channels, name="orders", nodes=2, **fields):
    stats = topic_stats(name, *channels, **fields)
    return add_up(name, [(stats, (), 0, f"n{number}:1") for number in range(nodes)])


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("pause", "Delivery to 1 channel on 2 nsqds stops until resumed."),
        ("unpause", "8 messages waiting on 2 nsqds will be delivered to 1 channel."),
        ("empty", "8 messages waiting in the topic itself on 2 nsqds will be permanently deleted."),
        ("delete", "1 topic and 1 channel (a) will be removed from 2 nsqds."),
    ],
)
def test_effects_on_one_topic_count_its_nodes_messages_and_channels(action, sentence):
    assert queue_effects(action, [topic(channel_json("a"), depth=4)])[0] == sentence


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("pause", "Delivery to 4 consumers on 2 nsqds stops until resumed."),
        ("unpause", "14 messages waiting on 2 nsqds will be delivered to 4 consumers."),
        (
            "empty",
            "20 messages on 2 nsqds (14 waiting, 4 in flight, 2 deferred) will be permanently deleted.",
        ),
        ("delete", "1 channel will be removed from 2 nsqds."),
    ],
)
def test_effects_on_channel_count_unfinished_messages(action, sentence):
    one = topic(channel_json("a", depth=7, in_flight_count=2, deferred_count=1, client_count=2))

    assert queue_effects(action, one.channels)[0] == sentence


def test_effects_on_selection_are_sums_without_nodes():
    topics = [topic(channel_json("a", depth=7, client_count=2), name=name) for name in ("one", "two")]
    channels = [one.channels[0] for one in topics]

    assert "28 unfinished messages will be permanently deleted." in queue_effects("delete", topics)
    assert "8 consumers will be disconnected." in queue_effects("delete", topics)
    assert queue_effects("pause", channels) == [
        "Delivery to 8 consumers stops until resumed.",
        "Waiting and new messages are kept (28 messages).",
    ]


def test_effects_of_tombstone_say_what_node_holds():
    assert "The node does not hold the topic now." in tombstone_effects("n:1", None)
    assert any("3 unfinished" in one for one in tombstone_effects("n:1", topic(depth=3, nodes=1)))


def test_effects_on_messages_are_those_of_dry_run():
    dry = ActionResult(2, counts={"a": 2, "b": 1}, left={"no channel": 4}, unfinished=True, silent=("c",))

    found = message_effects("finish", "finished", dry, one=False)

    assert found[0] == "At least 3 messages on 2 nsqds would be finished."
    assert "4 dead letters cannot go: no channel." in found
    assert "These are not reached: c." in found
    assert message_effects("finish", "finished", dry, one=True)[0].startswith("No further delivery")


def test_effects_of_seek_are_added_up_by_node_and_many_nodes_are_counted():
    previews = [SeekPreview(f"n{number:02}", 2, "2026-01-31T12:00:00.5Z") for number in range(10)]

    found = seek_effects([*previews, SeekPreview("n00", 1, "2026-01-30T12:00:00Z")], {"n00": 5}, ["x"])

    assert found[0] == "Backlog 5 → 21."
    assert found[1] == "n00: 5 now, 3 afterwards, the first of them published at 2026-01-30 12:00:00 UTC."
    assert "And 2 more nodes." in found
    assert found[-1] == "Not there: x."


def test_summary_names_each_node_once():
    done = [
        ActionResult(1, silent=("c",), results=(("a", "done"), ("b", "done: 3"), ("c", "timed out"))),
        ActionResult(1, silent=("c",), results=(("a", "done"), ("b", "E_BUSY"), ("c", "timed out"))),
    ]

    assert summary(done, "topic") == (
        ["2 topics on a", "1 topic on b"],
        ["b: E_BUSY (1 topic)", "c was not reached: 2 topics did not change there"],
    )
    assert summary([ActionResult(9, results=tuple((f"n{n}", "done") for n in range(20)))], "topic")[0] == [
        "1 topic on each of 20 nodes"
    ]
