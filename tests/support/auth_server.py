"""A real auth server for tests, which runs in a separate thread and records the requests."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.http_sink import HttpSink, Received


def granted(
    *,
    ttl: int = 60,
    topic: str = ".*",
    channels: tuple[str, ...] = (".*",),
    permissions: tuple[str, ...] = ("subscribe", "publish"),
) -> dict[str, Any]:
    """Return an answer with one authorization."""
    return {
        "ttl": ttl,
        "identity": "anna",
        "identity_url": "http://people/anna",
        "authorizations": [{"topic": topic, "channels": channels, "permissions": permissions}],
    }


@dataclass
class AuthServer(HttpSink):
    """Answers ``status`` and ``answer``, or for a secret in ``by_secret`` the answer given there.

    Requests with a secret in ``held`` are answered when :meth:`release` is called.
    """

    answer: Any = field(default_factory=granted)
    status: int = 200
    by_secret: dict[str, Any] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    _released: threading.Event = field(default_factory=threading.Event)

    @property
    def asked(self) -> list[Received]:
        return self.received

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __exit__(self, *_: object) -> None:
        self.release()
        super().__exit__()

    def reset(self) -> None:
        """Answer again as at the beginning, and forget the requests."""
        self.release()
        self.answer, self.status, self.received = granted(), 200, []
        self.held = set()
        self._released = threading.Event()

    def release(self) -> None:
        """Answer the held requests."""
        self._released.set()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        secret = request.query.get("secret", "")
        if secret in self.held:
            await asyncio.to_thread(self._released.wait)
        answer = self.by_secret.get(secret, self.answer)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(text=text, status=self.status)


@contextmanager
def always_saying(*replies: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a server that answers one reply after the other, and the requests it got."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(10)
                    asked.append(client.recv(65536))
                    client.sendall(replies[(len(asked) - 1) % len(replies)])

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
        # Closing alone does not wake the thread that accepts.
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
