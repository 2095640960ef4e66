"""Plain publishes are answered before aiohttp; clients see no difference, except in time."""

import socket
import threading

import pytest

from tests.support.processes import Cluster


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("front"))
    yield cluster.nsqd("--max-msg-size=1000")
    cluster.close()


@pytest.fixture
def publisher(nsqd):
    with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=10) as sock:
        yield Publisher(sock)


class Publisher:
    """Sends bytes and reads answers, each as long as its Content-Length."""

    def __init__(self, sock):
        self.sock = sock
        self.rest = b""

    def says(self, *pieces):
        for piece in pieces:
            self.sock.sendall(piece)

    def answer(self):
        """(status, headers, body)"""
        while b"\r\n\r\n" not in self.rest:
            self.more()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        length = int(headers["content-length"])
        while len(self.rest) < length:
            self.more()
        body, self.rest = self.rest[:length], self.rest[length:]
        return int(lines[0].split()[1]), headers, body

    def more(self):
        data = self.sock.recv(65536)
        assert data, "closed by nsqd"
        self.rest += data


def request(body, topic=b"t", extra=b"", path=b"/pub?topic="):
    return b"POST %b%b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (
        path,
        topic,
        extra,
        len(body),
        body,
    )


def count(nsqd, topic):
    return nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["message_count"]


def test_publishes_on_one_connection_are_answered_in_order(nsqd, publisher):
    publisher.says(b"".join(request(b"message %d" % n, topic=b"many") for n in range(50)))

    answers = [publisher.answer() for _ in range(50)]

    assert {(status, body) for status, _, body in answers} == {(200, b"OK")}
    assert count(nsqd, "many") == 50


def test_the_answer_is_the_one_aiohttp_gives(publisher):
    publisher.says(request(b"plain"), request(b"with another parameter", topic=b"t&x=1"))
    fast, slow = publisher.answer(), publisher.answer()

    assert fast[0] == slow[0] == 200
    assert fast[2] == slow[2] == b"OK"
    for name in ("content-type", "x-nsq-content-type", "content-length"):
        assert fast[1][name] == slow[1][name]
    assert "date" in fast[1]


def test_a_request_may_come_in_any_pieces(nsqd, publisher):
    whole = request(b"x" * 900, topic=b"pieces")
    publisher.says(whole[:70], whole[70:200], whole[200:])
    assert publisher.answer()[0] == 200
    publisher.says(whole + whole[:300], whole[300:])

    assert [publisher.answer()[0] for _ in range(2)] == [200, 200]
    assert count(nsqd, "pieces") == 3


LINES = b"/mpub?topic="


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b"a", [b"a"]),
        (b"a\nbb\n", [b"a", b"bb"]),
        (b"\n\na\n\n\r\nb", [b"a", b"\r", b"b"]),
        (b"\n\n", []),
        (b"x\n" * 400, [b"x"] * 400),
        (b"y" * 999 + b"\n" + b"z" * 1000, [b"y" * 999, b"z" * 1000]),  # answered by aiohttp
    ],
)
def test_a_body_of_lines_is_a_message_a_line(nsqd, publisher, connect, body, messages):
    topic = b"lines%d" % len(body)
    consumer = connect(nsqd)
    consumer.subscribe(topic.decode(), ready=1000)

    publisher.says(request(body, topic=topic, path=LINES), request(b"last", topic=topic))

    assert [publisher.answer()[::2] for _ in range(2)] == [(200, b"OK")] * 2
    found = [message.body for message in consumer.messages(len(messages) + 1)]
    assert found == [*messages, b"last"]


