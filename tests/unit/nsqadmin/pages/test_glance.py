from nsqadmin.pages.glance import incident, verdict
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import Level, Problem

NOON = 43_200.0


def problem(kind="stuck", level=Level.PROBLEM, since_s=NOON - 3600):
    return Problem(level, kind, "", "orders", "a", began=Instant(0, since_s) if since_s else None)


def test_verdict_is_one_line():
    assert verdict([], 0, NOON).text == "All good. No backlog"
    assert verdict([], 1200, NOON).text == "All good. 1,200 messages waiting"
    since = int((NOON - 720) * 1e9)
    assert (
        verdict([], 9, NOON, since).text
        == "All good. 9 messages waiting, the oldest in a channel for 12m 00s"
    )
    assert verdict([], 0, NOON, since).text == "All good. No backlog"
    three = [
        problem(),
        problem("growing", since_s=NOON - 7200),
        problem("unhealthy"),
        problem("paused", Level.WARNING, since_s=1.0),
    ]
    assert (verdict(three, 41_000, NOON).level, verdict(three, 41_000, NOON).text) == (
        2,
        "3 problems, 1 warning since 10:00. 41,000 messages waiting",
    )
    assert (
        verdict([problem("paused", Level.WARNING), problem("draining", Level.WARNING)], 0, NOON).text
        == "2 warnings since 11:00. No backlog"
    )
    assert verdict([problem(since_s=0.0)], 0, NOON).level == 2


def test_verdict_counts_messages_of_nodes_that_are_down():
    down = Problem(Level.WARNING, "down", "Down", node="a:1", messages=50)

    assert verdict([down], 0, NOON, away=40).text.endswith(
        "0 messages waiting, 40 more on nodes that do not answer"
    )


def test_incident_is_text_with_line_for_each_problem():
    text = incident([problem(), Problem(Level.WARNING, "down", "it left", node="a:1")], 5, NOON)

    assert text.splitlines() == [
        "1 problem, 1 warning since 11:00. 5 messages waiting (as of 1970-01-01 12:00:00 UTC)",
        "- orders / a is stuck, since 11:00. ",
        "- a:1 is down. it left",
    ]
