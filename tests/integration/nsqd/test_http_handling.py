"""POST /message/* and /channel/seek: an operator's actions on messages, and their state after a crash."""

import json
import urllib.parse

import pytest

from tests.integration.nsqd.restarts import consume, crash
from tests.support.nsqd_http import set_policy
from tests.support.waiting import wait_until


@pytest.fixture
def node(cluster):
    """An nsqd to kill, with a topic and a channel; finished messages are kept for an hour."""
    node = cluster.nsqd()
    set_policy(node, ".*", name="keep", retain_time="1h")
    node.create("t", "ch")
    return node


def ask(node, method, path, **arguments):
    status, body = node.request(method, f"{path}?" + urllib.parse.urlencode({"topic": "t", **arguments}))
    return status, json.loads(body) if body else None


def do(node, what, **arguments):
    """Do something to messages; return the answer."""
    status, answer = ask(node, "POST", f"/message/{what}", channel="ch", **arguments)
    assert status == 200, answer
    return answer


def refusal(node, path, **arguments):
    status, answer = ask(node, "POST", path, **arguments)
    return status, answer["message"]


def seek(node, to, channel="ch"):
    status, answer = ask(node, "POST", "/channel/seek", channel=channel, to=to)
    assert status == 200, answer
    return answer


def publish(node, *bodies, query=""):
    for body in bodies:
        node.post(f"/pub?topic=t{query}", body)


def messages(node, **arguments):
    return ask(node, "GET", "/messages", **arguments)[1]["messages"]


def states(node, channel="ch"):
    return {one["body"]: one["state"] for one in messages(node, channel=channel)}


def id_of(node, body):
    (found,) = [one["id"] for one in messages(node) if one["body"] == body]
    return found


def test_message_in_flight_can_be_finished_by_operator(node, connect):
    publish(node, b"poison", b"good")
    wire = connect(node)
    wire.subscribe("t", "ch", ready=2)
    poison, good = wire.messages(2)

    assert do(node, "finish", id=poison.id.decode())["count"] == 1

    wire.send(b"FIN " + poison.id + b"\n")
    assert wire.error().startswith(b"E_FIN_FAILED")
    wire.send(b"FIN " + good.id + b"\n")
    wait_until(lambda: states(node)["good"] == "finished", "the FIN")
    crash(node)
    assert states(node)["poison"] == "finished"


def test_message_is_requeued_with_delay_and_that_survives_crash(node):
    publish(node, b"a", b"b")

    do(node, "requeue", id=id_of(node, "a"), defer=600_000)

    assert states(node) == {"a": "deferred", "b": "waiting"}
    crash(node)
    assert states(node) == {"a": "deferred", "b": "waiting"}


def test_message_is_put_off_as_long_as_policy_of_its_channel_allows(node):
    set_policy(node, "t", name="far", channel="ch", priority=1, max_defer="48h")
    publish(node, b"a")
    day_ms = 24 * 3_600_000

    do(node, "requeue", id=id_of(node, "a"), defer=day_ms)

    assert states(node) == {"a": "deferred"}
    status, said = refusal(node, "/message/requeue", channel="ch", all="true", defer=3 * day_ms)
    assert (status, said.partition(":")[0]) == (400, "INVALID_ARG_DEFER")


def test_deferred_message_is_sent_and_another_cancelled(node, connect):
    publish(node, b"now", b"never", query="&defer=600000")

    do(node, "send", id=id_of(node, "now"))
    do(node, "cancel", id=id_of(node, "never"))

    assert states(node) == {"now": "waiting", "never": "finished"}
    crash(node)
    assert states(node) == {"now": "waiting", "never": "finished"}
    _, delivered = consume(connect, node, 1, "t")
    assert [(one.body, one.attempts) for one in delivered] == [(b"now", 1)]


def test_filter_counts_matches_before_finishing_them(node):
    publish(node, b'{"bad": 1}', b'{"bad": 0}', b'{"bad": 1}')

    dry = do(node, "finish", json="bad=1", dry_run="true")
    assert (dry["count"], dry["more"]) == (2, False)
    assert [one["state"] for one in messages(node, channel="ch")] == ["waiting"] * 3
    assert do(node, "finish", json="bad=1")["count"] == 2
    assert [one["state"] for one in messages(node, channel="ch")] == ["finished", "waiting", "finished"]
    assert do(node, "finish", json="bad=1")["count"] == 0


def test_filter_resumes_at_its_position(node):
    publish(node, *[b"x%d" % n for n in range(5)])

    first = do(node, "finish", contains="x", limit=3)
    second = do(node, "finish", contains="x", limit=3, **{"from": first["next"]})

    assert (first["count"], first["more"], second["count"], second["more"]) == (3, True, 2, False)


