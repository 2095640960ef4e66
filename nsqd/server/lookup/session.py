"""Registration with one nsqlookupd: announce, keep alive, pass changes on, reconnect after a failure."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nsqclient.wire.address import join_host_port
from nsqclient.wire.errors import ProtocolError
from nsqcore.lookup_protocol import (
    MAGIC_V1,
    PING,
    LookupdInfo,
    ReplyParser,
    decode_lookupd_info,
    encode_available,
    encode_identify,
    encode_register,
    encode_registrations,
    encode_unregister,
)
from nsqcore.process.listen import set_keepalive
from nsqcore.process.logs import Log

Identity: TypeAlias = Callable[[], Mapping[str, object]]
Registrations: TypeAlias = Callable[[], Iterable[tuple[str, Iterable[str]]]]

# A restarted nsqlookupd is useful to consumers once every nsqd is back. So each nsqd tries again soon and
# often; a connection every two seconds costs nothing.
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 2.0

# The largest reply in bytes. Those of an nsqlookupd are much smaller; a larger one comes from something else.
MAX_REPLY: Final = 5 * 1024 * 1024
_READ_BYTES: Final = 65_536

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
        self._loop = asyncio.get_running_loop()
        self._writer: asyncio.StreamWriter | None = None
        self._parser = ReplyParser(MAX_REPLY)
        # Commands that are not written yet, and those whose reply is not read yet, which has a time limit.
        self._outgoing: deque[bytes] = deque()
        self._sent: deque[bytes] = deque()
        self._time_limit = asyncio.timeout(None)
        # Whether this connection has announced everything that there was at its beginning.
        self._announced = False
        # Changes that were not sent to the peer yet, newest state only. A peer that is slow for long costs
        # one entry per topic and channel, not one per event.
        self._pending: dict[tuple[str, str | None], bool] = {}
        # Why this node takes no publishes, and the reason that was last sent to the peer.
        self._obstacle = ""
        self._sent_obstacle = ""

    def set_obstacle(self, obstacle: str) -> None:
        """Report to the peer whether publishes are taken."""
        self._obstacle = obstacle
        self._send_obstacle()
        self._write()

    def note(self, topic: str, channel: str | None, *, registered: bool) -> None:
        """Report to the peer that a topic or channel was created or removed.

        The command is written now, unless many replies are missing: a client that looks up the topic after
        its first OK is to find it.
        """
        if not self.connected:
            return  # the next connection announces everything anyway
        self._pending.pop((topic, channel), None)  # so that the order is that of the last change
        self._pending[topic, channel] = registered
        self._write()

    async def run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self.removed:
            began = self._loop.time()
            # A peer that takes everything but hangs up immediately is also tried more and more slowly.
            if await self._once() and self._loop.time() - began > LAST_RETRY_S:
                retry_s = FIRST_RETRY_S
            self._on_lost()
            # Random, so that a thousand nsqd do not reconnect at the same moment after a restart.
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
            retry_s = min(retry_s * 2, LAST_RETRY_S)

    async def _once(self) -> bool:
        """Connect and serve until something fails; returns whether the peer got everything."""
        self._doing = "connect"
        self._announced = False
        writer: asyncio.StreamWriter | None = None
        pings: asyncio.Task[None] | None = None
        try:
            if not self.last_error:
                self._log.info("LOOKUP connecting to %s", self.label)
            async with asyncio.timeout(self._announcer.connect_timeout_s):
                reader, writer = await asyncio.open_connection(self.host, self.port)
            set_keepalive(writer.get_extra_info("socket"))
            self._parser = ReplyParser(MAX_REPLY)
            self._doing = "IDENTIFY"
            writer.write(MAGIC_V1 + encode_identify(self._announcer.identify()))
            async with asyncio.timeout(self._announcer.io_timeout_s):
                self._identified(await self._reply(reader))
            async with asyncio.timeout(None) as self._time_limit:
                self._announce(writer)
                pings = self._loop.create_task(self._ping(), name=f"pings to {self.label}")
                while True:
                    self._replied(await self._reply(reader))
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
            self._writer = None
            if pings is not None:
                pings.cancel()
            if writer is not None:
                writer.transport.abort()
        return self._announced

    @property
    def http_address(self) -> str:
        """Where the peer answers HTTP; empty while that is not known."""
        info = self.info
        if info is None or not info.broadcast_address:
            return ""
        return join_host_port(info.broadcast_address, info.http_port)

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        """Read the next reply. Raises OSError."""
        try:
            while (reply := self._parser.next_reply()) is None:
                data = await reader.read(_READ_BYTES)
                if not data:
                    raise ConnectionResetError("connection closed by the peer")
                self._parser.feed(data)
        except ProtocolError as error:
            raise ConnectionError(str(error)) from error
        return reply

    def _identified(self, payload: bytes) -> None:
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

    def _announce(self, writer: asyncio.StreamWriter) -> None:
        """Begin to send all topics and channels; from here on changes are noted."""
        self._writer = writer
        self.connected = True
        self._pending.clear()
        self._sent.clear()
        self._outgoing.clear()
        # Before any topic, so that no producer is sent to an nsqd that refuses.
        self._sent_obstacle = ""
        self._send_obstacle()
        self._outgoing.extend(encode_registrations(self._announcer.registrations()))
        self._write()
        self._expect()

    def _replied(self, reply: bytes) -> None:
        """Note the reply to the oldest command. Raises ConnectionError."""
        if not self._sent:
            # Such replies would be taken for those of later commands.
            raise ConnectionError("a reply came without a request")
        if reply.startswith(b"E_"):
            # The peer closes after an error; without this the reason would be lost.
            raise ConnectionError(reply.decode("utf-8", "replace"))
        if self._sent.popleft() == PING:
            self.last_ping_ns = time.time_ns()
        self._write()
        self._expect()

    def _expect(self) -> None:
        """Limit the time until the next reply; without commands under way everything is announced."""
        if not (self._sent or self._announced):
            self._announced = True
            self.last_error = ""
            self._write()
        self._doing = self._sent[0].decode().strip() if self._sent else "wait"
        if not self._time_limit.expired():
            limit = self._loop.time() + self._announcer.io_timeout_s if self._sent else None
            self._time_limit.reschedule(limit)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._announcer.ping_interval_s)
            self._log.debug("LOOKUPD(%s): sending heartbeat", self.label)
            self._outgoing.append(PING)
            self._write()

    def _send_obstacle(self) -> None:
        # The original does not know the command and would hang up.
        if (
            self.connected
            and self._obstacle != self._sent_obstacle
            and self.info is not None
            and self.info.accepts_availability
        ):
            self._sent_obstacle = self._obstacle
            self._outgoing.append(encode_available(self._obstacle))

    def _write(self) -> None:
        """Write commands and noted changes in their order, as many as may be without a reply."""
        if self._writer is None:
            return
        was_idle = not self._sent
        commands: list[bytes] = []
        while len(self._sent) + len(commands) < PIPELINE:
            if self._outgoing:
                commands.append(self._outgoing.popleft())
            elif self._pending and self._announced:
                commands.append(self._next_change())
            else:
                break
        if commands:
            self._writer.write(b"".join(commands))
            self._sent.extend(commands)
            if was_idle:
                self._expect()

    def _next_change(self) -> bytes:
        topic, channel = change = next(iter(self._pending))
        registered = self._pending.pop(change)
        word = "REGISTER" if registered else "UNREGISTER"
        if channel is None:
            self._log.info("LOOKUPD(%s): topic %s %s", self.label, word, topic)
        else:
            self._log.info("LOOKUPD(%s): channel %s %s %s", self.label, word, topic, channel)
        return (encode_register if registered else encode_unregister)(topic, channel)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "i/o timeout"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error)
