"""How long a server lets others wait: a connection that asks for little, again and again, while it works."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from typing import Final

from bench.crew import Worker, crew_of
from bench.load import LoadError, connect, encode_pub, expect_ok
from bench.server import Server

EVERY_S: Final = 0.002
PATIENCE_S: Final = 60.0


class Prober:
    """Publishes 16 bytes every two milliseconds and remembers the longest wait for an answer.

    A wait counts from when the question was due, so those that a late answer held up count too.
    """

    def __init__(self) -> None:
        # In shared memory: the process that asks writes, the one that measures reads.
        self._worst = RawArray("d", 1)
        self._answers = RawArray("q", 1)

    def forget(self) -> None:
        self._worst[0] = 0.0

    def worst_ms(self) -> float:
        """The longest wait since :meth:`forget`, those included that were going on a moment ago."""
        before, deadline = self._answers[0], time.monotonic() + PATIENCE_S
        while self._answers[0] < before + 2:
            if time.monotonic() > deadline:
                raise LoadError("a small publish was not answered for a minute")
            time.sleep(EVERY_S)
        return float(self._worst[0]) * 1000

    @contextmanager
    def asking(self, server: Server) -> Iterator["Prober"]:
        """Ask *server* in a process of its own until the end of the block."""

        def work(worker: Worker) -> None:
            conn = connect(server.tcp)
            # An ephemeral topic: the server has to answer, not to write.
            request = encode_pub("probe#ephemeral", b"?" * 16)
            worker.start()
            due = time.monotonic()
            while not worker.told_to_stop():
                pause = due - time.monotonic()
                if pause > 0:
                    time.sleep(pause)
                conn.sendall(request)
                expect_ok(conn)
                self._worst[0] = max(self._worst[0], time.monotonic() - due)
                self._answers[0] += 1
                due += EVERY_S

        with crew_of([work]) as crew:
            crew.begin()
            yield self
