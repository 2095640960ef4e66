"""Round trips on many connections: each request counts one answer, however the answers are split."""

import socket
import threading
import time

import pytest

from bench.load import OK_FRAME, LoadError
from bench.many import is_http_ok, is_ok_frame, round_trips

REQUEST = b"PUB t\n\x00\x00\x00\x01x"


class Answering(threading.Thread):
    """The other side of several connections: answers each request with the given pieces."""

    def __init__(self, connections: int, pieces: list[bytes]) -> None:
        super().__init__()
        self.pieces = pieces
        self.requests = 0
        pairs = [socket.socketpair() for _ in range(connections)]
        self.near = [near for near, _ in pairs]
        self.far = [far for _, far in pairs]
        self.start()

    def run(self) -> None:
        alive = list(self.far)
        while alive:
            for far in list(alive):
                if not far.recv(len(REQUEST), socket.MSG_WAITALL):
                    alive.remove(far)
                    continue
                self.requests += 1
                for piece in self.pieces:
                    far.sendall(piece)

    def end(self) -> None:
        for one in self.near:
            one.close()
        self.join()
        for one in self.far:
            one.close()


@pytest.mark.parametrize("pieces", [[OK_FRAME], [OK_FRAME[:3], OK_FRAME[3:9], OK_FRAME[9:]]])
def test_as_many_are_answered_as_were_asked_for(pieces):
    other = Answering(1, pieces)
    try:
        assert round_trips(other.near, [REQUEST], is_ok_frame, 25, time.monotonic() + 60) == 25
    finally:
        other.end()
    assert other.requests == 25


def test_when_the_time_is_up_what_is_under_way_is_still_counted():
    other = Answering(1, [OK_FRAME])
    try:
        assert round_trips(other.near, [REQUEST], is_ok_frame, 1000, time.monotonic() - 1) == 1
    finally:
        other.end()
    assert other.requests == 1


@pytest.mark.parametrize("pieces", [[b"\x00" * 3000], [b"E_BAD", b"x" * 2500]])
def test_another_answer_than_ok_is_an_error(pieces):
    other = Answering(1, pieces)
    try:
        with pytest.raises(LoadError, match="expected OK"):
            round_trips(other.near, [REQUEST], is_ok_frame, 5, time.monotonic() + 60)
    finally:
        other.end()


def test_http_answers_are_told_by_status_and_body():
    assert is_http_ok(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
    assert not is_http_ok(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nOK")
    assert not is_http_ok(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nO")
