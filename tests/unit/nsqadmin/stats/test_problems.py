import pytest

from nsqadmin.stats.problems import (
    ALERT_S,
    DiskState,
    Level,
    ShareState,
    problems_of_channel,
    problems_of_lookupds,
    problems_of_node,
    problems_of_topic,
    worst_first,
    worst_level,
)
from nsqadmin.stats.sums import add_up
from nsqadmin.stats.trend import Trend
from tests.support.records import channel_json, topic_stats


def channel(**fields):
    stats = topic_stats("orders", channel_json("audit", **fields))
    return add_up("orders", [(stats, (), 0, "a:1")]).channels[0]


def of_topic(depth, *, name="orders", paused=False, has_channels=False):
    return problems_of_topic(name, depth, paused=paused, has_channels=has_channels)


def trend(*, span_s=10.0, messages=0.0, finished=0.0, depth=0.0, timeouts=0.0, dead=0.0):
    return Trend(span_s, messages, finished, depth, timeouts, dead)


def kinds(problems):
    return [(problem.kind, problem.level) for problem in problems]


PROBLEM, WARNING = Level.PROBLEM, Level.WARNING
# Fields of a channel, its trend, and what is said of it.
CHANNELS = {
    "flowing": ({"depth": 5, "client_count": 1}, {"messages": 100, "finished": 100}, []),
    "without trend": ({}, None, []),
    "at rest": ({}, {}, []),
    "bare": ({"depth": 1200}, None, [("no consumers", PROBLEM, "1,200 messages wait, no consumers")]),
    "bare and filling": (
        {"depth": 1},
        {"messages": 20, "depth": 20},
        [("no consumers", PROBLEM, "1 message waits, no consumers, 20 more each second")],
    ),
    "paused": ({"depth": 10, "paused": True}, {}, [("paused", WARNING, "10 messages wait")]),
    "stuck": (
        {"depth": 10, "client_count": 2},
        {"span_s": 8},
        [("stuck", PROBLEM, "10 messages wait and 2 consumers finish none")],
    ),
    "seen twice in quick succession": ({"depth": 10, "client_count": 2}, {"span_s": 2}, []),
    "growing": (
        {"depth": 5000, "client_count": 1},
        {"messages": 100, "finished": 40, "depth": 60},
        [
            (
                "growing",
                PROBLEM,
                "5,000 messages wait, 60 more each second: 1 consumer finishes 40 of 100 a second",
            )
        ],
    ),
    "small": ({"depth": 50, "client_count": 1}, {"messages": 100, "finished": 40, "depth": 60}, []),
    "growing slowly": ({"depth": 5000, "client_count": 1}, {"messages": 100, "finished": 98, "depth": 2}, []),
    "bare and timing out": (
        {"depth": 10},
        {"timeouts": 0.5},
        [
            ("no consumers", PROBLEM, "10 messages wait, no consumers"),
            ("timing out", WARNING, "0.5 messages/s time out"),
        ],
    ),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_channel_is_judged_by_its_statistics_and_its_trend(name):
    fields, rates, said = CHANNELS[name]

    found = problems_of_channel(channel(**fields), None if rates is None else trend(**rates))

    assert [(one.kind, one.level, one.text) for one in found] == said
    assert all((one.topic, one.channel) == ("orders", "audit") for one in found)
    assert all(one.when.alert_s == ALERT_S for one in found if one.kind == "no consumers")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (
            "orders",
            {"depth": 3},
            [("no channel", "3 messages wait in the topic, because it has no channel yet")],
        ),
        ("orders", {"depth": 3, "has_channels": True}, []),
        ("orders", {"depth": 3, "paused": True}, [("paused", "3 messages wait in the topic")]),
        ("o.bad.dead", {"depth": 9}, [("dead letters", "9 dead letters to inspect, send back or delete")]),
    ],
)
def test_topic_is_judged_by_its_own_queue(name, given, said):
    assert [(one.kind, one.text) for one in of_topic(name=name, **given)] == said


@pytest.mark.parametrize(
    ("given", "kind", "level", "text"),
    [
        ({"silent": "timed out"}, "unreachable", PROBLEM, "does not answer (timed out)"),
        ({"silent": "timed out", "remaining": 3}, "unreachable", PROBLEM, "totals are without it"),
        ({"silent": "got 500", "refuses": True}, "no statistics", PROBLEM, "gives no statistics (got 500)"),
        ({"health": "NOK - disk full"}, "unhealthy", PROBLEM, "bad health: NOK - disk full"),
        ({"remaining": 1200}, "draining", WARNING, "1,200 messages remain"),
        ({"listed": False}, "not registered", PROBLEM, "no nsqlookupd lists it"),
    ],
)
def test_node_is_judged_by_its_answers(given, kind, level, text):
    (problem,) = problems_of_node("a:4151", **given)

    assert (problem.kind, problem.level) == (kind, level)
    assert text in problem.text
    assert not problems_of_node("a:4151")


