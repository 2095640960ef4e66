"""The connections that this node makes to others: looked up, made, and made again."""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from nsqcore.process.addresses import split_host_port
from nsqcore.process.logs import Log
from nsqcore.process.tls import reason as tls_reason
from nsqd.replication.framing import MAGIC
from nsqd.replication.link import PeerLink
from nsqd.server.replication.connection import START_TLS, Connections, PeerConnection, peer_certificate_hash

_CONNECT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_NOT_YET: Final = "not connected yet"


class ConnectFailed(Exception):
    """There is no connection; the text says why."""


class _Connecting(PeerConnection):
    """A connection to another node, before and after TLS."""

    def __init__(self, connections: Connections, answered: Callable[[bytes], None]) -> None:
        """*answered* is called with the identity of the peer when it has proved its membership."""
        super().__init__(connections)
        self.upgrade: asyncio.Future[bool] | None = None
        self._answered = answered

    def data_received(self, data: bytes) -> None:
        if self.link is None:
            if self.upgrade is not None and not self.upgrade.done():
                self.upgrade.set_result(data == START_TLS)
            return
        is_known = bool(self.link.peer)
        super().data_received(data)
        if self.link.peer and not is_known:
            self._answered(self.link.peer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.upgrade is not None and not self.upgrade.done():
            self.upgrade.set_result(False)
        super().connection_lost(exc)


class Connector:
    """Keeps up the connection to one node, in a task.

    *expected* is the identity of the wanted node; empty for an address at which any member may answer.
    *identity* is that of the node that answered last.
    """

    def __init__(
        self,
        expected: bytes,
        address: str,
        connections: Connections,
        log: Log,
        make_link: Callable[[bytes, bytes], PeerLink],
        look_up: Callable[[bytes], Awaitable[list[str]]],
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """*make_link* gets the expected identity and the certificate hash; *look_up* finds addresses."""
        self.expected = expected
        self.identity = expected
        self.address = address
        self.connection: PeerConnection | None = None
        # Why there is no connection; empty while there is one.
        self.problem = _NOT_YET
        # The code with which the last connection was refused.
        self.refused = 0
        self._connections = connections
        self._log = log
        self._make_link = make_link
        self._look_up = look_up
        self._tls = tls

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt failed, or the last connection has ended."""
        return self.problem not in ("", _NOT_YET)

    @property
    def link(self) -> PeerLink | None:
        """The link of the present connection, once the peer has proved its membership."""
        link = None if self.connection is None else self.connection.link
        return link if link is not None and link.is_up else None

    async def run(self) -> None:
        """Connect, and reconnect after each end, until cancelled."""
        pause = _FIRST_PAUSE_S
        while True:
            was_up, problem = (
                await self._once(self.address) if self.address else (False, "no address is known")
            )
            if problem != self.problem:
                self._log.warning("REPLICA(%s): %s", self.address or self.identity.hex()[:8], problem)
            self.problem = problem
            if was_up:
                pause = _FIRST_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            if not was_up and self.expected:
                await self._find()

    async def _find(self) -> None:
        """The node may be at another address now."""
        found = await self._look_up(self.expected)
        if found and self.address not in found:
            self.address = found[0]

    async def _once(self, address: str) -> tuple[bool, str]:
        """Run one connection from its beginning to its end: whether it came up, and why it ended."""
        self.refused = 0
        try:
            async with asyncio.timeout(_CONNECT_S):
                connection = await self._connect(address)
        except TimeoutError:
            return False, f"no answer within {_CONNECT_S:g} s"
        except ssl.SSLError as error:
            return False, tls_reason(error)
        except (OSError, ValueError, ConnectFailed) as error:
            return False, str(getattr(error, "strerror", None) or error).lower()
        ssl_object = (
            None if connection.transport is None else connection.transport.get_extra_info("ssl_object")
        )
        link = connection.link = self._make_link(self.expected, peer_certificate_hash(ssl_object))
        self.connection = connection
        connection.flush()
        was_up = False
        try:
            while not connection.closed.done():
                await asyncio.wait([connection.closed], timeout=0.1)
                if link.is_up and not was_up:
                    was_up, self.problem = True, ""
                    self._log.info("REPLICA(%s): connected", address)
        finally:
            self.connection = None
            link.end("the node stops")
            if connection.transport is not None:
                connection.transport.abort()
        self.refused = link.refused
        return was_up, link.reason

    def _answered(self, identity: bytes) -> None:
        """Note at once which node it is: until then another connection to it may begin, and end this one."""
        self.identity = identity

    async def _connect(self, address: str) -> _Connecting:
        """Connect, with TLS if wanted. Raises OSError, ValueError and ConnectFailed."""
        host, port = split_host_port(address)
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            lambda: _Connecting(self._connections, self._answered), host, int(port)
        )
        try:
            if self._tls is None:
                transport.write(MAGIC)
                return connection
            connection.upgrade = loop.create_future()
            transport.write(MAGIC + START_TLS)
            if not await connection.upgrade:
                raise ConnectFailed("the peer does not begin TLS")
            connection._socket = -1
            upgraded = await loop.start_tls(transport, connection, self._tls, server_hostname=host)
            if upgraded is None:
                raise ConnectFailed("the peer has closed the connection")
            connection.transport = upgraded
        except BaseException:
            transport.abort()
            raise
        return connection


class Connectors:
    """Keeps a connection to each node that is wanted."""

    def __init__(
        self,
        connections: Connections,
        log: Log,
        make_link: Callable[[bytes, bytes], PeerLink],
        look_up: Callable[[Sequence[bytes]], Awaitable[dict[bytes, list[str]]]],
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """*make_link* as for a `Connector`; *look_up* asks nsqlookupd for the addresses of identities."""
        self._connections = connections
        self._log = log
        self._make_link = make_link
        self._look_up = look_up
        self._tls = tls
        # By the identity of the wanted node, or by the address where any may answer.
        self._running: dict[bytes | str, tuple[Connector, asyncio.Task[None]]] = {}

    @property
    def all(self) -> list[Connector]:
        return [one for one, _ in self._running.values()]

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in self._running.values()]

    def keep(self, peers: dict[bytes, str], addresses: Iterable[str]) -> None:
        """Connect to these nodes, whose last addresses are known, and to *addresses*; end others."""
        wanted: dict[bytes | str, str] = {address: address for address in addresses}
        self._start_missing(wanted)
        named = [one for key, (one, _) in self._running.items() if key in wanted]
        wanted |= {peer: address for peer, address in peers.items() if not _finds(named, peer, address)}
        self._start_missing(wanted)
        for key in self._running.keys() - wanted.keys():
            self._running.pop(key)[1].cancel()

    def _start_missing(self, wanted: dict[bytes | str, str]) -> None:
        for key, address in wanted.items():
            if key not in self._running:
                self._start(key, address)

    def _start(self, key: bytes | str, address: str) -> None:
        connector = Connector(
            *(key if isinstance(key, bytes) else b"", address, self._connections, self._log),
            *(self._make_link, self._find),
            tls=self._tls,
        )
        task = asyncio.create_task(connector.run(), name=f"replication to {address}")
        self._running[key] = (connector, task)

    async def _find(self, identity: bytes) -> list[str]:
        return (await self._look_up([identity])).get(identity, [])


def _finds(named: Iterable[Connector], peer: bytes, address: str) -> bool:
    """Whether a connection to a named address is one to that node, or may become one."""
    return any(
        one.identity == peer or (one.address == address and not (one.identity or one.has_failed))
        for one in named
    )
