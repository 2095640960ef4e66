"""Section 4.3: /pub and /mpub, every check in its order."""

import http.client
import socket
import threading
from contextlib import closing

import pytest

from tests.support.nsqd_http import topic_stats
from tests.support.wire import batch, size, sized

MAX_MSG = 1048576
MAX_BODY = 5242880


@pytest.fixture
def post(nsqd):
    """Status and body of a POST on a connection that is kept, so that a closed one is noticed."""
    connection = http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=10)

    def post(path, body=b"", **headers):
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()

    yield post
    connection.close()


@pytest.fixture
def consumer(wire, topic):
    wire.subscribe(topic, ready=100)
    return wire


def refused(status, code):
    return status, b'{"message":"%b"}' % code.encode()


def bodies(consumer, count):
    return [message.body for message in consumer.messages(count)]


OK = (200, b"OK")


# --- /pub


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MISSING_ARG_TOPIC"),
        ("?channel=x", "MISSING_ARG_TOPIC"),
        ("?TOPIC=x", "MISSING_ARG_TOPIC"),
        ("?topic=", "INVALID_TOPIC"),
        ("?topic", "INVALID_TOPIC"),
        ("?topic=b@d", "INVALID_TOPIC"),
        ("?topic=a+b", "INVALID_TOPIC"),
        ("?topic=" + "a" * 65, "INVALID_TOPIC"),
        ("?topic=%zz", "INVALID_REQUEST"),
        ("?topic=a&x=%", "INVALID_REQUEST"),
        ("?topic=a;b=1", "INVALID_REQUEST"),
    ],
)
@pytest.mark.parametrize("path", ["/pub", "/mpub"])
def test_bad_query_is_refused(post, path, query, code):
    assert post(path + query, b"m") == refused(400, code)


@pytest.mark.parametrize("path", ["/pub", "/mpub"])
def test_first_of_equal_parameters_counts(post, topic, path):
    assert post(f"{path}?topic={topic}&topic=b@d", b"m") == OK
    assert post(f"{path}?topic=b@d&topic={topic}", b"m") == refused(400, "INVALID_TOPIC")


def test_form_in_body_is_message_and_no_parameters(post, topic):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert post("/pub", b"topic=x", **form) == refused(400, "MISSING_ARG_TOPIC")
    assert post(f"/pub?topic={topic}", b"a=b", **form) == OK


def test_percent_sign_in_query_escapes(post, nsqd, topic):
    assert post(f"/pub?topic={topic}%23ephemeral", b"m") == OK
    (found,) = nsqd.get(f"/stats?format=json&topic={topic}%23ephemeral")["topics"]
    assert found["message_count"] == 1


def test_empty_body_is_no_message(post, topic):
    assert post(f"/pub?topic={topic}", b"") == refused(400, "MSG_EMPTY")
    assert post("/pub", b"") == refused(400, "MSG_EMPTY")  # checked before the query


def test_message_of_exactly_limit_is_taken_and_one_byte_more_is_not(post, consumer, topic):
    assert post(f"/pub?topic={topic}", b"m" * MAX_MSG) == OK
    assert len(consumer.message().body) == MAX_MSG
    assert post(f"/pub?topic={topic}", b"m" * (MAX_MSG + 1)) == refused(413, "MSG_TOO_BIG")
    assert post(f"/pub?topic={topic}", b"again") == OK


def test_body_in_chunks_is_joined_and_its_size_checked(post, consumer, topic):
    assert post(f"/pub?topic={topic}", iter([b"in ", b"three ", b"parts"])) == OK
    assert bodies(consumer, 1) == [b"in three parts"]
    assert post(f"/pub?topic={topic}", iter([b"m" * MAX_MSG])) == OK
    assert len(consumer.message().body) == MAX_MSG
    assert post(f"/pub?topic={topic}", iter([b"m" * MAX_MSG, b"m"])) == refused(413, "MSG_TOO_BIG")


def test_compressed_body_is_left_as_it_is(post, consumer, topic):
    assert post(f"/pub?topic={topic}", b"not really gzip", **{"Content-Encoding": "gzip"}) == OK
    assert bodies(consumer, 1) == [b"not really gzip"]


@pytest.mark.parametrize("delay", ["", "-1", "3600001", "x", "1.5", "0x10", "1_000", "9" * 20, "1e3", "%20"])
def test_bad_delay_is_refused_after_topic_is_made(post, topic, stats, delay):
    assert post(f"/pub?topic={topic}&defer={delay}", b"m") == refused(400, "INVALID_DEFER")
    assert stats(topic)["message_count"] == 0


def test_client_that_asks_whether_to_continue_is_told_to(nsqd, consumer, topic):
    head = b"POST /pub?topic=%b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=10) as client:
        client.sendall(head % topic.encode())
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"body")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert bodies(consumer, 1) == [b"body"]


# --- /mpub


@pytest.mark.parametrize("binary", ["", "&binary=false", "&binary=0"])
@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"\n\none\n\n\ntwo\n\n", [b"one", b"two"]),
        (b"one\r\ntwo\r\n", [b"one\r", b"two\r"]),
        (b"\0\n\xff", [b"\0", b"\xff"]),
        (b"x\n" * 90, [b"x"] * 90),
    ],
)
def test_mpub_takes_message_line(post, consumer, topic, binary, body, messages):
    assert post(f"/mpub?topic={topic}{binary}", body) == OK
    assert bodies(consumer, len(messages)) == messages
    consumer.quiet()


@pytest.mark.parametrize("body", [b"", b"\n", b"\n\n\n"])
def test_mpub_of_nothing_is_fine_and_makes_topic(post, topic, stats, body):
    assert post(f"/mpub?topic={topic}", body) == OK
    assert stats(topic)["message_count"] == 0


