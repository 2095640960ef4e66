"""Round trips on many connections of one process, with one request at a time on each."""

import itertools
import select
import socket
import time
from collections.abc import Callable

from bench.load import OK_FRAME, LoadError

QUIET_S = 20.0


def is_ok_frame(answer: bytes) -> bool:
    return answer == OK_FRAME


def is_http_ok(answer: bytes) -> bool:
    return answer.endswith(b"\r\n\r\nOK") and answer.startswith(b"HTTP/1.1 200 ")


def round_trips(
    conns: list[socket.socket],
    requests: list[bytes],
    complete: Callable[[bytes], bool],
    quota: int,
    deadline: float,
) -> int:
    """Send a request on every connection, and the next one on each as soon as it is answered."""
    stream = itertools.cycle(requests)
    poller = select.epoll()
    by_number = {conn.fileno(): conn for conn in conns}
    partial: dict[int, bytes] = {}
    answered = 0
    try:
        for conn in conns:
            poller.register(conn.fileno(), select.EPOLLIN)
            conn.sendall(next(stream))
        under_way = len(conns)
        while under_way:
            ready = poller.poll(QUIET_S)
            if not ready:
                raise LoadError(f"{under_way} requests were not answered")
            over = time.monotonic() > deadline
            for number, _ in ready:
                conn = by_number[number]
                answer = conn.recv(4096)
                if not complete(answer):
                    before = partial.pop(number, b"")
                    answer = before + answer
                    if not complete(answer):
                        if len(answer) > 2000 or len(answer) == len(before):
                            raise LoadError(f"expected OK, got {answer[:300]!r}")
                        partial[number] = answer
                        continue
                answered += 1
                if over or answered + under_way > quota:
                    under_way -= 1
                else:
                    conn.sendall(next(stream))
    finally:
        poller.close()
    return answered
