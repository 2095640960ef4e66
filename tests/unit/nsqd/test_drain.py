"""The command line of the drain, and the command with a node that answers badly."""

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.ports import free_port
from nsqd.decommission import DecommissionOptions, decommission
from nsqd.drain import DrainError, DrainOptions, _answer, _refusal, ask_node, drain, parse_arguments

WAITING = {"draining": True, "drained": False, "remaining": 1, "topics": []}
DRAINED = {"draining": True, "drained": True, "remaining": 0, "topics": []}


@contextmanager
def node(*answers: dict | None) -> Iterator[tuple[DrainOptions, list[str]]]:
    """A node that gives these answers, the last one again and again; None drops the connection.

    What was asked is collected.
    """
    asked: list[str] = []
    left = list(answers)

    class Node(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            state = left.pop(0) if len(left) > 1 else left[0]
            if state is None:
                return  # without a status line
            body = json.dumps(state).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Node)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield DrainOptions(f"127.0.0.1:{server.server_port}", 60.0, 0.0, 3600.0), asked
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def test_node_that_does_not_answer_once_is_asked_again():
    with node(WAITING, WAITING, None, WAITING, DRAINED) as (options, asked):
        drain(options)

    assert asked == ["POST /drain", *["GET /drain"] * 4]


def test_node_that_never_answers_again_ends_command_when_time_is_up():
    with node(None) as (options, asked), pytest.raises(DrainError, match=r"GET http://.*/drain: "):
        _answer(partial(ask_node, options, "/drain"), time.monotonic() + 3, "GET")

    assert len(asked) > 1


def test_drain_that_somebody_ended_ends_command():
    with (
        node(WAITING, WAITING | {"draining": False}) as (options, _),
        pytest.raises(DrainError, match="cancelled, or ended by a restart; the node accepts publishes"),
    ):
        drain(options)


def test_process_that_is_gone_is_not_waited_for():
    options = DrainOptions(f"127.0.0.1:{free_port()}", 3600.0, 0.0, 3600.0)

    with pytest.raises(DrainError, match=r"GET http://.*refused"):
        _answer(partial(ask_node, options, "/drain"), math.inf, "GET")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            b'{"message": "TLS_REQUIRED", "https_port": 4152}',
            "TLS_REQUIRED: use --https-address with port 4152",
        ),
        (b'{"message":"AUTH_REQUIRED"}', "AUTH_REQUIRED"),
        (b"<html>\n\x1b[31mnot nsqd\n", "<html>  [31mnot nsqd"),
        (b"[1]", "[1]"),
    ],
)
def test_refusal_is_one_line(body, reason):
    assert _refusal(body) == reason


def test_drain_without_flags_is_of_this_machine_within_five_minutes():
    assert parse_arguments([]) == DrainOptions("127.0.0.1:4151", 300.0, 0.0, 60.0)


def test_durations_are_written_as_for_nsqd():
    options = parse_arguments(["--timeout=1m30s", "--grace=500ms", "--poll-interval=0"])

    assert (options.timeout_s, options.grace_s, options.poll_interval_s) == (90.0, 0.5, 0.0)


def test_bad_duration_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--timeout=soon"])

    assert ended.value.code == 2
    assert "--timeout" in capsys.readouterr().err


MOVING = {
    "decommissioning": True,
    "done": False,
    "waits_for": "a replica",
    "logs": 1,
    "remaining": 3,
    "transferred": 0,
}


@pytest.mark.parametrize(
    ("answers", "seconds", "sentence"),
    [
        ((MOVING, None, MOVING | {"done": True}), 30, ""),
        (
            (MOVING, MOVING | {"decommissioning": False}),
            30,
            "it was cancelled, or the node has started again",
        ),
        ((MOVING,), 0.7, "the time is up: 3 messages remain, it waits for a replica"),
        ((MOVING, None), 0.4, "closed connection without response"),
    ],
)
def test_decommission_waits_through_lost_answer_and_says_why_it_ends(answers, seconds, sentence):
    with node(*answers) as (options, _asked):
        given = DecommissionOptions(options.http_address, seconds, 0)
        if not sentence:
            decommission(given)
            return
        with pytest.raises(DrainError, match=sentence):
            decommission(given)
