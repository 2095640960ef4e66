"""A TCP connection that is held up after a number of bytes, or at a piece with certain bytes."""

import select
import socket
import threading
from contextlib import suppress
from typing import Self

_PIECE = 65_536


class Gate:
    """Forwards to a port; bytes of clients are held up without loss until :meth:`open`."""

    def __init__(self, port: int, *, most: int | None = None, before: bytes = b"") -> None:
        """Hold up the bytes after *most* bytes, or a piece that contains *before*."""
        self._port, self._most, self._before = port, most, before
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopped, self._open = threading.Event(), threading.Event()
        # Number of connections so far; those up to ``_cut`` are cut.
        self._count = self._cut = 0
        # Set as soon as something is held up.
        self.holds = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def open(self) -> None:
        """Forward everything from now on, also the bytes held up so far."""
        self._open.set()

    def cut(self) -> None:
        """End the existing connections; their held bytes never arrive. Later connections go through."""
        self._cut = self._count

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._open.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            if select.select([self._listener], [], [], 0.05)[0]:
                client, _ = self._listener.accept()
                self._count += 1
                thread = threading.Thread(target=self._forward, args=(client, self._count))
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket, number: int) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
            passed, held = 0, b""
            while not self._stopped.is_set() and number > self._cut:
                if held and self._open.is_set():
                    server.sendall(held)
                    held = b""
                # While a piece is held up, nothing more is read from the client.
                for source in select.select([server] if held else [client, server], [], [], 0.05)[0]:
                    piece = source.recv(_PIECE)
                    if not piece:
                        return
                    if source is server:
                        client.sendall(piece)
                        continue
                    passed += len(piece)
                    if self._is_to_be_held(passed, piece):
                        held = piece
                        self.holds.set()
                    else:
                        server.sendall(piece)

    def _is_to_be_held(self, passed: int, piece: bytes) -> bool:
        if self._open.is_set():
            return False
        return (self._most is not None and passed > self._most) or bool(
            self._before and self._before in piece
        )
