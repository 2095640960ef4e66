"""Dead letters of a running nsqd: messages that are tried too often or expire go to a separate topic."""

import json
import time
import urllib.request

import pytest

from nsqclient.wire.frames import FrameParser
from nsqclient.wire.headers import parse_extended
from nsqclient.wire.message import MessageRecord
from tests.support.nsqd_http import channel_stats, set_policy, topic_stats
from tests.support.waiting import wait_until
from tests.support.wire import fin, req


def waiting_in(node, name):
    found = topic_stats(node, name)
    return found["depth"] if found else 0


def dead_letters(node, connect, name, count):
    """Headers and body of each message of the topic."""
    wire = connect(node)
    wire.identify(extend_support=True)
    wire.subscribe(name, "look", ready=count + 10)
    return [parse_extended(message.body) for message in wire.messages(count)]


def refuse(wire, times):
    """Requeue the only message so many times; return its id."""
    for _ in range(times):
        message = wire.message()
        wire.send(req(message, 0))
    wire.quiet()
    return message.id


def test_poison_message_goes_to_dead_letters_with_its_story(node, connect):
    set_policy(node, "^t$", apply=True, max_attempts=3)
    wire = connect(node)
    wire.identify(client_id="me", hostname="here")
    wire.subscribe("t", "ch", ready=1)
    connect(node).publish("t", b"poison")
    message_id = refuse(wire, 3)

    wait_until(lambda: waiting_in(node, "t.ch.dead") == 1, "the message is a dead letter")
    wait_until(lambda: channel_stats(node, "t", "ch")["dead_count"] == 1, "the original is finished")
    ((headers, body),) = dead_letters(node, connect, "t.ch.dead", 1)

    assert body == b"poison"
    first, last = int(headers.pop("dead-first")), int(headers.pop("dead-last"))
    assert first < last < first + 60 * 10**9
    assert headers == {
        "dead-topic": "t",
        "dead-channel": "ch",
        "dead-id": message_id.decode(),
        "dead-node": "127.0.0.1",
        "dead-attempts": "3",
        "dead-client": "me@here",
        "dead-reason": "requeued",
    }
    statistics = channel_stats(node, "t", "ch")
    assert (statistics["depth"], statistics["in_flight_count"]) == (0, 0)


def test_expired_message_becomes_dead_letter_by_policy(node, connect):
    set_policy(node, "^t$", apply=True, ttl="100ms", dead_letter_topic="late")
    node.create("t", "ch")
    connect(node).publish("t", *[b"%d" % n for n in range(200)])

    wait_until(lambda: channel_stats(node, "t", "ch")["dead_count"] == 200, "all are dead letters")
    found = dead_letters(node, connect, "late", 200)

    assert [body for _, body in found] == [b"%d" % n for n in range(200)]
    assert {(headers["dead-reason"], headers["dead-attempts"]) for headers, _ in found} == {("expired", "0")}
    statistics = channel_stats(node, "t", "ch")
    assert (statistics["depth"], statistics["expired_count"]) == (0, 200)


def test_full_dead_letter_topic_retains_originals(node, connect):
    set_policy(node, "^t$", apply=True, max_attempts=1, dead_letter_topic="dead")
    set_policy(node, "^dead$", name="full", max_depth=1)
    wire = connect(node)
    wire.subscribe("t", "ch", ready=1)
    connect(node).publish("t", b"1", b"2")
    for _ in range(2):
        wire.send(req(wire.message(), 0))

    wait_until(lambda: "dead: topic is full" in node.logs(), "the second does not fit")
    assert (waiting_in(node, "dead"), channel_stats(node, "t", "ch")["dead_count"]) == (1, 1)
    # Nobody would see why publishers of the topic are refused if they were in no figure.
    assert channel_stats(node, "t", "ch")["depth"] == 1
    assert b'nsqd_channel_depth{channel="ch",topic="t"} 1.0' in node.request("GET", "/metrics")[1]
    assert b"depth: 1" in node.request("GET", "/stats?topic=t&channel=ch")[1]

    node.request("DELETE", "/policies?name=full")
    wait_until(
        lambda: channel_stats(node, "t", "ch")["dead_count"] == 2, "it is there as soon as there is room"
    )
    assert sorted(body for _, body in dead_letters(node, connect, "dead", 2)) == [b"1", b"2"]


