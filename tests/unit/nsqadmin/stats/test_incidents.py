from nsqadmin.stats.incidents import incidents
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import Level, Problem


def bare(topic, channel, messages=10, **given):
    given = {"level": Level.PROBLEM, "began": Instant(0, 100.0 + messages), **given}
    level = given.pop("level")
    return Problem(level, "no consumers", "x", topic, channel, weight=messages, messages=messages, **given)


def node(kind, address="a:1", level=Level.PROBLEM, **given):
    return Problem(level, kind, "gone", node=address, weight=float("inf"), **given)


def test_channels_without_consumers_share_card_with_a_row_for_each_name():
    found = [bare(f"t{number}", name) for number in range(286) for name in ("archive", "indexer")]

    (card,) = incidents([*found, bare("t0", "notify", messages=900)])

    assert card.title == "573 channels have no consumers"
    assert card.impact == "6,620 messages in 286 topics"
    assert card.since_s == 110
    assert [(part.name, part.topics, part.messages) for part in card.parts] == [
        ("archive", 286, 2860),
        ("indexer", 286, 2860),
        ("notify", 1, 900),
    ]


def test_lost_node_comes_before_channels_and_warnings_come_last():
    cards = incidents(
        [
            Problem(Level.WARNING, "paused", "paused", "orders", "a", messages=10**6),
            *(bare(f"t{number}", "a", messages=1000) for number in range(858)),
            node("disk", level=Level.WARNING),
            node("down"),
            Problem(Level.PROBLEM, "dead letters", "18 a second", "orders", "a"),
        ]
    )

    assert [card.title for card in cards] == [
        "a:1 is down",
        "orders / a has dead letters",
        "858 channels have no consumers",
        "a:1 has little disk space",
        "orders / a is paused",
    ]


def test_few_nodes_have_card_each_and_many_share_one():
    few = incidents([node("down", f"{number}:1") for number in range(3)])
    many = incidents([node("down", f"{number}:1") for number in range(4)])

    assert [card.title for card in few] == ["0:1 is down", "1:1 is down", "2:1 is down"]
    assert [(card.title, card.key) for card in many] == [("4 nodes are down", ("down", "", "", ""))]


def test_card_of_last_known_problems_says_so():
    (card,) = incidents([bare("a", "c", last_known="nsqd x:1 does not answer"), bare("b", "c")])

    assert card.impact == "20 messages in 2 topics (1 of them last known: nsqd x:1 does not answer)"


def test_dead_letters_of_channel_and_topic_where_they_wait_are_one_card():
    channel = Problem(Level.PROBLEM, "dead letters", "18 a second", "orders", "fraud", messages=1832)
    waiting = Problem(Level.WARNING, "dead letters", "1,832 wait", "orders.fraud.dead", messages=1832)

    assert [(card.title, card.messages) for card in incidents([waiting, channel])] == [
        ("orders / fraud has dead letters", 1832)
    ]
    assert [card.title for card in incidents([waiting])] == ["orders.fraud.dead has dead letters"]
