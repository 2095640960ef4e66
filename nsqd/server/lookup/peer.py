"""Registration with every nsqlookupd, and questions to them, such as a new topic's channels."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

from nsqclient.wire.names import is_ephemeral
from nsqcore.cluster.fanout import Partial, call_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo
from nsqcore.lookup_protocol import is_identity
from nsqcore.process.addresses import split_host_port
from nsqcore.process.logs import Log
from nsqd.replication.choosing import Candidate
from nsqd.server.lookup.session import Announcer, Identity, LookupSession, Registrations

_T = TypeVar("_T")
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# How often a name is resolved, to notice pods that join or leave behind it.
RESOLVE_INTERVAL_S: Final = 15.0

# A question names at most so many identities, because a line of HTTP is limited.
_MAX_IDENTITIES: Final = 100
_MAX_PORT: Final = 65_535

# While a connection is missing, the name is resolved more often, because a replaced pod has another address.
LOST_RESOLVE_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class LookupPeerState:
    """One nsqlookupd as statistics and health checks see it."""

    address: str
    connected: bool
    last_error: str
    last_ping_ns: int


class LookupPeers:
    """Keeps this nsqd registered with each configured nsqlookupd.

    Every peer has its own task, so that a slow or dead peer does not delay the others. *identify* returns the
    body of IDENTIFY, *registrations* all topics with their channels; both are called for every connection. A
    host name is resolved again and again, and each address behind it (a pod, say) is a peer.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        identify: Identity,
        registrations: Registrations,
        log: Log,
        *,
        connect_timeout_s: float = 1.0,
        io_timeout_s: float = 1.0,
        ping_interval_s: float = 15.0,
        http_connect_timeout_s: float = 2.0,
        http_request_timeout_s: float = 5.0,
        resolve_interval_s: float = RESOLVE_INTERVAL_S,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """*tls* verifies an nsqlookupd that requires HTTPS."""
        self._announcer = Announcer(
            identify, registrations, log, connect_timeout_s, io_timeout_s, ping_interval_s
        )
        self._log = log
        self._resolve = resolve or addresses_of
        self._resolve_interval_s = resolve_interval_s
        self._wanted = list(dict.fromkeys(addresses))
        self._names: dict[str, _Name] = {}
        self._started = False
        # Failures of the last question for nodes of replication; each is logged once.
        self._problems: frozenset[str] = frozenset()
        # Tasks of removed peers that have not ended yet.
        self._ending: set[asyncio.Task[None]] = set()
        self._http_connect_timeout_s = http_connect_timeout_s
        self._http_request_timeout_s = http_request_timeout_s
        self._tls = tls

    def start(self) -> None:
        """Begin to connect, in the running event loop; returns immediately."""
        self._started = True
        self.set_addresses(self._wanted)

    async def stop(self) -> None:
        """Close all connections; each nsqlookupd then drops the registrations itself."""
        self._log.info("LOOKUP: closing")
        self._started = False
        for name in self._names.values():
            self._end(name)
        self._names.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Replace the configured addresses; peers in both lists stay as they are."""
        self._wanted = list(dict.fromkeys(addresses))
        if not self._started:
            return
        for address in [known for known in self._names if known not in self._wanted]:
            self._log.info("LOOKUP(%s): removing peer", address)
            self._end(self._names.pop(address))
        for address in self._wanted:
            if address not in self._names:
                self._log.info("LOOKUP(%s): adding peer", address)
                self._names[address] = _Name(
                    address, self._announcer, self._resolve, self._resolve_interval_s
                )

    def register(self, topic: str, channel: str | None = None) -> None:
        """Announce a new topic or channel."""
        for session in self._sessions():
            session.note(topic, channel, registered=True)

    def unregister(self, topic: str, channel: str | None = None) -> None:
        """Announce the removal of a topic or channel; a removed topic's channels are announced one by one."""
        for session in self._sessions():
            session.note(topic, channel, registered=False)

    def set_obstacle(self, obstacle: str) -> None:
        """Announce why this node takes no publishes, in one word; empty when it takes them."""
        for session in self._sessions():
            session.set_obstacle(obstacle)

    def peers(self) -> list[LookupPeerState]:
        """Describe every peer; a name without an address is shown as a peer that is not connected."""
        states = []
        for name in self._names.values():
            if not name.sessions:
                states.append(LookupPeerState(name.address, False, name.last_error, 0))
            states += [
                LookupPeerState(session.label, session.connected, session.last_error, session.last_ping_ns)
                for session in name.sessions
            ]
        return states

    async def channels_of(self, topic: str) -> list[str]:
        """Return the channels of *topic*, without ephemeral ones, that the answering peers know, sorted."""
        found = await self._ask_all(lambda api: api.channels(topic))
        for error in found.errors:
            self._log.warning(
                "failed to query nsqlookupd for channels to pre-create for topic %s - %s", topic, error
            )
        names = {channel for _, channels in found.value for channel in channels}
        return sorted(name for name in names if not is_ephemeral(name))

    async def addresses_of(self, identities: Iterable[bytes]) -> dict[bytes, list[str]]:
        """Return where the answering peers know the nsqds with these identities, the newest address first.

        It is a hint: the node at an address has to prove its identity. An unknown one is left out.
        """
        asked = {identity.hex(): identity for identity in identities}
        found: dict[bytes, list[str]] = {}
        for at in range(0, len(asked), _MAX_IDENTITIES):
            group = list(asked)[at : at + _MAX_IDENTITIES]
            for node in await self._replication_nodes(partial(LookupdApi.with_identities, identities=group)):
                identity = asked.get(node.identity)
                if identity is not None:
                    found.setdefault(identity, []).append(node.tcp_address)
        return {identity: list(dict.fromkeys(addresses)) for identity, addresses in found.items()}

    async def candidates(self) -> list[Candidate]:
        """Return the nsqds that accept replicas, as far as the answering peers know, each identity once."""
        found = await self._replication_nodes(LookupdApi.replica_candidates)
        return [
            Candidate(bytes.fromhex(node.identity), node.tcp_address, node.topology_zone, node.hostname)
            for node in {one.identity: one for one in reversed(found)}.values()
            if node.accepts_replicas
        ]

    async def _replication_nodes(
        self, ask: Callable[[LookupdApi], Awaitable[tuple[NodeInfo, ...]]]
    ) -> list[NodeInfo]:
        """The usable entries of all answers to `/lookup/nodes`. An nsqlookupd of the original has none."""
        found = await self._ask_all(ask)
        problems = [error for error in found.errors if error.status != HTTPStatus.NOT_FOUND]
        for error in problems:
            if str(error) not in self._problems:
                self._log.warning("failed to query nsqlookupd for nodes - %s", error)
        self._problems = frozenset(map(str, problems))
        return [
            node
            for _, nodes in found.value
            for node in nodes
            if is_identity(node.identity) and node.broadcast_address and 0 < node.tcp_port <= _MAX_PORT
        ]

    async def _ask_all(
        self, ask: Callable[[LookupdApi], Awaitable[_T]]
    ) -> Partial[list[tuple[LookupdApi, _T]]]:
        addresses = dict.fromkeys(filter(None, (session.http_address for session in self._sessions())))
        if not addresses:
            return Partial([])
        # A separate pool for each call: calls are rare, and nothing is left to close at the end.
        async with ClusterHttp(
            connect_timeout=self._http_connect_timeout_s,
            request_timeout=self._http_request_timeout_s,
            tls=self._tls,
        ) as http:
            return await call_all([LookupdApi(http, address) for address in addresses], ask)

    def _sessions(self) -> list[LookupSession]:
        return [session for name in self._names.values() for session in name.sessions]

    def _end(self, name: "_Name") -> None:
        for task in name.cancel():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