def test_a_line_that_is_too_long_publishes_nothing(nsqd, publisher):
    publisher.says(request(b"a\n" + b"b" * 1001, topic=b"longline", path=LINES))

    assert publisher.answer()[0] == 413
    assert count(nsqd, "longline") == 0


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (request(b""), 400, b"MSG_EMPTY"),
        (request(b"x" * 1001), 413, b"MSG_TOO_BIG"),
        (request(b"x", topic=b"bad$"), 400, b"INVALID_TOPIC"),
        (request(b"x", topic=b"t" * 65), 400, b"INVALID_TOPIC"),
        (request(b"x", topic=b"t&defer=-1"), 400, b"INVALID_DEFER"),
        (request(b"x", path=b"/pub?channel="), 400, b"MISSING_ARG_TOPIC"),
        (request(b"x", path=b"/nowhere?topic="), 404, b"NOT_FOUND"),
        (b"GET /pub?topic=t HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"METHOD_NOT_ALLOWED"),
    ],
)
def test_what_is_not_a_plain_publish_gets_the_usual_answer(publisher, sent, status, message):
    publisher.says(request(b"first a plain one"), sent)

    assert publisher.answer()[0] == 200
    answer = publisher.answer()
    assert (answer[0], answer[2]) == (status, b'{"message":"%b"}' % message)


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /pub?topic=odd HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"POST /pub?topic=odd HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
        request(b"x", topic=b"odd", extra=b"Connection: close\r\n"),
        request(b"x", topic=b"odd", extra=b"Connection: keep-alive\r\n"),
        request(b"x", topic=b"odd", path=b"/pub?defer=0&topic="),
        request(b"x", topic=b"odd", extra=b"X-Long: " + b"y" * 9000 + b"\r\n"),
    ],
)
def test_unusual_requests_publish_all_the_same(publisher, sent):
    publisher.says(sent)

    assert publisher.answer()[0] == 200


def test_a_client_that_expects_to_be_asked_for_its_body_is(publisher):
    head = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    publisher.says(head)
    while b"\r\n\r\n" not in publisher.rest:
        publisher.more()
    assert publisher.rest.startswith(b"HTTP/1.1 100 ")
    publisher.rest = publisher.rest.partition(b"\r\n\r\n")[2]

    publisher.says(b"x")

    assert publisher.answer()[0] == 200


def test_two_lengths_are_not_guessed_at(publisher):
    publisher.says(request(b"x", extra=b"Content-Length: 5\r\n"))

    assert publisher.answer()[0] == 400


def test_a_publisher_that_has_nothing_more_to_say_is_still_answered(publisher):
    publisher.says(request(b"last"))
    publisher.sock.shutdown(socket.SHUT_WR)

    assert publisher.answer()[0] == 200


def test_after_another_request_the_connection_goes_on(publisher):
    publisher.says(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", request(b"x"))

    assert [publisher.answer()[2] for _ in range(2)] == [b"OK", b"OK"]


def test_many_requests_sent_ahead_are_all_answered(tmp_path):
    # The requests are sent as fast as possible, as by a load balancer with a full queue. The size limit of a
    # message must not be the limit of what may wait on a connection.
    one, total = request(b"x" * 2000, topic=b"ahead"), 20_000
    cluster = Cluster(tmp_path)
    nsqd = cluster.nsqd("--max-msg-size=100000000")
    with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=10) as sock:
        publisher = Publisher(sock)
        sender = threading.Thread(target=lambda: [publisher.says(one * 100) for _ in range(total // 100)])
        sender.start()
        # Wait until everything is sent or nsqd reads no more.
        sender.join(1)
        answers = [publisher.answer()[0] for _ in range(total)]
        sender.join()
    taken = count(nsqd, "ahead")
    cluster.close()

    assert answers == [200] * total
    assert taken == total


@pytest.fixture
def unread(publisher):
    """How many whole requests a publisher could send without reading one answer."""
    one = request(b"x", topic=b"unread")
    burst = one * 1000
    publisher.sock.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 128 << 20:
            sent += publisher.sock.send(burst[sent % len(burst) :])
    publisher.sock.settimeout(10)
    return sent // len(one)


def test_a_client_that_does_not_read_its_answers_is_not_read_either(nsqd, publisher, unread):
    taken = count(nsqd, "unread")
    assert 0 < taken < unread

    # The client gets every answer when it reads again.
    assert {publisher.answer()[0] for _ in range(unread)} == {200}
    assert count(nsqd, "unread") - taken > 0