def test_poison_message_survives_crash_at_any_time(node, connect):
    """Wherever a crash stops it on the way to the dead letters, it is in one of the two topics or in both."""
    set_policy(node, "^t$", apply=True, max_attempts=1)
    published = [b"%d" % n for n in range(40)]
    for turn in range(4):
        wire = connect(node)
        wire.subscribe("t", "ch", ready=10)
        if not turn:
            connect(node).publish("t", *published)
        wire.send(*[req(message, 0) for message in wire.messages(10)])
        # The kill comes at an arbitrary point of this work.
        node.kill()
        node.start()

    wire = connect(node)
    wire.subscribe("t", "ch", ready=2500)
    wait_until(
        lambda: (
            waiting_in(node, "t.ch.dead") + channel_stats(node, "t", "ch")["in_flight_count"]
            >= len(published)
        ),
        "what is not dead is delivered",
    )
    left = {message.body for message in wire.messages(channel_stats(node, "t", "ch")["in_flight_count"])}
    dead = {body for _, body in dead_letters(node, connect, "t.ch.dead", waiting_in(node, "t.ch.dead"))}
    assert left | dead == set(published)


# --- sent back ---


@pytest.fixture
def buried(node, connect):
    """Three dead letters of one of two channels; the other channel has finished all messages."""
    set_policy(node, "^t$", apply=True, max_attempts=1)
    node.create("t", "other")
    wire, other = connect(node), connect(node)
    wire.subscribe("t", "ch", ready=3)
    other.subscribe("t", "other", ready=3)
    bodies = [b'{"n": 1}', b'{"n": 2}', b"three"]
    for body in bodies:
        node.request("POST", "/pub?topic=t", body)
    wire.send(*[req(message, 0) for message in wire.messages(3)])
    other.send(*[fin(message) for message in other.messages(3)])
    wait_until(lambda: channel_stats(node, "t", "ch")["dead_count"] == 3, "all are dead letters")
    wire.close()
    other.close()
    return bodies


def send_back(node, query="", expected=200):
    status, answer = node.request("POST", f"/dead_letters/send_back?topic=t.ch.dead{query}")
    assert status == expected, answer
    return json.loads(answer)


def depths(node, topic="t"):
    return {one["channel_name"]: one["depth"] for one in topic_stats(node, topic)["channels"]}


def test_dead_letters_go_back_to_their_channel_only(node, connect, buried, restart):
    # After a clean restart the finished messages are certainly recorded.
    node.restart()

    answer = send_back(node)

    assert (answer["found"], answer["sent"], answer["left"]) == (3, 3, {})
    assert depths(node) == {"ch": 3, "other": 0}
    assert waiting_in(node, "t.ch.dead") == 0
    restart(node)
    wait_until(lambda: topic_stats(node, "t") is not None, "the topic is there")
    assert depths(node) == {"ch": 3, "other": 0}
    wire = connect(node)
    wire.identify(extend_support=True)
    wire.subscribe("t", "ch", ready=10)
    messages = wire.messages(3)
    assert [parse_extended(message.body) for message in messages] == [({}, body) for body in buried]
    assert {message.attempts for message in messages} == {1}


def frames_and_gaps(node, start, end, channel):
    """The bodies of a range as a reader with this channel gets them, and the reported gaps."""
    url = f"http://{node.http_address}/log/range?topic=t&start={start}&end={end}&channel={channel}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        frames = FrameParser().feed(answer.read())
        return [MessageRecord.decode(data).body for _, data in frames], answer.headers.get("X-Nsq-Gaps")


def test_reader_of_log_with_another_channel_is_not_given_what_went_back(node, connect, buried):
    def bounds(channel=""):
        return node.get(f"/log/bounds?topic=t&channel={channel}")

    # The numbers continue higher after a restart, and what goes back is the first that gets one.
    at = bounds()["end"]
    assert node.request("POST", f"/channel/commit?topic=t&channel=other&sequence={at}")[0] == 200
    node.restart()
    send_back(node)
    end = bounds()["end"]

    begin = bounds()["extents"][-1][0]
    assert begin > at
    assert begin not in [start for start, _ in bounds("other")["extents"]]
    assert bounds("ch")["extents"] == bounds()["extents"]
    assert bounds()["extents"][-1] == [begin, end]
    assert frames_and_gaps(node, at, end, "other") == ([], f"{at}-{end} unused")
    assert frames_and_gaps(node, begin, end, "ch") == (buried, None)

    # They are finished and removed, and the reader may still have read no further than to them.
    node.post("/channel/empty?topic=t&channel=ch")
    for _ in range(2):
        node.restart()
    connect(node).publish("t", b"four")
    wait_until(lambda: bounds()["first"] == end, "they are removed")
    ((four, behind),) = bounds("other")["extents"]
    assert bounds("other")["first"] == at
    assert frames_and_gaps(node, at, behind, "other") == (
        [b"four"],
        f"{at}-{end} unused, {end}-{four} unused",
    )
    assert node.request("GET", f"/log/range?topic=t&start={at}&end={behind}&channel=ch")[0] == 410