def test_in_flight_messages_are_busy_until_they_time_out():
    (busy,) = problems_of_channel(channel(depth=10, client_count=2, in_flight_count=2), trend(span_s=8))
    (idle,) = problems_of_channel(channel(depth=10, client_count=2), trend(span_s=8))
    (late,) = problems_of_channel(
        channel(depth=10, client_count=2, in_flight_count=2), trend(span_s=8, timeouts=0.1)
    )[:1]

    assert (busy.kind, busy.when.shown_s) == ("stuck", 60)
    assert (idle.when.shown_s, late.when.shown_s) == (5, 5)


def share(node="b:4151", depth=21506, consumers=0, in_flight=0, finished=0.0, span_s=10.0, grows=0.0):
    return ShareState(node, depth, consumers, in_flight, finished, span_s, grows)


def test_node_without_consumers_is_named_beside_consumed_nodes():
    total = channel(depth=21506, client_count=78)

    (problem,) = problems_of_channel(total, trend(messages=100, finished=100), [share()])

    assert problem.kind == "no consumers"
    assert problem.text == (
        "21,506 messages wait on b:4151, no consumers there, while other nodes have consumers"
    )
    # A consumer asks for new nodes once a minute.
    assert problem.when.alert_s == 65


def test_nodes_whose_consumers_finish_nothing_are_named_after_a_while():
    total = channel(depth=200, client_count=10)
    shares = [share("a:1", depth=100, consumers=5), share("b:1", depth=100, consumers=5, finished=10.0)]

    (problem,) = problems_of_channel(total, trend(messages=100, finished=100), shares)

    assert (problem.kind, problem.text) == (
        "stuck",
        "100 messages wait on a:1 and the consumers there finish none",
    )
    assert (problem.when.shown_s, problem.when.alert_s) == (60, 300)


def test_share_whose_pace_is_not_known_is_not_called_stuck():
    shares = [share("a:1", consumers=5, finished=None), share("b:1", consumers=5, finished=1.0)]

    assert not problems_of_channel(channel(depth=9, client_count=10), trend(messages=1, finished=1), shares)


def test_problem_names_few_of_many_nodes():
    shares = [share(f"n{number}:1", depth=1) for number in range(10)]

    (problem,) = problems_of_channel(channel(depth=10, client_count=1), trend(finished=1), shares)

    assert problem.text.startswith(
        "10 messages wait on n0:1, n1:1, n2:1, n3:1, n4:1, n5:1, n6:1, n7:1 and 2 more, no"
    )


def test_down_nsqlookupd_is_warning_and_all_are_problem():
    (one,) = problems_of_lookupds([("l:4161", "timed out")], 2)
    every = problems_of_lookupds([("l:4161", "timed out"), ("m:4161", "timed out")], 2)

    assert (one.level, one.kind) == (Level.WARNING, "nsqlookupd down")
    assert [problem.level for problem in every] == [Level.PROBLEM, Level.PROBLEM]
    assert "the others do" in one.text
    assert "no nsqlookupd does" in every[0].text
    assert not problems_of_lookupds([], 2)


def test_worst_comes_first_and_nodes_before_channels():
    problems = [
        *of_topic(depth=3, paused=True),
        *problems_of_channel(channel(depth=10), None),
        *problems_of_channel(channel(depth=20), None),
        *problems_of_node("a:4151", silent="timed out"),
    ]

    ordered = worst_first(problems)

    assert [problem.kind for problem in ordered] == ["unreachable", "no consumers", "no consumers", "paused"]
    assert ordered[1].weight == 20
    assert worst_level(problems) == Level.PROBLEM
    assert worst_level([]) is None


def test_channel_whose_messages_all_become_dead_letters_is_problem():
    one = channel(client_count=1, dead_count=1000)
    (every,) = problems_of_channel(one, trend(messages=18, finished=18, dead=18))
    (some,) = problems_of_channel(one, trend(messages=18, finished=18, dead=2))

    assert (every.kind, every.messages) == ("dead letters", 1000)
    assert every.text == "Every message becomes a dead letter: 18 a second, 1,000 since the nodes started"
    assert some.text.startswith("Messages become dead letters: 2 a second")


def test_growing_queue_is_burst_while_its_oldest_message_is_young():
    rate = trend(messages=300, finished=200, depth=100)

    def judged(depth, oldest_s):
        one = channel(depth=depth, client_count=1, oldest_message_time=int(oldest_s * 1e9))
        return kinds(problems_of_channel(one, rate, now_s=1000.0))

    assert judged(685, 992) == []
    assert judged(685, 930) == [("growing", Level.PROBLEM)]
    # Without the time of the oldest message: 200 a second need 100 s for the backlog.
    unknown = channel(depth=20_000, client_count=1)
    assert kinds(problems_of_channel(unknown, rate, now_s=1000.0)) == [("growing", Level.PROBLEM)]


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (200_000_000_000, 1_000_000_000_000, None),
        (90_000_000_000, 1_000_000_000_000, Level.WARNING),
        (3_900_000_000, 20_000_000_000, Level.WARNING),
        (10_000_000_000, 1_000_000_000_000, Level.PROBLEM),
        (-1, -1, None),
    ],
)
def test_disk_with_little_free_space_is_problem(free, total, level):
    found = problems_of_node("a:4151", disk=DiskState(free, total, 240.0))

    assert kinds(found) == ([("disk", level)] if level else [])
    if level:
        assert "full in about 4m 00s. nsqd refuses publishes when it is full" in found[0].text
