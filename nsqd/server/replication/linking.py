"""The home's connection to one keeper: made, used, and made again."""

import asyncio
import os
import random
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from nsqcore.process.addresses import split_host_port
from nsqcore.process.listen import set_keepalive
from nsqcore.process.logs import Log
from nsqcore.process.tls import reason as tls_reason
from nsqd.log.disk import Disk
from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import StartTls
from nsqd.replication.framing import MAGIC, encode
from nsqd.replication.home import Home
from nsqd.replication.home_link import HomeLink
from nsqd.replication.streams import ReadJob
from nsqd.server.clock import now_ns

_CONNECT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_START_TLS: Final = encode(StartTls())
# The most pieces that the system takes in one call.
_MOST_PIECES: Final = 1024


class LinkFailed(Exception):
    """There is no connection; the text says why."""


def behind(pieces: list[bytes], size: int) -> list[bytes]:
    """What is left of the pieces after the first *size* bytes."""
    for place, piece in enumerate(pieces):
        if size < len(piece):
            return [piece[size:], *pieces[place + 1 :]] if size else pieces[place:]
        size -= len(piece)
    return []


class KeeperAtWork(asyncio.Protocol):
    """A connection to a keeper; the link decides, this class moves bytes and has files read."""

    def __init__(self, pool: ThreadPoolExecutor, disk: Disk, *, plain: bool) -> None:
        """*plain*: the connection is not encrypted."""
        # On an unencrypted connection bytes are sent past the transport, directly to its socket.
        self._plain = plain
        self._socket = -1
        self.link: HomeLink | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.upgrade: asyncio.Future[bool] | None = None
        self.transport: asyncio.Transport | None = None
        self._pool = pool
        self._disk = disk
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # The link bounds the bytes under way, so writing is never paused here.
        self.transport.set_write_buffer_limits(high=1 << 30)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock)
            self._socket = sock.fileno()

    def data_received(self, data: bytes) -> None:
        if self.link is None:
            if self.upgrade is not None and not self.upgrade.done():
                self.upgrade.set_result(data == _START_TLS)
            return
        self.link.receive(data, now_ns())
        self.go_on()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.link is not None:
            self.link.end(str(exc) if exc is not None else "the keeper has closed the connection")
        if self.upgrade is not None and not self.upgrade.done():
            self.upgrade.set_result(False)
        if not self.closed.done():
            self.closed.set_result(None)

    def go_on(self) -> None:
        """Send waiting frames, and begin the reads that the link wants."""
        link, transport = self.link, self.transport
        if link is None:
            return
        for job in link.jobs():
            future = self._loop.run_in_executor(self._pool, job.run, self._disk)
            future.add_done_callback(lambda done, job=job: self._ended(job, done))  # type: ignore[misc]
        if transport is None:
            return
        out = link.flush(now_ns())
        if out:
            self._send(transport, out)
        if link.closing:
            transport.close()

    def _send(self, transport: asyncio.Transport, out: list[bytes]) -> None:
        """Send the pieces as they are: a transport would first join them to one."""
        if self._plain and not (transport.get_write_buffer_size() or transport.is_closing()):
            try:
                sent = os.writev(self._socket, out[:_MOST_PIECES])
            except OSError:
                # The socket takes nothing at the moment; if there is an error, the transport finds it.
                sent = 0
            out = behind(out, sent)
        if out:
            transport.writelines(out)

    def _ended(self, job: ReadJob, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if self.link is None:
            return
        if error is not None and not isinstance(error, OSError):
            raise error
        self.link.ended(job, error, now_ns())
        self.go_on()


class Linking:
    """Keeps up the connection to one keeper, in a task."""

    def __init__(
        self,
        home: Home,
        appointed: Appointed,
        log: Log,
        pool: ThreadPoolExecutor,
        disk: Disk,
        *,
        tls: ssl.SSLContext | None,
        heard: Callable[[Appointed, str], None] = lambda _appointed, _identity: None,
        visit: bool = False,
    ) -> None:
        """*tls* is used if given; *heard* is called with the identity that answers at the keeper's address.

        A *visit* is a connection to a former keeper.
        """
        self.visit = visit
        self.appointed = appointed
        self.connection: KeeperAtWork | None = None
        # Why there is no connection; empty while there is one.
        self.problem = "not connected yet"
        self.refused = 0
        # Whether the keeper has welcomed us on the last connection.
        self.met_once = False
        # Set while the home is handed over to this keeper: returns the bytes that it would have to take.
        self.offers: Callable[[], int] | None = None
        self._home = home
        self._log = log
        self._pool = pool
        self._disk = disk
        self._tls = tls
        self._heard = heard

    def hand_over(self, size: Callable[[], int]) -> None:
        """Offer this keeper everything, on this connection and each later one."""
        self.offers = size
        self.refused = 0
        connection = self.connection
        if connection is not None and connection.link is not None:
            connection.link.offer(size())
            connection.go_on()

    async def run(self) -> None:
        """Connect, and reconnect after each end, until cancelled."""
        pause = _FIRST_PAUSE_S
        while True:
            problem = await self._once()
            if problem != self.problem:
                self._log.warning("KEEPER(%s): %s", self.appointed.address, problem)
            self.problem = problem
            if self.met_once and not self.refused:
                pause = _FIRST_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _once(self) -> str:
        """Run one connection from its beginning to its end; returns why it ended."""
        self.met_once, self.refused = False, 0
        try:
            async with asyncio.timeout(_CONNECT_S):
                connection = await self._connect()
        except TimeoutError:
            return f"no answer within {_CONNECT_S:g} s"
        except ssl.SSLError as error:
            return tls_reason(error)
        except (OSError, ValueError, LinkFailed) as error:
            return str(getattr(error, "strerror", None) or error).lower()
        link = connection.link = HomeLink(self._home, self.appointed, now_ns(), visit=self.visit)
        if self.offers is not None:
            link.offer(self.offers())
        self.connection = connection
        connection.go_on()
        try:
            await connection.closed
        finally:
            self.connection = None
            link.end("the node stops")
            if connection.transport is not None:
                connection.transport.abort()
        if link.appointed.number != self.appointed.number:
            self.appointed = link.appointed
        self.refused = link.refused
        self.met_once = link.keeper is not None
        return link.reason

    async def _connect(self) -> KeeperAtWork:
        """Connect to the keeper, with TLS if wanted. Raises OSError, ValueError and LinkFailed."""
        host, port = split_host_port(self.appointed.address)
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            lambda: KeeperAtWork(self._pool, self._disk, plain=self._tls is None), host, int(port)
        )
        try:
            if self._tls is None:
                transport.write(MAGIC)
                return connection
            connection.upgrade = loop.create_future()
            transport.write(MAGIC + _START_TLS)
            if not await connection.upgrade:
                raise LinkFailed("the keeper does not begin TLS")
            upgraded = await loop.start_tls(transport, connection, self._tls, server_hostname=host)
            if upgraded is None:
                raise LinkFailed("the keeper has closed the connection")
            connection.transport = upgraded
        except BaseException:
            transport.abort()
            raise
        return connection

    def met(self) -> None:
        """Report who answers, once that is known."""
        connection = self.connection
        if connection is None or connection.link is None:
            return
        link = connection.link
        if link.appointed.number != self.appointed.number:
            self.appointed = link.appointed
        if link.keeper is not None and self.problem:
            self.problem = ""
            self._log.info(
                "KEEPER(%s): connected, appointment %d", self.appointed.address, self.appointed.number
            )
            identity = link.keeper.identity.hex()
            if not self.visit:
                self._heard(self.appointed, identity)
            self.appointed = Appointed(self.appointed.number, self.appointed.address, identity)
