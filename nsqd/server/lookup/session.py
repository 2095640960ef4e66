"""Registration with one nsqlookupd: announce, keep alive, pass changes on, reconnect after a failure."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nsqclient.wire.address import join_host_port
from nsqcore.lookup_protocol import (
    PING,
    LookupdInfo,
    decode_lookupd_info,
    encode_available,
    encode_identify,
    encode_register,
    encode_registrations,
    encode_unregister,
)
from nsqcore.process.logs import Log
from nsqd.server.lookup.connection import LookupConnection

Identity: TypeAlias = Callable[[], Mapping[str, object]]
Registrations: TypeAlias = Callable[[], Iterable[tuple[str, Iterable[str]]]]

# A restarted nsqlookupd is useful to consumers once every nsqd is back. So each nsqd tries again soon and
# often; a connection every two seconds costs nothing.
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 2.0

# Commands sent ahead of their replies. Bounded, so that full socket buffers cannot block both sides.
PIPELINE: Final = 128


@dataclass(frozen=True, slots=True)
class Announcer:
    """The data of this nsqd that every session needs, and the time limits."""

    identify: Identity
    registrations: Registrations
    log: Log
    connect_timeout_s: float
    io_timeout_s: float
    ping_interval_s: float


class LookupSession:
    """One peer at one network address. :meth:`run` continues until it is cancelled or :attr:`removed`."""

    def __init__(
        self, label: str, host: str, port: int, announcer: Announcer, on_lost: Callable[[], None]
    ) -> None:
        """*on_lost* is called when a connection ended or could not be made."""
        self.label = label
        self.host = host
        self.port = port
        self.info: LookupdInfo | None = None
        self.connected = False
        self.last_error = ""
        self.last_ping_ns = 0
        """Unix time of the last answered PING in ns; 0 when there was none yet."""
        self.removed = False
        """The name no longer resolves to this address: use the connection to its end, do not reconnect."""
        self._doing = "connect"
        """What the log names as the failed step: a command, connecting, or waiting."""
        self._announcer = announcer
        self._log = announcer.log
        self._on_lost = on_lost
        # Changes that were not sent to the peer yet, newest state only. A peer that is slow for long costs
        # one entry per topic and channel, not one per event.
        self._pending: dict[tuple[str, str | None], bool] = {}
        # Set once everything was sent to the peer: the stream for changes.
        self._connection: LookupConnection | None = None
        # Commands whose reply is not read yet.
        self._sent: deque[bytes] = deque()
        self._changed = asyncio.Event()
        # Why this node takes no publishes, and the reason that was last sent to the peer.
        self._obstacle = ""
        self._logged_obstacle = ""

    def set_obstacle(self, obstacle: str) -> None:
        """Report to the peer soon whether publishes are taken."""
        if obstacle != self._obstacle:
            self._obstacle = obstacle
            self._changed.set()

    def note(self, topic: str, channel: str | None, *, registered: bool) -> None:
        """Report to the peer that a topic or channel was created or removed.

        The command is written now, unless many replies are missing: a client that looks up the topic after
        its first OK is to find it.
        """
        if not self.connected:
            return  # the next connection announces everything anyway
        self._pending.pop((topic, channel), None)  # so that the order is that of the last change
        self._pending[topic, channel] = registered
        self._send_pending()
        self._changed.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        retry_s = FIRST_RETRY_S
        while not self.removed:
            began = loop.time()
            # A peer that takes everything but hangs up immediately is also tried more and more slowly.
            if await self._once() and loop.time() - began > LAST_RETRY_S:
                retry_s = FIRST_RETRY_S
            self._on_lost()
            # Random, so that a thousand nsqd do not reconnect at the same moment after a restart.
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
            retry_s = min(retry_s * 2, LAST_RETRY_S)

    async def _once(self) -> bool:
        """Connect and serve until something fails; returns whether the peer got everything."""
        self._doing = "connect"
        served = False
        connection: LookupConnection | None = None
        self._changed.clear()
        try:
            if not self.last_error:
                self._log.info("LOOKUP connecting to %s", self.label)
            connection = await self._connect()
            self._doing = "IDENTIFY"
            await self._identify(connection)
            # From here on changes are noted; the snapshot below includes all earlier ones.
            self.connected = True
            self._pending.clear()
            self._sent.clear()
            # Before any topic, so that no producer is sent to an nsqd that refuses.
            self._logged_obstacle = ""
            everything = self._take_obstacle() + encode_registrations(self._announcer.registrations())
            for start in range(0, len(everything), PIPELINE):
                await self._notify(connection, everything[start : start + PIPELINE])
            served = True
            self.last_error = ""
            self._connection = connection
            self._send_pending()
            await self._receive(connection)
            await self._serve(connection)
        except (OSError, ValueError) as error:
            reason = f"{self._doing} - {_reason(error)}"
            if reason != self.last_error:
                # Logged once, not at every attempt.
                self._log.error("LOOKUPD(%s): %s", self.label, reason)
            self.last_error = reason
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the registration
            self.last_error = f"{self._doing} - {error}"
            self._log.error("LOOKUPD(%s): %s", self.label, self.last_error, error=error)
        finally:
            self.connected = False
            self._connection = None
            if connection is not None:
                connection.close()
        return served

    @property
    def http_address(self) -> str:
        """Where the peer answers HTTP; empty while that is not known."""
        info = self.info
        if info is None or not info.broadcast_address:
            return ""
        return join_host_port(info.broadcast_address, info.http_port)

    async def _connect(self) -> LookupConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._announcer.connect_timeout_s):
            _, connection = await loop.create_connection(
                lambda: LookupConnection(self._changed), self.host, self.port
            )
        return connection

    async def _identify(self, connection: LookupConnection) -> None:
        command = encode_identify(self._announcer.identify())
        connection.send([command])
        payload = await connection.reply(self._announcer.io_timeout_s)
        if b"E_BAD_PROTOCOL" in payload:
            raise ConnectionError(
                "E_BAD_PROTOCOL: this is the TCP port of an nsqd, nsqlookupd's is 4160 by default"
            )
        self.info = info = decode_lookupd_info(payload)
        self._log.info(
            "LOOKUPD(%s): peer info {TCPPort:%d HTTPPort:%d Version:%s BroadcastAddress:%s}",
            self.label,
            info.tcp_port,
            info.http_port,
            info.version,
            info.broadcast_address,
        )
        if not info.broadcast_address:
            self._log.error("LOOKUPD(%s): no broadcast address", self.label)

    async def _serve(self, connection: LookupConnection) -> None:
        """Pass changes on as they come and PING in between, until the connection fails."""
        loop = asyncio.get_running_loop()
        ping_at = loop.time() + self._announcer.ping_interval_s
        while True:
            try:
                async with asyncio.timeout_at(ping_at):
                    await self._changed.wait()
                if loop.time() >= ping_at:
                    # One change follows the other without a pause.
                    raise TimeoutError
            except TimeoutError:
                self._log.debug("LOOKUPD(%s): sending heartbeat", self.label)
                await self._notify(connection, [PING])
                self.last_ping_ns = time.time_ns()
                ping_at = loop.time() + self._announcer.ping_interval_s
                continue
            self._changed.clear()
            if connection.lost is not None:
                raise connection.lost
            await self._notify(connection, self._take_obstacle())

    def _take_obstacle(self) -> list[bytes]:
        # The original does not know the command and would hang up.
        if self._obstacle == self._logged_obstacle or self.info is None or not self.info.accepts_availability:
            return []
        self._logged_obstacle = self._obstacle
        return [encode_available(self._obstacle)]

    def _send_pending(self) -> None:
        """Write noted changes in their order, as many as may be without a reply."""
        connection = self._connection
        if connection is None:
            return
        commands: list[bytes] = []
        while self._pending and len(self._sent) + len(commands) < PIPELINE:
            topic, channel = change = next(iter(self._pending))
            registered = self._pending.pop(change)
            word = "REGISTER" if registered else "UNREGISTER"
            if channel is None:
                self._log.info("LOOKUPD(%s): topic %s %s", self.label, word, topic)
            else:
                self._log.info("LOOKUPD(%s): channel %s %s %s", self.label, word, topic, channel)
            encode = encode_register if registered else encode_unregister
            commands.append(encode(topic, channel))
        self._send(connection, commands)

    def _send(self, connection: LookupConnection, commands: list[bytes]) -> None:
        connection.send(commands)
        self._sent.extend(commands)

    async def _notify(self, connection: LookupConnection, commands: list[bytes]) -> None:
        """Send commands, and read their replies."""
        self._send(connection, commands)
        await self._receive(connection)

    async def _receive(self, connection: LookupConnection) -> None:
        """Read the missing replies; changes that come during that are for the next call."""
        for _ in range(len(self._sent)):
            # The peer closes after an error; without this the reason would be lost.
            self._doing = _shown(self._sent[0])
            reply = await connection.reply(self._announcer.io_timeout_s)
            self._sent.popleft()
            if reply.startswith(b"E_"):
                raise ConnectionError(reply.decode("utf-8", "replace"))
        self._send_pending()
        if self._sent:
            self._changed.set()
        self._doing = "wait"


def _shown(command: bytes) -> str:
    return command.decode().strip()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "i/o timeout"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error)
