"""GET /messages: the messages of a log, and their state on a channel."""

import base64
import json
import urllib.parse

import pytest

from tests.support.waiting import wait_until


def messages(nsqd, topic, **arguments):
    arguments = {name.rstrip("_"): value for name, value in arguments.items()}
    return nsqd.get("/messages?" + urllib.parse.urlencode({"topic": topic, **arguments}))


def refusal(nsqd, query):
    status, body = nsqd.request("GET", f"/messages?{query}")
    return status, json.loads(body)["message"]


def bodies(answer):
    return [message["body"] for message in answer["messages"]]


@pytest.fixture
def publish(nsqd, topic):
    def publish(*bodies, query=""):
        for body in bodies:
            nsqd.post(f"/pub?topic={topic}{query}", body)

    return publish


@pytest.fixture
def channel(nsqd, topic):
    nsqd.create(topic, "ch")
    return "ch"


def test_page_resumes_after_previous_one(nsqd, topic, publish):
    publish(b"a", b"b", b"c")

    first = messages(nsqd, topic, limit=2)
    second = messages(nsqd, topic, from_=first["next"])

    assert (bodies(first), first["more"]) == (["a", "b"], True)
    assert (bodies(second), second["more"]) == (["c"], False)


def test_back_from_latest_comes_newest_first(nsqd, topic, publish):
    publish(b"a", b"b", b"c")

    first = messages(nsqd, topic, limit=2, direction="back")
    second = messages(nsqd, topic, from_=first["next"], direction="back")

    assert bodies(first) == ["c", "b"]
    assert bodies(second) == ["a"]
    assert (second["more"], second["next"]) == (False, None)


def test_body_says_how_it_is_written(nsqd, topic, publish):
    publish(b'{"n": 1.50}', b"text", b"\xff")

    found = messages(nsqd, topic)["messages"]

    assert [(one["encoding"], one["body"]) for one in found] == [
        ("json", {"n": 1.5}),
        ("text", "text"),
        ("base64", base64.b64encode(b"\xff").decode()),
    ]
    assert [one["size"] for one in found] == [11, 4, 1]


def test_lines_when_they_are_asked_for(nsqd, topic, publish):
    publish(b'{"n":\n1}', b"two\nlines")

    status, body = nsqd.request("GET", f"/messages?topic={topic}&format=ndjson")

    assert status == 200
    assert [json.loads(line)["body"] for line in body.splitlines()] == [{"n": 1}, "two\nlines"]


def test_states_of_channel(nsqd, topic, publish, channel, wire):
    publish(b"finished", b"in flight", b"waiting")
    publish(b"deferred", query="&defer=600000")
    wire.identify(client_id="me")
    wire.subscribe(topic, "ch")
    wire.send(b"RDY 2\n")
    first, _second = wire.message(), wire.message()
    wire.send(b"RDY 0\nFIN " + first.id + b"\n")
    wait_until(lambda: messages(nsqd, topic, channel="ch", state="finished")["messages"], "the FIN")

    found = messages(nsqd, topic, channel="ch")["messages"]

    assert [(one["body"], one["state"]) for one in found] == [
        ("finished", "finished"),
        ("in flight", "in_flight"),
        ("waiting", "waiting"),
        ("deferred", "deferred"),
    ]
    assert found[1]["client"]["client_id"] == "me"
    assert found[1]["since"] < found[1]["until"] < found[3]["until"]
    assert [one.get("attempts") for one in found] == [None, 1, 0, 0]
    assert found[2]["place"] == 1
    for message in found:
        (alone,) = messages(nsqd, topic, channel="ch", state=message["state"])["messages"]
        assert alone["id"] == message["id"]