class _Name:
    """One configured ``host:port`` and a session for each address the host has at the moment."""

    def __init__(self, address: str, announcer: Announcer, resolve: Resolve, interval_s: float) -> None:
        self.address = address
        self.last_error = ""
        self._announcer = announcer
        self._log = announcer.log
        self._resolve = resolve
        self._interval_s = interval_s
        self._lost = asyncio.Event()
        self._running: dict[LookupSession, asyncio.Task[None]] = {}
        self._resolver = _spawn(self._resolve_for_ever(), f"resolve {address}")

    @property
    def sessions(self) -> list[LookupSession]:
        return list(self._running)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel every task; the caller awaits them."""
        tasks = [self._resolver, *self._running.values()]
        for task in tasks:
            task.cancel()
        self._running.clear()
        return tasks

    async def _resolve_for_ever(self) -> None:
        while True:
            try:
                host, port = split_host_port(self.address)
                self._adjust(await self._resolve(host, int(port)), int(port))
                self.last_error = ""
            except (OSError, ValueError) as error:
                # Sessions continue: a DNS server that does not answer says nothing about them.
                reason = f"lookup - {error.strerror if isinstance(error, OSError) else error}"
                if reason != self.last_error:
                    self._log.error("LOOKUPD(%s): %s", self.address, reason)
                self.last_error = reason
            await self._wait_until_due()

    async def _wait_until_due(self) -> None:
        """Wait until a connection is lost or the interval is over; at most a second while one is missing."""
        self._lost.clear()
        if not self._running or not all(session.connected for session in self._running):
            await asyncio.sleep(min(LOST_RESOLVE_INTERVAL_S, self._interval_s))
            return
        try:
            async with asyncio.timeout(self._interval_s):
                await self._lost.wait()
        except TimeoutError:
            return

    def _adjust(self, hosts: list[str], port: int) -> None:
        """Start a session for each new host; sessions of removed hosts end with their connection."""
        known = {session.host: session for session in self._running}
        for host, session in known.items():
            session.removed = host not in hosts
            if session.removed and not session.connected:
                self._running[session].cancel()
        for host in hosts:
            if host not in known:
                label = self.address if len(hosts) == 1 else f"{self.address}/{host}"
                session = LookupSession(label, host, port, self._announcer, self._lost.set)
                task = _spawn(session.run(), f"lookupd {label}")
                self._running[session] = task
                task.add_done_callback(partial(self._forget, session))

    def _forget(self, session: LookupSession, _: asyncio.Task[None]) -> None:
        self._running.pop(session, None)


async def addresses_of(host: str, port: int) -> list[str]:
    """List the addresses behind a name; only IPv4 if it has any, because both name the same daemons."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ipv4 = {str(name[0]) for family, _, _, _, name in found if family == socket.AF_INET}
    return sorted(ipv4 or {str(name[0]) for _, _, _, _, name in found})


def _spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)
