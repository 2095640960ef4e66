"""Measures how long other clients wait while the server works, with a steady stream of small requests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from typing import Final

from bench.load import LoadError, connect, encode_pub
from bench.paced import DUE_SIZE, Pacer
from bench.server import Server
from bench.workers import Worker, start_workers

EVERY_NS: Final = 2_000_000
PATIENCE_S: Final = 60.0
# The end is checked after this many requests.
_AT_ONCE: Final = 50


class Prober:
    """Publishes 16 bytes every two milliseconds and remembers the longest wait for an answer.

    It continues to send while an answer is late, as many clients would; a wait counts from the due moment of
    the request.
    """

    def __init__(self) -> None:
        # In shared memory, written by the requesting process and read by the measuring one.
        self._worst = RawArray("q", 1)
        self._answers = RawArray("q", 1)

    def forget(self) -> None:
        self._worst[0] = 0

    def worst_ms(self) -> float:
        """Return the longest wait since :meth:`forget`, including requests that were still pending."""
        before, deadline = self._answers[0], time.monotonic() + PATIENCE_S
        while self._answers[0] < before + 2:
            if time.monotonic() > deadline:
                raise LoadError("a small publish was not answered for a minute")
            time.sleep(EVERY_NS / 1e9)
        return float(self._worst[0]) / 1e6

    def _note(self, waited_ns: int) -> None:
        self._worst[0] = max(self._worst[0], waited_ns)
        self._answers[0] += 1

    @contextmanager
    def asking(self, server: Server) -> Iterator["Prober"]:
        """Ask *server* from another process until the end of the block."""

        def work(worker: Worker) -> None:
            conn = connect(server.tcp)
            # An ephemeral topic, so that the server answers without writing.
            request = encode_pub("probe#ephemeral", b"?" * 2 * DUE_SIZE)
            pacer = Pacer([conn], request[: -2 * DUE_SIZE], request[-DUE_SIZE:], EVERY_NS)
            worker.start()
            due = time.monotonic_ns()
            while not worker.stop_requested():
                pacer.run(due, _AT_ONCE, due + int(PATIENCE_S * 1e9), self._note)
                due += _AT_ONCE * EVERY_NS

        with start_workers([work]) as crew:
            crew.begin()
            yield self
