"""Headers of messages, as youzan's NSQ has them, next to clients without headers."""

import json
import urllib.parse

import pytest

from nsqd.protocol.batch import SLICE_MESSAGES
from tests.support.wire import fin, pub, rdy, sized
from tests.support.youzan import YouzanClient, mpub_ext, pub_ext

MAX_MSG = 1048576
TRACE = b'{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


@pytest.fixture
def youzan(nsqd):
    with YouzanClient(("127.0.0.1", nsqd.tcp_port)) as client:
        yield client


@pytest.fixture
def plain(connect, topic):
    wire = connect()
    wire.subscribe(topic, "plain", ready=2_500)
    return wire


@pytest.fixture
def extended(youzan, topic):
    youzan.subscribe(topic, "extended", ready=2_500)
    return youzan


# --- IDENTIFY


def test_extend_support_is_granted_on_request_only(youzan, connect):
    assert youzan.granted["extend_support"] is True
    assert "extend_support" not in connect().identify()
    assert "extend_support" not in connect().identify(extend_support=False)


def test_headers_need_no_negotiation(connect, topic):
    wire = connect()
    assert wire.ask(b"IDENTIFY\n" + sized(b'{"extend_support":true}')) == b"OK"
    wire.subscribe(topic, ready=1)
    wire.send(pub(topic, b"m"))

    assert {wire.frame().data[-2:] for _ in range(2)} == {b"OK", b"\0m"}


# --- publishing and consuming


def test_message_with_headers_reaches_both_kinds_of_consumers(plain, extended, wire, topic):
    wire.send(
        pub(topic, b"1"),
        pub_ext(topic, TRACE, b"2"),
        pub_ext(topic, b'{ "a" : "\\u00e9" }', b"3", "0"),
        pub(topic, b"4"),
        mpub_ext(topic, (b'{"n":"5"}', b"5"), (b"", b"6"), partition="7"),
        pub_ext(topic, b"", b"7"),
    )
    wire.ok(6)

    assert [message.body for message in plain.messages(7)] == [b"%d" % n for n in range(1, 8)]
    assert [extended.extended()[2:] for _ in range(7)] == [
        (0, b"", b"1"),
        (4, TRACE, b"2"),
        (4, b'{ "a" : "\\u00e9" }', b"3"),
        (0, b"", b"4"),
        (4, b'{"n":"5"}', b"5"),
        (0, b"", b"6"),
        (0, b"", b"7"),
    ]


def test_youzan_consumer_and_plain_one_share_channel(youzan, connect, wire, topic):
    plain = connect()
    plain.subscribe(topic)
    youzan.subscribe(topic)
    for n in range(20):
        wire.send(pub_ext(topic, b'{"n":"%d"}' % n, b"%d" % n) if n % 2 else pub(topic, b"%d" % n))
    wire.ok(20)

    plain.send(rdy(10))
    got = plain.messages(10)
    youzan.send(rdy(10))
    rest = [youzan.extended() for _ in range(10)]

    for message in rest:
        number = int(message.body)
        assert message.headers == (b'{"n":"%d"}' % number if number % 2 else b"")
    assert sorted(int(one.body) for one in (*got, *rest)) == list(range(20))


def test_message_that_one_kind_gives_back_has_its_headers_at_the_other(youzan, connect, wire, topic):
    wire.send(pub_ext(topic, TRACE, b"m"))
    wire.ok()
    plain = connect()
    plain.subscribe(topic, ready=1)
    assert plain.message().body == b"m"
    plain.close()

    youzan.subscribe(topic, ready=1)
    message = youzan.extended()
    assert (message.attempts, message.headers, message.body) == (2, TRACE, b"m")
    youzan.send(b"REQ %b 1\n" % message.id)
    again = youzan.extended()
    assert (again.attempts, again.headers, again.body) == (3, TRACE, b"m")
    youzan.send(b"FIN %b\n" % again.id)
    youzan.quiet()