BAD_INPUT = [
    ("/message/finish", 400, "MISSING_ARG_CHANNEL"),
    ("/message/finish channel=ch", 400, "MISSING_ARG_ID"),
    ("/message/finish channel=none id=x", 404, "CHANNEL_NOT_FOUND"),
    ("/message/finish channel=ch id=x", 400, "INVALID_ARG_ID"),
    ("/message/finish channel=ch contains=a dry_run=perhaps", 400, "INVALID_ARG_DRY_RUN"),
    ("/message/finish channel=ch state=finished", 400, "INVALID_ARG_STATE"),
    ("/message/finish channel=ch state=x", 400, "INVALID_ARG_STATE"),
    ("/message/finish channel=ch contains=a direction=back", 400, "INVALID_ARG_DIRECTION"),
    ("/message/requeue channel=ch all=true defer=-1", 400, "INVALID_ARG_DEFER"),
    ("/message/requeue channel=ch all=true defer=99999999999", 400, "INVALID_ARG_DEFER"),
    ("/message/send channel=ch state=waiting", 400, "INVALID_ARG_STATE"),
    # A misspelt or empty argument would otherwise select every message.
    (
        "/message/finish channel=ch all=true contain=x",
        400,
        "INVALID_ARG: there is no argument",
    ),
    (
        "/message/finish channel=ch state=waiting contains=",
        400,
        "INVALID_ARG_CONTAINS",
    ),
    ("/message/cancel channel=ch all=true limit=1000000000", 400, "INVALID_ARG_LIMIT"),
    ("/channel/seek channel=ch", 400, "MISSING_ARG_TO"),
    ("/channel/seek channel=ch to=soon", 400, "INVALID_ARG_TO"),
    ("/channel/seek channel=ch to=1", 410, "SEQUENCE_GONE"),
    ("/channel/seek channel=ch to=18014398509481983", 416, "INVALID_ARG_TO"),
    ("/channel/seek channel=none to=earliest", 404, "CHANNEL_NOT_FOUND"),
    ("/channel/create channel=new start=soon", 400, "INVALID_ARG_START"),
]


def test_bad_input_is_refused_with_sentence_and_changes_nothing(node):
    publish(node, b"a")
    before = node.get("/stats?format=json&topic=t")["topics"]
    for request_, status, message in BAD_INPUT:
        path, *arguments = request_.split()

        found = refusal(node, path, **dict(argument.split("=") for argument in arguments))

        assert (found[0], found[1][: len(message)]) == (status, message), request_
    assert node.get("/stats?format=json&topic=t")["topics"] == before


def test_message_that_is_finished_or_not_deferred_is_conflict(node):
    publish(node, b"a")
    message_id = id_of(node, "a")
    never = f"{int(message_id, 16) + 1:016x}"

    assert refusal(node, "/message/finish", channel="ch", id=never) == (404, "MESSAGE_NOT_FOUND")
    assert refusal(node, "/message/send", channel="ch", id=message_id)[0] == 409
    do(node, "finish", id=message_id)
    assert refusal(node, "/message/finish", channel="ch", id=message_id)[1].startswith("NOT_OWED")
    assert refusal(node, "/message/cancel", channel="ch", id=message_id)[0] == 409


# --- seek ---


def test_channel_is_replayed_from_its_beginning_and_that_survives_crash(node, connect):
    publish(node, b"a", b"b", b"c")
    wire, first = consume(connect, node, 3)
    for message in first:
        wire.send(b"FIN " + message.id + b"\n")
    wait_until(lambda: set(states(node).values()) == {"finished"}, "the FINs")
    wire.close()

    assert seek(node, "earliest")["pending"] == 3
    crash(node)

    _, again = consume(connect, node, 3)
    assert [one.body for one in again] == [b"a", b"b", b"c"]
    assert [one.id for one in again] == [one.id for one in first]


@pytest.mark.parametrize("restarts", [0, 1])
def test_channel_is_set_to_each_kind_of_place(node, restarts):
    publish(node, b"a", b"b", b"c")
    _, b, c = messages(node)
    seconds, fraction = divmod(c["timestamp"], 1_000_000_000)
    for to, expected in (
        ("latest", "fff"),
        ("earliest", "www"),
        (str(b["sequence"]), "fww"),
        (f"id:{b['id']}", "fww"),
        (f"@{seconds}.{fraction:09}", "ffw"),
        ("-1h", "www"),
    ):
        seek(node, to)
        for _ in range(restarts):
            crash(node)
        assert "".join(state[0] for state in states(node).values()) == expected


def test_reader_by_position_goes_on_from_place(node):
    publish(node, b"a", b"b")
    first, second = (one["sequence"] for one in messages(node))
    ask(node, "POST", "/channel/commit", channel="ch", sequence=second + 1)

    seek(node, str(first))

    def acknowledged():
        return node.get("/log/bounds?topic=t")["channels"]["ch"]["acknowledged"]

    assert acknowledged() == first
    ask(node, "POST", "/channel/commit", channel="ch", sequence=second)
    assert acknowledged() == second
    crash(node)
    assert acknowledged() == second


def test_topic_in_memory_is_handled_as_well(node):
    name = "mem#ephemeral"
    node.post(f"/topic/create?topic={urllib.parse.quote(name)}")
    node.post(f"/channel/create?topic={urllib.parse.quote(name)}&channel=ch")
    node.post(f"/mpub?topic={urllib.parse.quote(name)}", b"a\nb\nc")

    def of(method, path, **arguments):
        return ask(node, method, path, **{"topic": name, "channel": "ch", **arguments})

    found = of("GET", "/messages")[1]["messages"]
    assert of("POST", "/message/finish", id=found[0]["id"])[1]["count"] == 1
    assert of("POST", "/channel/seek", to=f"id:{found[2]['id']}")[0] == 200
    left = of("GET", "/messages", state="waiting")[1]["messages"]
    assert [one["body"] for one in left] == ["c"]
