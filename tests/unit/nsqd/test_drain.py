"""What the drain command makes of a node's answer."""

import pytest

from nsqd.drain import hopeless, sentence


def channel(name="c", remaining=1, client_count=1, *, paused=False):
    return {"channel_name": name, "remaining": remaining, "client_count": client_count, "paused": paused}


def topic(name="t", backlog=0, channels=(), channel_count=None, *, paused=False):
    return {
        "topic_name": name,
        "backlog": backlog,
        "channels": list(channels),
        "channel_count": len(channels) if channel_count is None else channel_count,
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
            topic(channels=[channel(remaining=2, client_count=0)]),
            "2 messages remain: 2 of t/c, which has no consumer",
        ),
        (topic(channels=[channel(paused=True)]), "1 message remains: 1 of t/c, which is paused"),
        (topic(backlog=3), "3 messages remain: 3 of t, which has no channel to drain to"),
        (topic(backlog=3, channel_count=1, paused=True), "3 messages remain: 3 of t, which is paused"),
    ],
)
def test_the_sentence_says_what_remains_and_why(found, text):
    assert sentence(state(found)) == text


def test_the_sentence_names_the_largest_first_and_counts_the_others():
    many = [topic(f"t{n}", channels=[channel(remaining=n)]) for n in range(1, 8)]

    said = sentence(state(*many))
    assert said.startswith("28 messages remain: 7 of t7/c; 6 of t6/c")
    assert said.endswith("3 of t3/c; 2 more")


def test_it_is_hopeless_when_all_that_remains_has_no_channel():
    assert hopeless(state(topic(backlog=1)))


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [topic(channels=[channel(client_count=0)])],
        [topic(backlog=1), topic("u", channels=[channel()])],
        [topic(backlog=1, channel_count=1, paused=True)],
    ],
)
def test_it_is_not_hopeless_while_somebody_may_still_read(topics):
    assert not hopeless(state(*topics))
