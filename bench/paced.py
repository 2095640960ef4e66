"""Publishing at a fixed rate, however slow the server is; each message contains its due moment.

A load that waits for answers sends less to a slow server, and so hides how long clients would wait
(coordinated omission). Here the moment at which message *n* is due is fixed before the start. The message is
sent then, or as soon afterwards as this process can, and its latency always counts from that moment.
"""

import select
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from bench.load import OK_FRAME, LoadError
from nsqclient.wire.message import FRAME_OVERHEAD

DUE_SIZE: Final = 8
# A server that reads nothing for this long is too far behind to wait for.
SEND_S: Final = 2


class Pacer:
    """Sends messages *period_ns* apart, taking turns with several connections, and times each answer."""

    def __init__(self, conns: list[socket.socket], head: bytes, tail: bytes, period_ns: int) -> None:
        """A message is *head*, its due moment in 8 bytes, and *tail*."""
        self._conns = conns
        self._head, self._tail = head, tail
        self._period_ns = period_ns
        for conn in conns:
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))
        self._unanswered: dict[socket.socket, deque[int]] = {conn: deque() for conn in conns}
        self._partial: dict[socket.socket, int] = dict.fromkeys(conns, 0)

    def run(self, start: int, total: int, give_up: int, answered: Callable[[int], None]) -> None:
        """Send *total* messages from *start* on; call *answered* with the delay of each answer in ns.

        It ends at *give_up* even if messages are not sent or answered. Moments are on the monotonic clock.
        """
        head, tail, period = self._head, self._tail, self._period_ns
        sent = turn = 0
        while sent < total:
            now = time.monotonic_ns()
            if now > give_up:
                return
            due_count = min(total, (now - start) // period + 1) - sent
            if due_count > 0:
                conn = self._conns[turn % len(self._conns)]
                turn += 1
                dues = range(start + sent * period, start + (sent + due_count) * period, period)
                try:
                    conn.sendall(b"".join([head + due.to_bytes(DUE_SIZE, "big") + tail for due in dues]))
                except BlockingIOError:  # the server does not even read
                    return
                self._unanswered[conn].extend(dues)
                sent += due_count
                self._read(0.0, answered)
            else:
                self._read((start + sent * period - now) / 1e9, answered)
        while any(self._unanswered.values()) and time.monotonic_ns() < give_up:
            self._read(0.1, answered)

    def _read(self, seconds: float, answered: Callable[[int], None]) -> None:
        for conn in select.select(self._conns, (), (), seconds)[0]:
            data = conn.recv(1 << 16)
            now = time.monotonic_ns()
            waiting = self._unanswered[conn]
            for _ in range(self._answers(conn, data)):
                answered(now - waiting.popleft())

    def _answers(self, conn: socket.socket, data: bytes) -> int:
        """Return how many more answers *data* completes. Raises LoadError for a wrong answer."""
        have = self._partial[conn] + len(data)
        count, self._partial[conn] = divmod(have, len(OK_FRAME))
        if not data or (not self._partial[conn] and not data.endswith(b"OK")):
            raise LoadError(f"expected OK, got {data[:200]!r}")
        return count


def dues_of(data: bytearray, end: int, size: int) -> "array[int]":
    """Return when the messages in ``data[:end]``, all of *size* bytes, were due: eight strided copies."""
    stride = FRAME_OVERHEAD + size
    count = end // stride
    packed = bytearray(DUE_SIZE * count)
    for at in range(DUE_SIZE):
        packed[at::DUE_SIZE] = data[FRAME_OVERHEAD + at : end : stride]
    dues = array("Q", bytes(packed))
    dues.byteswap()
    return dues


def percentile(sorted_values: "array[int] | list[int]", share: float) -> int:
    """Return the smallest value that at least *share* of the values do not exceed."""
    at = -(-len(sorted_values) * share // 1)
    return sorted_values[max(0, int(at) - 1)]
