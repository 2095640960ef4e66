"""The keeper's connections: those to the TCP port that begin with the magic of the stream."""

import asyncio
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, cast

from nsqcore.process.listen import peer_ip, set_keepalive, shown_peer
from nsqcore.process.logs import Log
from nsqd.protocol.auth import PUBLISH
from nsqd.replication.copy_jobs import CopySync, KeeperJob
from nsqd.replication.frames import Refuse, StartTls
from nsqd.replication.framing import encode
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.keeper_states import KeeperState
from nsqd.replication.willing import Keeping
from nsqd.server.auth import Asker, AuthServers, common_name
from nsqd.server.layers import Tls

# A home that is silent for so long is cut off; it sends something every half second.
_SILENT_S: Final = 15.0
_THREADS: Final = 4
_START_TLS: Final = encode(StartTls())


@dataclass(slots=True)
class Keepers:
    """All connections of homes to this node, and the objects that each of them needs."""

    keeping: Keeping[KeeperLink]
    log: Log
    tls: ssl.SSLContext | None
    tls_required: bool
    auth: AuthServers
    connections: dict["HomeAtTheDoor", None] = field(default_factory=dict)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "copies"))
    # The last removal of deleted topics' copies.
    removing: "asyncio.Future[None] | None" = None

    def accept(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection whose first bytes were the magic; *data* is what followed it."""
        connection = HomeAtTheDoor(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if data:
            connection.data_received(data)

    def since(self) -> dict[bytes, float]:
        """Since when each home is connected, in seconds since 1970."""
        offset = time.time() - asyncio.get_running_loop().time()
        return {
            one.link.hello.identity: one.since + offset
            for one in self.connections
            if one.link.hello is not None
        }

    def tick(self) -> None:
        """Make written copies durable, and remove deleted ones; called once a second."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.tick(now)
        self.remove_deleted()

    def remove_deleted(self) -> None:
        """Begin to remove deleted copies, unless a thread still does: that may take longer than a second."""
        if self.keeping.copies.removable and (self.removing is None or self.removing.done()):
            self.removing = asyncio.get_running_loop().run_in_executor(self.pool, self._remove)

    def _remove(self) -> None:
        try:
            self.keeping.copies.remove_deleted()
        except OSError as error:
            self.log.warning("COPIES: failed to remove a deleted topic, will try again - %s", error)

    async def close(self) -> None:
        for connection in list(self.connections):
            connection.leave()
        await asyncio.to_thread(self.pool.shutdown)


class HomeAtTheDoor(asyncio.Protocol):
    """One connection of a home; the link decides, this class moves bytes and runs the link's jobs."""

    def __init__(self, keepers: Keepers) -> None:
        self.link = KeeperLink(keepers.keeping)
        self.peer = ""
        self.since = 0.0
        self._keepers = keepers
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._heard = self._loop.time()
        # The first bytes, which may ask for TLS; None once they are complete.
        self._first: bytes | None = b""
        self._shaking_hands = False
        self._asking: asyncio.Task[None] | None = None

    # --- asyncio's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = shown_peer(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock)
        self._keepers.connections[self] = None
        self.since = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._first is not None:
            data = self._first + data
            if len(data) < len(_START_TLS):
                self._first = data
                return
            self._first = None
            if data == _START_TLS:
                self._start_tls()
                return
            if self._keepers.tls_required:
                self.link.refuse(Refuse.UNAUTHORIZED, "TLS is required here: --keeper-tls")
        self.link.receive(data)
        self._go_on()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        if self._asking is not None:
            self._asking.cancel()
        self._keepers.connections.pop(self, None)
        link = self.link
        hello = link.hello
        if hello is not None:
            reason = f" - {link.reason}" if link.reason else ""
            self._keepers.log.info("COPIES: %s (%s) is gone%s", hello.address, self.peer, reason)
        elif link.reason and link.fellow is None:
            self._keepers.log.info("COPIES: (%s) is gone - %s", self.peer, link.reason)
        self._sync_last()
        if not link.closing:
            link.closed()

    # --- what the link wants ---

    def say(self) -> None:
        """Send frames that other parts have put into the link."""
        if self.link.out:
            self._go_on()

    def _go_on(self) -> None:
        """Send waiting frames, begin jobs for the disk, ask the auth servers about the home."""
        link, transport = self.link, self._transport
        for job in link.jobs():
            future = self._loop.run_in_executor(
                self._keepers.pool, job.run, self._keepers.keeping.copies.disk
            )
            future.add_done_callback(lambda done, job=job: self._ended(job, done))  # type: ignore[misc]
        if transport is None:
            return
        if link.out:
            out, link.out = link.out, []
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        if link.closing:
            if link.reason:
                self._keepers.log.warning("COPIES: (%s) refused - %s", self.peer, link.reason)
            transport.close()
        elif link.state is KeeperState.ASKING and self._asking is None:
            # What a peer sends before it is admitted stays with it.
            transport.pause_reading()
            self._asking = self._loop.create_task(self._ask(), name=f"AUTH of home {self.peer}")

    def _ended(self, job: KeeperJob, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        self.link.ended(job, error)
        self._go_on()

    async def _ask(self) -> None:
        """Ask the auth servers; a home that may publish to every topic may have its copies kept."""
        transport = self._transport
        if transport is None:
            return
        asker = Asker(
            secret=self.link.secret,
            remote_ip=peer_ip(transport.get_extra_info("peername")),
            tls=transport.get_extra_info("sslcontext") is not None,
            common_name=common_name(transport),
        )
        found = await self._keepers.auth.ask(asker, self.peer)
        self._heard = self._loop.time()
        if not transport.is_closing():
            transport.resume_reading()
        if found is None:
            reason = "the auth servers do not answer"
        elif not found.allows(PUBLISH, EVERY_TOPIC, ""):
            reason = "the secret of the home does not allow it to publish to every topic"
        else:
            reason = ""
        self.link.admitted(reason)
        self._go_on()

    def tick(self, now: float) -> None:
        is_heard = self.link.state is not KeeperState.ASKING
        if is_heard and now - self._heard > _SILENT_S and self._transport is not None:
            self.link.reason = self.link.reason or "nothing was heard of it"
            self._transport.abort()
            return
        self.link.sync()
        self._go_on()

    def leave(self) -> None:
        """End the connection, because the node stops."""
        self.link.refuse(Refuse.LEAVING, "the keeper stops")
        self._go_on()

    def _sync_last(self) -> None:
        sync = CopySync(self.link.folders)
        try:
            future = self._loop.run_in_executor(
                self._keepers.pool, sync.run, self._keepers.keeping.copies.disk
            )
        except RuntimeError:
            # The pool is closed; the next start finds out what was not synced.
            return
        future.add_done_callback(lambda done: sync.failed() if done.exception() else sync.end())

    # --- TLS ---

    def _start_tls(self) -> None:
        transport, context = self._transport, self._keepers.tls
        if transport is None:
            return
        if context is None:
            self.link.refuse(Refuse.UNAUTHORIZED, "there is no certificate here for TLS: --tls-cert")
            self._go_on()
            return
        transport.write(_START_TLS)
        self._shaking_hands = True
        Tls(transport, self, context, self._shook_hands)

    def _shook_hands(self, tls: Tls, why_not: str) -> None:
        self._shaking_hands = False
        if why_not:
            self.link.refuse(Refuse.UNAUTHORIZED, why_not)
            self._go_on()
        else:
            self._transport = tls


# A topic name that is only granted by a pattern for all names.
EVERY_TOPIC: Final = "carried-logs-of-every-topic"
