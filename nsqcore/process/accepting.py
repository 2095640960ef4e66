"""Accepts connections, also while the system is short of descriptors or memory.

When accepting fails, uvloop closes the listening socket permanently and silently, and asyncio writes one
traceback for each place in the backlog. Therefore the daemons accept themselves: a failure is logged once,
accepting pauses, and clients wait in the kernel's backlog. Existing connections continue.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nsqcore.process.logs import Log

if TYPE_CHECKING:
    from nsqcore.process.tls_layer import Handshake

# How many connections are accepted in one turn; then the event loop serves those it has.
ACCEPTS_PER_TURN: Final = 64
# Long enough to cost nothing while accepting fails, short enough that clients hardly wait when it works.
PAUSE_S: Final = 0.2


class Acceptor:
    """Makes a connection of the factory's protocol for every client of one listening socket."""

    def __init__(
        self,
        kind: str,
        sock: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        log: Log,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """*kind* names the listener in the log."""
        self._kind = kind
        self._sock = sock
        self._factory = factory
        self._log = log
        self._ssl_context = ssl_context
        self._loop = asyncio.get_running_loop()
        # Connections that are being made.
        self._making: set[asyncio.Task[None]] = set()
        self._handshakes: set[Handshake] = set()
        self._pause_timer: asyncio.TimerHandle | None = None
        # When accepting began to fail, on the loop's clock.
        self._failing_since: float | None = None

    def start(self) -> None:
        self._pause_timer = None
        self._loop.add_reader(self._sock, self._accept)

    async def close(self) -> None:
        """Accept no more, and cancel unfinished handshakes."""
        self._loop.remove_reader(self._sock)
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
        making = list(self._making)
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)
        for handshake in list(self._handshakes):
            handshake.abort()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                self._caught_up()
                return
            except ConnectionAbortedError:
                # This client has already left.
                continue
            except OSError as error:
                self._pause(error)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._make(connection), name=f"{self._kind} accept")
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    def _pause(self, error: OSError) -> None:
        """Leave new clients in the backlog for a moment."""
        if self._failing_since is None:
            self._failing_since = self._loop.time()
            self._log.error("%s: accept failed, new clients have to wait - %s", self._kind, error.strerror)
        self._loop.remove_reader(self._sock)
        self._pause_timer = self._loop.call_later(PAUSE_S, self._try_again)

    def _try_again(self) -> None:
        self.start()
        # All waiting clients may be accepted before the failure: no later client would show its end.
        self._accept()

    def _caught_up(self) -> None:
        """No client waits any longer: the shortage is over, which a single accepted client does not prove."""
        if self._failing_since is not None:
            failed_s = self._loop.time() - self._failing_since
            self._failing_since = None
            self._log.warning("%s: accepting again after %.1f s", self._kind, failed_s)

    async def _make(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        context = self._ssl_context
        if context is None:
            return self._factory()
        # It imports `listen`, which imports this module.
        from nsqcore.process.tls_layer import Handshake

        return Handshake(self._kind, self._factory, self._log, context, self._handshakes)