def test_filter_finds_by_bytes_and_by_json(nsqd, topic, publish):
    publish(b'{"user": {"id": 7}}', b'{"user": {"id": 8}}', b"seven")

    assert bodies(messages(nsqd, topic, contains="seven")) == ["seven"]
    assert bodies(messages(nsqd, topic, json="user.id=8")) == [{"user": {"id": 8}}]
    assert bodies(messages(nsqd, topic, json="user.id", direction="back")) == [
        {"user": {"id": 8}},
        {"user": {"id": 7}},
    ]
    nothing = messages(nsqd, topic, contains="nowhere")
    assert (bodies(nothing), nothing["more"]) == ([], False)
    assert nothing["scanned"] > 0


def test_deferred_messages_are_listed_in_order_in_which_they_fall_due(nsqd, topic, publish, channel):
    for delay in (50_000, 30_000, 90_000):
        publish(b"%d" % delay, query=f"&defer={delay}")

    first = messages(nsqd, topic, channel="ch", state="deferred", limit=2)
    second = messages(nsqd, topic, channel="ch", state="deferred", from_=first["next"])

    assert bodies(first) == ["30000", "50000"]
    assert bodies(second) == ["90000"]
    assert bodies(messages(nsqd, topic, channel="ch", state="deferred", contains="9")) == ["90000"]


def test_long_body_is_cut_for_who_wants_that(nsqd, topic, publish):
    publish(b"x" * 100)

    (found,) = messages(nsqd, topic, max_body=10)["messages"]

    assert (found["body"], found["size"], found["truncated"]) == ("x" * 10, 100, True)


def test_answer_is_bounded_in_bytes_and_says_where_to_go_on(nsqd, topic, publish):
    publish(*[b"x" * 900_000] * 8)

    sizes, onward = [], "earliest"
    while True:
        answer = messages(nsqd, topic, from_=onward)
        sizes.append(len(answer["messages"]))
        onward = answer["next"]
        if not answer["more"]:
            break

    assert sum(sizes) == 8
    assert len(sizes) > 1


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=%20", 400, "INVALID_ARG_TOPIC"),
        ("topic=nowhere", 404, "TOPIC_NOT_FOUND"),
        ("topic={topic}&channel=nowhere", 404, "CHANNEL_NOT_FOUND"),
        ("topic={topic}&channel=%20", 400, "INVALID_ARG_CHANNEL"),
        ("topic={topic}&limit=1000000000", 400, "INVALID_ARG_LIMIT: limit is a number from 1 to 10000"),
        ("topic={topic}&from=soon", 400, "INVALID_ARG_FROM: 'soon' is no sequence, id or time"),
        ("topic={topic}&from=18014398509481983", 416, "INVALID_ARG_FROM: the log ends with"),
        ("topic={topic}&state=waiting", 400, "INVALID_ARG_STATE"),
        ("topic={topic}&json=..", 400, "INVALID_ARG_JSON"),
        ("topic={topic}&json=", 400, "INVALID_ARG_JSON: json is empty"),
        ("topic={topic}&format=xml", 400, "INVALID_ARG_FORMAT: a format is json or ndjson, not 'xml'"),
        ("topic={topic}&limits=3", 400, "INVALID_ARG: there is no argument 'limits'; did you mean limit?"),
    ],
)
def test_bad_input_is_refused_with_sentence(nsqd, topic, publish, query, status, message):
    publish(b"a")

    found = refusal(nsqd, query.format(topic=topic))

    assert found[0] == status
    assert found[1].startswith(message)


def test_age_of_oldest_message_is_in_statistics_and_metrics(nsqd, topic, publish, channel, stats):
    assert stats(topic, "ch")["oldest_message_time"] == 0
    publish(b"a", b"b")

    (oldest, _) = messages(nsqd, topic)["messages"]

    assert stats(topic, "ch")["oldest_message_time"] == oldest["timestamp"]
    _, metrics = nsqd.request("GET", "/metrics")
    ages = [
        float(line.split()[-1])
        for line in metrics.decode().splitlines()
        if line.startswith("nsqd_channel_oldest_message_age_seconds") and f'"{topic}"' in line
    ]
    assert len(ages) == 1
    assert ages[0] > 0
