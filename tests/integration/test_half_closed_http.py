"""Probes of each daemon: clients that end their side first, as ``nc -N`` does, get an answer; HEAD works."""

import socket

import pytest

TIMES = 100


@pytest.fixture
def ask_and_end(cluster):
    def ask_and_end(daemon, head):
        """Send one request and the end of the stream; return all that comes back."""
        with socket.create_connection(("127.0.0.1", daemon.http_port), timeout=10) as client:
            client.sendall(f"{head} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
            client.shutdown(socket.SHUT_WR)
            pieces = []
            while piece := client.recv(65536):
                pieces.append(piece)
            return b"".join(pieces)

    return ask_and_end


@pytest.mark.parametrize(
    ("head", "end"),
    [("GET /ping", b"\r\n\r\nOK"), ("HEAD /ping", b"\r\n\r\n"), ("POST /topic/create?topic=t", b"\r\n\r\n")],
)
def test_nsqd_answers_who_has_ended_its_side(cluster, ask_and_end, head, end):
    nsqd = cluster.nsqd()
    answers = [ask_and_end(nsqd, head) for _ in range(TIMES)]

    assert [one.startswith(b"HTTP/1.1 200 OK\r\n") and one.endswith(end) for one in answers] == [True] * TIMES


@pytest.mark.parametrize(
    ("daemon", "path"),
    [
        ("nsqd", "/ping"),
        ("nsqd", "/metrics"),
        ("nsqd", "/stats"),
        ("nsqlookupd", "/ping"),
        ("nsqlookupd", "/metrics"),
        ("nsqadmin", "/ping"),
        ("nsqadmin", "/metrics"),
    ],
)
def test_head_is_get_without_body_and_neither_names_libraries(cluster, ask_and_end, daemon, path):
    if daemon == "nsqadmin":
        cluster.nsqlookupd()
    asked = getattr(cluster, daemon)()

    got, _, body = ask_and_end(asked, f"GET {path}").partition(b"\r\n\r\n")
    head, _, nothing = ask_and_end(asked, f"HEAD {path}").partition(b"\r\n\r\n")

    # Only these differ: statistics change at any moment, and the client's EOF may have been seen already.
    changing = (b"content-length:", b"date:", b"connection:")
    fields = [
        [line for line in one.split(b"\r\n") if not line.lower().startswith(changing)] for one in (got, head)
    ]
    assert fields[0] == fields[1]
    assert fields[0][0] == b"HTTP/1.1 200 OK"
    assert not any(line.lower().startswith(b"server:") for line in fields[0])
    assert body
    assert nothing == b""


def test_nsqlookupd_answers_who_has_ended_its_side(cluster, ask_and_end):
    lookupd = cluster.nsqlookupd()
    answers = [ask_and_end(lookupd, "GET /ping") for _ in range(TIMES)]

    assert [one.endswith(b"\r\n\r\nOK") for one in answers] == [True] * TIMES


def test_nsqadmin_answers_who_has_ended_its_side_also_for_a_whole_page(cluster, ask_and_end):
    cluster.nsqlookupd()
    admin = cluster.nsqadmin()
    answers = [ask_and_end(admin, "GET /nodes") for _ in range(TIMES)]

    assert [one.rstrip().endswith(b"</html>") for one in answers] == [True] * TIMES