def test_long_batch_with_headers_is_published_in_slices(plain, extended, wire, topic):
    messages = [(b'{"n":"%d"}' % n if n % 3 else b"", b"%d" % n) for n in range(2 * SLICE_MESSAGES + 5)]
    wire.send(mpub_ext(topic, *messages), pub(topic, b"behind"))
    wire.ok(2)

    for headers, body in messages:
        message, bare = extended.extended(), plain.message()
        assert (message.headers, message.body, bare.body) == (headers, body, body)
        extended.send(b"FIN %b\n" % message.id)
        plain.send(fin(bare))


def test_headers_on_disk_survive_restart(nsqd, connect, topic, restart):
    with connect() as wire:
        wire.send(pub_ext(topic, TRACE, b"1"), pub(topic, b"2"), pub_ext(topic, b'{"a":"b"}', b"3"))
        wire.ok(3)
    restart(nsqd)

    with YouzanClient(("127.0.0.1", nsqd.tcp_port)) as youzan:
        youzan.subscribe(topic, ready=10)
        assert [youzan.extended()[3:] for _ in range(3)] == [(TRACE, b"1"), (b"", b"2"), (b'{"a":"b"}', b"3")]


def test_body_of_most_bytes_may_have_headers_of_most_bytes(plain, extended, wire, topic):
    most = b'{"a":"' + b"x" * (65_535 - 8) + b'"}'
    body = b"m" * MAX_MSG
    wire.send(pub_ext(topic, most, body), mpub_ext(topic, (most, body)))
    wire.ok(2)

    for _ in range(2):
        assert extended.extended()[3:] == (most, body)
        assert plain.message().body == body


# --- refused requests


BAD_HEADERS = [
    (b"{", b"they are not JSON"),
    (b"[]", b"they are not a JSON object"),
    (b'"text"', b"they are not a JSON object"),
    (b'{"a":1}', b"names and values are strings"),
    (b'{"a":{"b":"c"}}', b"names and values are strings"),
    (b'{"a":null}', b"names and values are strings"),
    (b'{"a":"\\ud800"}', b"they are not Unicode"),
    (b'{"a":"\xff"}', b"they are not JSON"),
]


@pytest.mark.parametrize(("encoded", "why"), BAD_HEADERS)
def test_bad_headers_are_refused_with_sentence_and_store_nothing(connect, plain, topic, encoded, why):
    sentence = b"E_INVALID_JSON_HEADER PUB_EXT invalid headers: " + why
    assert connect().refusal(pub_ext(topic, encoded, b"m")) == sentence
    batch = mpub_ext(topic, (b"{}", b"m"), (encoded, b"m"))
    assert connect().refusal(batch) == sentence.replace(b"PUB_EXT", b"MPUB_EXT")

    plain.quiet()


def test_refused_headers_create_no_topic(nsqd, connect, topic):
    connect().refusal(pub_ext(topic, b"[]", b"m"))

    assert not nsqd.get(f"/stats?format=json&topic={topic}")["topics"]


# --- HTTP