@pytest.mark.parametrize(("query", "count"), [("&contains=three", 1), ("&json=n=2", 1), ("&limit=2", 2)])
def test_dead_letters_are_sent_back_by_filter(node, buried, query, count):
    answer = send_back(node, query)

    assert answer["sent"] == count
    assert (depths(node)["ch"], waiting_in(node, "t.ch.dead")) == (count, 3 - count)


def test_id_that_is_not_in_log_sends_no_other_one_back(node, buried):
    first = node.get("/messages?topic=t.ch.dead")["messages"][0]["id"]
    before = f"{int(first, 16) - 1:016x}"

    answer = send_back(node, f"&id={before}")

    assert (answer["found"], answer["sent"], answer["left"]) == (0, 0, {})


def test_dead_letter_that_cannot_return_stays_with_reason(node, connect, buried):
    connect(node).publish("t.ch.dead", b"no dead letter")
    node.post("/topic/pause?topic=t")

    answer = send_back(node)

    assert (answer["found"], answer["sent"]) == (0, 0)
    assert answer["left"] == {"topic t is paused": 3, "they do not say where they came from": 1}
    node.post("/topic/unpause?topic=t")
    node.post("/channel/delete?topic=t&channel=ch")
    assert send_back(node)["left"]["there is no channel t/ch"] == 3
    assert waiting_in(node, "t.ch.dead") == 4


def test_dead_letters_go_back_as_far_as_bounds_allow(node, buried):
    set_policy(node, "^t$", apply=True, max_depth=2)

    for query, sent in (("&dry_run=true", 0), ("", 2)):
        answer = send_back(node, query)
        assert (answer["found"], answer["sent"]) == (2, sent)
        assert answer["left"] == {"topic t is full": 1}
    assert waiting_in(node, "t.ch.dead") == 1
    assert send_back(node)["left"] == {"topic t is full": 1}


def test_dead_letter_sent_back_and_retained_is_not_sent_again(node, buried):
    set_policy(node, "dead$", name="retained", apply=True, retain_time="1h")
    send_back(node)

    assert len(node.get("/messages?topic=t.ch.dead")["messages"]) == 3
    assert send_back(node)["found"] == 0


def test_ttl_and_max_attempts_reached_together_give_reason_of_attempt(node, connect):
    set_policy(node, "^t$", apply=True, max_attempts=1, ttl="600ms")
    wire = connect(node)
    wire.subscribe("t", "ch", ready=1)
    connect(node).publish("t", b"late")
    message = wire.message()
    time.sleep(0.7)
    wire.send(req(message, 0))

    wait_until(lambda: waiting_in(node, "t.ch.dead") == 1, "the message is a dead letter")
    ((headers, _),) = dead_letters(node, connect, "t.ch.dead", 1)
    assert headers["dead-reason"] == "requeued"


def test_ephemeral_channel_alone_takes_its_messages_along_at_kill(node, connect):
    wire = connect(node)
    wire.subscribe("t", "only#ephemeral")
    node.post("/pub?topic=t", b"1")
    time.sleep(2.3)
    node.kill()
    node.wait()
    node.start()

    node.post("/channel/create?topic=t&channel=ch")
    assert depths(node) == {"ch": 0}


INVALID = [
    ("", 400, "MISSING_ARG_TOPIC"),
    ("?topic=b@d", 400, "INVALID_ARG_TOPIC"),
    ("?topic=nobody", 404, "TOPIC_NOT_FOUND"),
    ("?topic=t.ch.dead&dry_run=perhaps", 400, "INVALID_ARG_DRY_RUN"),
    ("?topic=t.ch.dead&limit=1000000000", 400, "INVALID_ARG_LIMIT"),
    ("?topic=t.ch.dead&id=xyz", 400, "INVALID_ARG_ID"),
    (
        "?topic=t.ch.dead&contain=x",
        400,
        "INVALID_ARG: there is no argument 'contain'; did you mean contains?",
    ),
    ("?topic=t.ch.dead&contains=", 400, "INVALID_ARG_CONTAINS"),
    ("?topic=t.ch.dead&json==", 400, "INVALID_ARG_JSON"),
]


def test_invalid_request_changes_nothing(node, buried):
    for query, status, message in INVALID:
        found = node.request("POST", f"/dead_letters/send_back{query}")

        assert found[0] == status, query
        assert json.loads(found[1])["message"].startswith(message)
    assert waiting_in(node, "t.ch.dead") == 3
