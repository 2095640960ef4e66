"""A TCP proxy that stalls, cuts connections in the middle of a piece, and drops bytes on their way."""

import random
import select
import socket
import threading
import time
from typing import Self

_PIECE = 4096


class FaultyProxy:
    """Forwards to *target*; about every fiftieth piece meets a fault."""

    def __init__(self, target: tuple[str, int], *, seed: int) -> None:
        self._target = target
        self._rng = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self.faults = 0
        self.is_well = False  # no more faults from now on

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.getsockname()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            if select.select([self._listener], [], [], 0.1)[0]:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._forward, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            other = {client: server, server: client}
            try:
                while not self._stopped.is_set():
                    for source in select.select([client, server], [], [], 0.1)[0]:
                        piece = source.recv(_PIECE)
                        if not piece or not self._pass(piece, other[source]):
                            return
            except OSError:
                return

    def _pass(self, piece: bytes, to: socket.socket) -> bool:
        """Forward a piece, perhaps late or only partly; return False if the connection ends with it."""
        draw = self._rng.random()
        if draw > 0.02 or self.is_well:
            to.sendall(piece)
            return True
        self.faults += 1
        if draw > 0.01:
            time.sleep(self._rng.uniform(0.1, 1.2))
            to.sendall(piece)
            return True
        to.sendall(piece[: self._rng.randrange(len(piece) + 1)])
        return False
