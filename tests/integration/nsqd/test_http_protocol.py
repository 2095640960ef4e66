"""Section 4 and 4.1: HTTP itself, the shape of replies, and the answers to requests without a handler."""

import http.client
import socket

import pytest

NSQ = "nsq; version=1.0"
JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


@pytest.fixture
def http_connection(nsqd):
    connection = http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=10)
    yield connection
    connection.close()


@pytest.fixture
def ask(http_connection):
    """One request on the connection of this test; the answer has its body in ``text``."""

    def ask(method, path, body=None):
        http_connection.request(method, path, body)
        response = http_connection.getresponse()
        response.text = response.read()
        return response

    return ask


@pytest.fixture
def raw(nsqd):
    """Send bytes and return all that comes back until nsqd closes."""

    def raw(data):
        with socket.create_connection(("127.0.0.1", nsqd.http_port), timeout=10) as client:
            client.sendall(data)
            pieces = []
            while piece := client.recv(65536):
                pieces.append(piece)
            return b"".join(pieces)

    return raw


def header(response, *names):
    return tuple(response.getheader(name) for name in names)


# --- replies


def test_text_reply_names_api_version(ask, topic):
    response = ask("POST", f"/pub?topic={topic}", b"m")
    assert header(response, "X-Nsq-Content-Type", "Content-Type") == (NSQ, TEXT)
    assert response.text == b"OK"


def test_empty_reply_has_length_and_no_type(ask, topic):
    response = ask("POST", f"/topic/create?topic={topic}")
    assert header(response, "X-Nsq-Content-Type", "Content-Type", "Content-Length") == (NSQ, None, "0")


@pytest.mark.parametrize("path", ["/info", "/stats?format=json", "/config/mem_queue_size"])
def test_structure_is_json(ask, path):
    assert header(ask("GET", path), "X-Nsq-Content-Type", "Content-Type") == (NSQ, JSON)


def test_error_is_json_with_one_key(ask):
    response = ask("POST", "/topic/create")
    assert (response.status, response.text) == (400, b'{"message":"MISSING_ARG_TOPIC"}')
    assert header(response, "X-Nsq-Content-Type", "Content-Type") == (NSQ, JSON)


def test_ping_is_plain_text(ask):
    response = ask("GET", "/ping")
    assert (response.status, response.text) == (200, b"OK")
    assert header(response, "X-Nsq-Content-Type", "Content-Type") == (None, TEXT)


def test_api_header_is_spelled_as_the_original_spells_it(raw):
    answer = raw(b"GET /info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"\r\nX-Nsq-Content-Type: nsq; version=1.0\r\n" in answer


# --- routing


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/", "/nope", "/config", "/config/", "/config/a/b", "/pub/x", "/put", "/mput"]
)
def test_unknown_path_is_not_found(ask, method, path):
    response = ask(method, path)
    assert (response.status, response.text) == (404, b'{"message":"NOT_FOUND"}')
    assert header(response, "X-Nsq-Content-Type", "Content-Type") == (NSQ, JSON)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/ping", "GET, HEAD, OPTIONS"),
        ("HEAD", "/info", "GET, OPTIONS"),
        ("GET", "/pub", "OPTIONS, POST"),
        ("PUT", "/mpub", "OPTIONS, POST"),
        ("GET", "/topic/create", "OPTIONS, POST"),
        ("DELETE", "/channel/delete", "OPTIONS, POST"),
        ("POST", "/config/log_level", "GET, OPTIONS, PUT"),
    ],
)
def test_known_path_with_another_method_says_which_are_allowed(ask, method, path, allow):
    response = ask(method, path)
    assert response.status == 405
    assert response.getheader("Allow") == allow
    assert response.text == (b"" if method == "HEAD" else b'{"message":"METHOD_NOT_ALLOWED"}')


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/ping", "GET, HEAD, OPTIONS"), ("/pub", "OPTIONS, POST"), ("/config/x", "GET, OPTIONS, PUT")],
)
def test_options_are_answered(ask, path, allow):
    response = ask("OPTIONS", path)
    assert (response.status, response.getheader("Allow"), response.text) == (200, allow, b"")


