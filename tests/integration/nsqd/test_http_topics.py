"""Section 4.2: the endpoints that create, delete, empty and pause topics and channels; every refusal."""

import pytest

from tests.support.waiting import wait_until

DONE = (200, b"")

TOPIC_ACTIONS = ["create", "delete", "empty", "pause", "unpause"]
CHANNEL_ACTIONS = ["create", "delete", "empty", "pause", "unpause"]
VALIDATED = {"create", "empty"}  # delete and pause look up the name without validating it


@pytest.fixture
def post(nsqd):
    def post(path, body=b""):
        return nsqd.request("POST", path, body)

    return post


def refused(status, code):
    return status, b'{"message":"%b"}' % code.encode()


@pytest.mark.parametrize("action", TOPIC_ACTIONS)
def test_topic_action_needs_topic(post, action):
    assert post(f"/topic/{action}") == refused(400, "MISSING_ARG_TOPIC")
    assert post(f"/topic/{action}?channel=ch") == refused(400, "MISSING_ARG_TOPIC")
    assert post(f"/topic/{action}?topic=%zz") == refused(400, "INVALID_REQUEST")


@pytest.mark.parametrize("action", TOPIC_ACTIONS)
@pytest.mark.parametrize("name", ["", "b@d", "a" * 65])
def test_bad_topic_name_is_refused_or_not_found(post, action, name):
    expected = refused(400, "INVALID_TOPIC") if action in VALIDATED else refused(404, "TOPIC_NOT_FOUND")
    assert post(f"/topic/{action}?topic={name}") == expected


@pytest.mark.parametrize("action", [action for action in TOPIC_ACTIONS if action != "create"])
def test_missing_topic_is_not_found(post, topic, action):
    assert post(f"/topic/{action}?topic={topic}") == refused(404, "TOPIC_NOT_FOUND")


@pytest.mark.parametrize("action", CHANNEL_ACTIONS)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", refused(400, "MISSING_ARG_TOPIC")),
        ("?channel=ch", refused(400, "MISSING_ARG_TOPIC")),
        ("?topic=", refused(400, "INVALID_ARG_TOPIC")),
        ("?topic=b@d", refused(400, "INVALID_ARG_TOPIC")),
        ("?topic=b@d&channel=b@d", refused(400, "INVALID_ARG_TOPIC")),
        ("?topic=not.there", refused(400, "MISSING_ARG_CHANNEL")),
        ("?topic=not.there&channel=", refused(400, "INVALID_ARG_CHANNEL")),
        ("?topic=not.there&channel=b@d", refused(400, "INVALID_ARG_CHANNEL")),
        ("?topic=not.there&channel=" + "a" * 65, refused(400, "INVALID_ARG_CHANNEL")),
        ("?topic=not.there&channel=ch", refused(404, "TOPIC_NOT_FOUND")),
        ("?topic=%zz&channel=ch", refused(400, "INVALID_REQUEST")),
    ],
)
def test_channel_action_needs_topic_that_exists_and_channel(post, action, query, expected):
    assert post(f"/channel/{action}{query}") == expected


@pytest.mark.parametrize("action", [action for action in CHANNEL_ACTIONS if action != "create"])
def test_missing_channel_is_not_found(post, topic, action):
    post(f"/topic/create?topic={topic}")
    assert post(f"/channel/{action}?topic={topic}&channel=ch") == refused(404, "CHANNEL_NOT_FOUND")


KINDS = pytest.mark.parametrize("kind", ["topic", "channel"])


@KINDS
def test_topic_and_channel_are_made_once_and_deleted_once(post, topic, kind):
    query = f"?topic={topic}&channel=ch"
    post(f"/topic/create{query}")
    for _ in range(2):
        assert post(f"/{kind}/create{query}", b"the body is ignored") == DONE
    assert post(f"/{kind}/empty{query}") == DONE
    assert post(f"/{kind}/delete{query}") == DONE
    assert post(f"/{kind}/delete{query}") == refused(404, f"{kind.upper()}_NOT_FOUND")


@KINDS
def test_second_pause_of_topic_or_channel_changes_nothing(post, topic, stats, kind):
    query = f"?topic={topic}&channel=ch"
    post(f"/topic/create{query}")
    post(f"/channel/create{query}")
    for action, paused in (("pause", True), ("pause", True), ("unpause", False), ("unpause", False)):
        assert post(f"/{kind}/{action}{query}") == DONE
        assert stats(topic, "ch" if kind == "channel" else None)["paused"] is paused


def test_channel_created_first_gets_topic_backlog(post, topic, stats):
    post(f"/pub?topic={topic}", b"m")
    assert stats(topic)["depth"] == 1
    post(f"/channel/create?topic={topic}&channel=ch")
    assert (stats(topic)["depth"], stats(topic, "ch")["depth"]) == (0, 1)


def test_new_topic_has_channels_that_nsqlookupd_knows(cluster):
    lookupd = cluster.nsqlookupd()
    lookupd.post("/channel/create?topic=t&channel=known")
    nsqd = cluster.nsqd()
    nsqd.post("/topic/create?topic=first")
    wait_until(
        lambda: [one["topics"] for one in lookupd.get("/nodes")["producers"]] == [["first"]], "it is there"
    )
    nsqd.post("/topic/create?topic=t")
    [found] = nsqd.get("/stats?format=json&topic=t")["topics"]

    assert [channel["channel_name"] for channel in found["channels"]] == ["known"]
