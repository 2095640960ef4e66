"""How a node's answer to GET /drain is described and judged."""

import pytest

from nsqd.engine.drain_report import sentence, stuck

POLL_MS = 60_000
LEFT_MS = 30_000


def channel(name="c", remaining=1, unread_ms=None, *, paused=False, due_in_ms=None):
    return {
        "channel_name": name,
        "remaining": remaining,
        "client_count": 1 if unread_ms is None else 0,
        "unread_ms": unread_ms,
        "due_in_ms": due_in_ms,
        "paused": paused,
    }


def topic(name="t", backlog=0, channels=(), channel_count=None, *, unread_ms=None, paused=False):
    count = len(channels) if channel_count is None else channel_count
    return {
        "topic_name": name,
        "backlog": backlog,
        "channels": list(channels),
        "channel_count": count,
        "unread_ms": unread_ms,
        "paused": paused,
    }


def state(*topics):
    remaining = sum(t["backlog"] + sum(c["remaining"] for c in t["channels"]) for t in topics)
    return {"remaining": remaining, "topics": list(topics)}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (topic(channels=[channel()]), "1 message remains: 1 of t/c"),
        (topic(channels=[channel(remaining=2)]), "2 messages remain: 2 of t/c"),
        (
            topic(channels=[channel(remaining=2, unread_ms=0)]),
            "2 messages remain: 2 of t/c, which has no consumer",
        ),
        (topic(channels=[channel(paused=True)]), "1 message remains: 1 of t/c, which is paused"),
        (
            topic(channels=[channel(due_in_ms=90_000)]),
            "1 message remains: 1 of t/c, deferred for another 90s",
        ),
        (
            topic(channels=[channel(due_in_ms=3_600_000)]),
            "1 message remains: 1 of t/c, deferred for another 60m",
        ),
        (
            topic(backlog=3, unread_ms=0),
            "3 messages remain: 3 of t, which has no channel to drain to",
        ),
        (topic(backlog=3, channel_count=1, paused=True), "3 messages remain: 3 of t, which is paused"),
    ],
)
def test_sentence_says_what_remains_and_why(found, text):
    assert sentence(state(found)) == text


def test_sentence_names_largest_first_and_counts_the_others():
    many = [topic(f"t{n}", channels=[channel(remaining=n)]) for n in range(1, 8)]

    said = sentence(state(*many))
    assert said.startswith("28 messages remain: 7 of t7/c; 6 of t6/c")
    assert said.endswith("3 of t3/c; 2 more")


@pytest.mark.parametrize(
    "found",
    [
        topic(backlog=1, unread_ms=POLL_MS),
        topic(channels=[channel(unread_ms=POLL_MS)]),
        topic(channels=[channel(paused=True)]),
        topic(backlog=1, channel_count=1, paused=True),
        topic(channels=[channel(due_in_ms=LEFT_MS + 1)]),
        topic(backlog=1, channels=[channel(paused=True)], paused=True),
    ],
)
def test_drain_is_stuck_when_no_remaining_message_can_go(found):
    assert stuck(state(found), POLL_MS, LEFT_MS)


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [topic(channels=[channel()])],
        # A consumer that looks for topics once a minute may still come.
        [topic(backlog=1, unread_ms=POLL_MS - 1)],
        [topic(channels=[channel(unread_ms=POLL_MS - 1)])],
        [topic(channels=[channel(due_in_ms=LEFT_MS)])],
        # One message that can still go is enough to wait for.
        [topic(backlog=1, unread_ms=POLL_MS), topic("u", channels=[channel()])],
        [topic(channels=[channel(paused=True), channel("d")])],
    ],
)
def test_drain_is_not_stuck_while_a_message_may_go(topics):
    assert not stuck(state(*topics), POLL_MS, LEFT_MS)