def test_mpub_ignores_defer(post, consumer, topic):
    assert post(f"/mpub?topic={topic}&defer=nonsense", b"m") == OK
    assert bodies(consumer, 1) == [b"m"]


def test_line_of_exactly_message_limit_is_taken_and_one_byte_more_is_not(post, topic, stats):
    assert post(f"/mpub?topic={topic}", b"a\n" + b"m" * MAX_MSG) == OK
    assert post(f"/mpub?topic={topic}", b"a\n" + b"m" * (MAX_MSG + 1)) == refused(413, "MSG_TOO_BIG")
    assert stats(topic)["message_count"] == 2  # all or nothing


@pytest.mark.parametrize(("path", "limit"), [("pub", MAX_MSG), ("mpub", MAX_BODY)])
@pytest.mark.parametrize("query", ["?topic=declared", ""])  # checked before the topic
def test_body_declared_too_long_is_refused_before_it_comes(nsqd, path, limit, query):
    with closing(http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=10)) as client:
        client.putrequest("POST", f"/{path}{query}")
        client.putheader("Content-Length", str(limit + 1))
        client.endheaders()
        answer = client.getresponse()

        assert answer.status == 413
        assert (b"MSG_TOO_BIG" if path == "pub" else b"BODY_TOO_BIG") in answer.read()


def test_mpub_body_of_exactly_limit_is_taken_and_one_byte_more_is_not(post, topic, stats):
    lines = (b"m" * (MAX_MSG - 1) + b"\n") * 5
    assert len(lines) == MAX_BODY
    assert post(f"/mpub?topic={topic}", lines) == OK
    assert post(f"/mpub?topic={topic}", lines + b"x") == refused(413, "BODY_TOO_BIG")
    assert post(f"/mpub?topic={topic}", iter([lines])) == OK
    assert post(f"/mpub?topic={topic}", iter([lines, b"x"])) == refused(413, "BODY_TOO_BIG")
    assert stats(topic)["message_count"] == 10


@pytest.mark.parametrize("binary", ["true", "1", "TRUE", "yes", ""])
def test_binary_is_enabled_by_unknown_words(post, consumer, topic, binary):
    assert post(f"/mpub?topic={topic}&binary={binary}", batch(b"a\nb", b"c")) == OK
    assert bodies(consumer, 2) == [b"a\nb", b"c"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "BAD_BODY"),
        (b"\0\0", "BAD_BODY"),
        (size(0), "BAD_BODY"),
        (size(-1), "BAD_BODY"),
        (size((MAX_BODY - 4) // 5 + 1), "BAD_BODY"),
        (size(1), "BAD_MESSAGE"),
        (size(1) + b"\0\0", "BAD_MESSAGE"),
        (size(1) + size(0), "BAD_MESSAGE"),
        (size(1) + size(-1), "BAD_MESSAGE"),
        (size(1) + size(3) + b"ab", "BAD_MESSAGE"),
        (size(2) + sized(b"ab"), "BAD_MESSAGE"),
        (size(2) + sized(b"ab") + size(0), "BAD_MESSAGE"),
        (size(1) + size(MAX_MSG + 1), "BAD_MESSAGE"),
    ],
)
def test_bad_binary_mpub_publishes_nothing(post, topic, stats, body, code):
    assert post(f"/mpub?topic={topic}&binary=true", body) == refused(413, code)
    assert stats(topic)["message_count"] == 0


def test_bytes_after_the_last_message_of_binary_mpub_are_ignored(post, consumer, topic):
    assert post(f"/mpub?topic={topic}&binary=true", batch(b"m") + b"surplus") == OK
    assert bodies(consumer, 1) == [b"m"]
    consumer.quiet()


def test_publisher_over_http_is_no_producer_of_statistics(post, nsqd, topic):
    assert post(f"/pub?topic={topic}", b"m") == OK
    assert topic not in str(nsqd.get("/stats?format=json")["producers"])


# --- clients that send ahead


def request(topic, body):
    head = f"POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def answered(sock, count):
    """Whether so many publishes are answered with OK, and nothing else comes before."""
    found = 0
    rest = b""
    while found < count:
        data = sock.recv(1 << 20)
        assert data, "closed by nsqd"
        *whole, rest = (rest + data).split(b"\r\n\r\nOK")
        assert all(head.startswith(b"HTTP/1.1 200 OK\r\n") for head in whole)
        found += len(whole)
    return found == count and not rest


def test_requests_sent_ahead_are_answered(cluster):
    # As by a load balancer with a full queue. The size limit of a message is not the limit of what may wait.
    nsqd = cluster.nsqd("--max-msg-size=100000000")
    one, total = request("ahead", b"x" * 2000), 20_000
    with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=10) as sock:
        sender = threading.Thread(target=lambda: [sock.sendall(one * 100) for _ in range(total // 100)])
        sender.start()
        # Wait until everything is sent or nsqd reads no more.
        sender.join(1)
        assert answered(sock, total)
        sender.join()

    assert topic_stats(nsqd, "ahead")["message_count"] == total


def test_client_that_does_not_read_its_answers_is_not_read_either(nsqd, topic, stats):
    one = request(topic, b"x")
    burst = one * 1000
    with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=1) as sock:
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 128 << 20:
                sent += sock.send(burst[sent % len(burst) :])
        assert 0 < stats(topic)["message_count"] < sent // len(one)

        # The client gets every answer when it reads again.
        sock.settimeout(10)
        assert answered(sock, sent // len(one))
    assert stats(topic)["message_count"] == sent // len(one)