@pytest.mark.parametrize(
    ("method", "path", "status", "location"),
    [
        ("GET", "/ping/", 301, "/ping"),
        ("GET", "//ping", 301, "/ping"),
        ("GET", "/PING", 301, "/ping"),
        ("GET", "/stats/?format=json", 301, "/stats?format=json"),
        ("GET", "/topic/../ping", 301, "/ping"),
        ("POST", "/pub/?topic=a", 307, "/pub?topic=a"),
        ("POST", "/TOPIC/create?topic=q&x=%20y", 307, "/topic/create?topic=q&x=%20y"),
        ("POST", "/topic//create?topic=z", 307, "/topic/create?topic=z"),
    ],
)
def test_another_spelling_of_path_is_redirected(ask, method, path, status, location):
    response = ask(method, path)
    assert (response.status, response.getheader("Location")) == (status, location)


def test_escaped_path_is_the_same_path(ask):
    assert ask("GET", "/%70ing").text == b"OK"


def test_whole_url_may_stand_in_request_line(ask):
    assert ask("GET", "http://nsqd.example:4151/ping").text == b"OK"
    assert ask("GET", "http://nsqd.example:4151/stats?format=json&topic=none").status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/debug/pprof/"),
        ("GET", "/debug/pprof/heap"),
        ("PUT", "/debug/setblockrate?rate=1"),
        ("POST", "/debug/freememory"),
    ],
)
def test_profiler_of_originals_runtime_is_not_there(ask, method, path):
    assert ask(method, path).status == 404


# --- connections


def test_http_connection_serves_several_requests(ask, http_connection, topic):
    for _ in range(3):
        assert ask("POST", f"/pub?topic={topic}", b"m").status == 200
        ours = http_connection.sock
        assert ask("GET", "/nope").status == 404
        assert ask("POST", f"/topic/create?topic={topic}", b"an unread body").status == 200
        assert http_connection.sock is ours


def test_pipelined_requests_are_answered_in_order(raw, topic):
    answer = raw(
        b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n"
        b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    statuses = [line for line in answer.split(b"\r\n") if b"HTTP/1.1" in line]
    assert [status.split(b"HTTP/1.1 ")[1][:3] for status in statuses] == [b"200", b"404", b"200"]


def test_http_1_0_is_spoken(raw):
    answer = raw(b"GET /ping HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.")
    assert answer.endswith(b"\r\n\r\nOK")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\0\1\2\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /ping HTTP/2.0\r\nHost: x\r\n\r\n", b"505"),
        (b"GET /ping HTTP/9.9\r\nHost: x\r\n\r\n", b"400"),  # Go's: 505
        (b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"POST /pub?topic=a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /pub?topic=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nabc", b"400"),  # Go's: 501
        (
            b"GET /ping HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
            b"431",
        ),  # Go's: from 1 MiB on
        (b"GET /ping HTTP/1.1\r\nHost x\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"400"),
    ],
    # Only the first 20 bytes, because one request is long.
    ids=lambda value: value[:20] if isinstance(value, bytes) else None,
)
def test_malformed_http_is_refused_with_originals_status(nsqd, raw, request_bytes, status):
    answer = raw(request_bytes)
    assert answer.split(b" ", 2)[1] == status
    assert answer.partition(b"\r\n\r\n")[2]  # the body has a sentence
    assert nsqd.request("GET", "/ping") == (200, b"OK")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\0\1\2\r\n\r\n",
        b"FOO /ping HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /ping HTTP/1.1\nHost: x\n\n",
        b"POST /pub?topic=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_malformed_http_closes_connection_without_traceback(nsqd, raw, request_bytes):
    before = len(nsqd.logs())
    assert raw(request_bytes).split(b" ", 2)[1] == b"400"
    assert "Traceback" not in nsqd.logs()[before:]
    assert nsqd.request("GET", "/ping") == (200, b"OK")


def test_body_that_is_refused_unread_ends_connection(ask, raw, topic):
    head = b"POST /pub?topic=a HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n"
    assert b'{"message":"MSG_TOO_BIG"}' in raw(head + b"m" * 100_000)


def test_requests_are_logged_but_for_publishes(nsqd, ask, topic):
    before = len(nsqd.logs())
    ask("POST", f"/pub?topic={topic}", b"m")
    ask("GET", f"/stats?topic={topic}")
    said = nsqd.logs()[before:]
    assert f" INFO: 200 GET /stats?topic={topic} (127.0.0.1:" in said
    assert "/pub" not in said