@pytest.fixture
def post(nsqd):
    def post(path, body=b"", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return nsqd.request("POST", path, body, named)

    return post


def ext(**headers):
    return urllib.parse.quote(json.dumps(headers))


def test_headers_of_request_are_those_of_its_message(post, extended, topic):
    assert post(f"/pub?topic={topic}", b"m", X_NSQEXT_TraceParent="00-ab", x_nsqext_b="2", Other="c") == (
        200,
        b"OK",
    )
    assert post(f"/pub?topic={topic}", b"n") == (200, b"OK")

    first, second = extended.extended(), extended.extended()
    assert (json.loads(first.headers), first.body) == ({"traceparent": "00-ab", "b": "2"}, b"m")
    assert (second.version, second.body) == (0, b"n")


def test_pub_ext_takes_json_object_and_request_overrides_it(post, extended, topic):
    assert post(f"/pub_ext?topic={topic}&ext={ext(a='1', b='2')}", b"m", X_NSQEXT_B="3") == (200, b"OK")
    assert post(f"/pub_ext?topic={topic}&ext={ext(a='1')}", b"m") == (200, b"OK")
    assert post(f"/pub_ext?topic={topic}", b"m", X_NSQEXT_C="4") == (200, b"OK")

    got = [json.loads(extended.extended().headers) for _ in range(3)]
    assert got == [{"a": "1", "b": "3"}, {"a": "1"}, {"c": "4"}]


def of_batch(*messages: tuple[bytes, bytes]) -> bytes:
    """The body of ``MPUB_EXT``, without its size."""
    return mpub_ext("t", *messages).partition(b"\n")[2][4:]


@pytest.mark.parametrize("count", [3, 200, 5000])
def test_mpub_ext_takes_batch_over_http(post, extended, topic, count):
    messages = [(b'{"n":"%04d"}' % n if n % 2 else b"", b"%04d" % n) for n in range(count)]
    assert post(f"/mpub_ext?topic={topic}", of_batch(*messages)) == (200, b"OK")

    got = []
    for _ in range(count):
        got.append(extended.extended())
        extended.send(b"FIN %b\n" % got[-1].id)
    assert [(one.headers, one.body) for one in got] == messages


def test_batch_with_headers_is_deferred_as_a_whole(nsqd, post, wire, extended, topic):
    batch = of_batch((TRACE, b"1"), (b"", b"2"))
    assert post(f"/mpub_ext?topic={topic}&defer=3600000", batch) == (200, b"OK")
    assert post(f"/mpub_ext?topic={topic}&defer=1", of_batch(*[(b'{"a":"b"}', b"m")] * 40)) == (200, b"OK")

    assert {extended.extended()[2:] for _ in range(40)} == {(4, b'{"a":"b"}', b"m")}
    (channel,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["channels"]
    assert channel["deferred_count"] == 2


@pytest.mark.parametrize(
    ("query", "batch", "status", "message"),
    [
        ("", of_batch((b"{}", b"m"), (b"[]", b"m")), 400, "E_INVALID_JSON_HEADER invalid headers"),
        ("", of_batch((b"{}", b"")), 413, "BAD_BODY"),
        ("", b"\0\0\0\1\0\0", 413, "BAD_MESSAGE"),
        ("&defer=-1", of_batch((b"{}", b"m")), 400, "INVALID_DEFER"),
    ],
)
def test_bad_batch_with_headers_is_refused_as_a_whole(nsqd, post, topic, query, batch, status, message):
    code, answer = post(f"/mpub_ext?topic={topic}{query}", batch)

    assert (code, json.loads(answer)["message"].startswith(message)) == (status, True), answer
    stats = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    assert not stats or stats[0]["message_count"] == 0


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("[]", "they are not a JSON object"),
        ('{"a":1}', "names and values are strings"),
        ("", "they are not JSON"),
        ("%ff", "they are not JSON"),
    ],
)
def test_bad_headers_over_http_are_400_with_sentence(nsqd, post, topic, value, why):
    value = value if value.startswith("%") else urllib.parse.quote(value)
    status, answer = post(f"/pub_ext?topic={topic}&ext={value}", b"m")

    assert (status, json.loads(answer)["message"]) == (400, f"E_INVALID_JSON_HEADER invalid headers: {why}")
    assert not nsqd.get(f"/stats?format=json&topic={topic}")["topics"]


def test_log_is_read_in_either_form(nsqd, wire, topic):
    wire.send(pub(topic, b"1"), pub_ext(topic, TRACE, b"2"))
    wire.ok(2)

    def read(more=""):
        bounds = nsqd.get(f"/log/bounds?topic={topic}")
        start, end = bounds["extents"][0]
        frames = nsqd.request("GET", f"/log/range?topic={topic}&start={start}&end={end}{more}")[1]
        found = []
        while frames:
            length = 4 + int.from_bytes(frames[:4])
            found.append(frames[34:length])
            frames = frames[length:]
        return found

    assert read() == [b"1", b"2"]
    assert read("&headers=true") == [b"\0001", b"\x04\x00" + bytes([len(TRACE)]) + TRACE + b"2"]


def test_message_bytes_count_bodies_only(stats, wire, topic):
    wire.send(pub_ext(topic, TRACE, b"12345"), mpub_ext(topic, (TRACE, b"678"), (b"", b"9")))
    wire.ok(2)

    assert stats(topic)["message_bytes"] == 9
