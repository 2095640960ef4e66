"""Reads a channel of a topic from every nsqd that has it, and answers each message for the handler."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, Self

from nsqcore.client.backoff import Backoff, Phase
from nsqcore.client.connection import Connection, connect
from nsqcore.client.delivery import Delivery
from nsqcore.client.discovery import Discovery, LookupdDiscovery, StaticDiscovery
from nsqcore.client.errors import ConnectionLostError
from nsqcore.client.options import ClientOptions
from nsqcore.client.rdy import RdyDistribution
from nsqcore.wire import commands
from nsqcore.wire.errors import ProtocolError
from nsqcore.wire.message import Message

log = logging.getLogger("nsqcore.client")

Handler = Callable[[Delivery], Awaitable[None] | None]

# A plain function that is quick must not keep the loop from its sockets while the queue is full.
HANDLED_PER_TURN: Final = 100

# Starved: this part of what may be in flight is, so more will only come after some is answered.
STARVED_SHARE: Final = 0.85

# How long even a hurried close waits for nsqd to confirm that it sends no more.
FAREWELL_SECONDS: Final = 1.0


class Consumer:
    """Calls *handler* with each message: a return is FIN, an exception REQ and backing off.

    The handler is a coroutine function or a quick plain one. It may answer the message itself by
    ``finish()`` or ``requeue()``; with ``auto_answer=False`` it must, but may do so after its return.
    A message delivered more than ``max_attempts`` times is finished without being handled: it is lost,
    unless *give_up* does something with it.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler,
        *,
        nsqd_addresses: Sequence[str] = (),
        lookupd_addresses: Sequence[str] = (),
        max_in_flight: int = 1,
        concurrency: int = 1,
        auto_answer: bool = True,
        give_up: Callable[[Delivery], None] | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        if bool(nsqd_addresses) == bool(lookupd_addresses):
            raise ValueError("a consumer needs either nsqd or nsqlookupd addresses")
        self.topic = topic
        self.channel = channel
        self.options = options or ClientOptions()
        self._subscribe = commands.sub(topic, channel)  # refuses bad names here
        self._handler = handler
        self._auto_answer = auto_answer
        self._give_up = give_up
        self._concurrency = concurrency
        self._nsqd_addresses = nsqd_addresses
        self._lookupd_addresses = lookupd_addresses
        self._connections: dict[str, Connection] = {}
        self._rdy: RdyDistribution[str] = RdyDistribution(
            max_in_flight, self.options.low_rdy_idle_timeout, self.options.low_rdy_timeout
        )
        self._backoff = Backoff(
            self.options.backoff_multiplier,
            self.options.max_backoff_duration,
            full_jitter=self.options.backoff_strategy == "full_jitter",
        )
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._discovery: Discovery | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._closing = False
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return list(self._connections)

    @property
    def in_flight(self) -> int:
        """Messages received and not answered."""
        return sum(connection.in_flight for connection in self._connections.values())

    @property
    def is_starved(self) -> bool:
        """Whether some nsqd has sent nearly all it may, so holding on to messages would stall it."""
        return any(
            connection.in_flight > 0 and connection.in_flight >= STARVED_SHARE * self._rdy.count(address)
            for address, connection in self._connections.items()
        )

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Share out another number from now on; 0 pauses."""
        self._send_rdy(self._rdy.resize(max_in_flight, self._now()))

    # --- life

    async def start(self) -> None:
        """Begin to look for nsqd; returns when every fixed address is connected, or raises what failed."""
        if self._closing or self._discovery is not None:
            raise RuntimeError("a consumer is started once")
        if self._lookupd_addresses:
            self._discovery = LookupdDiscovery(self._lookupd_addresses, self.topic, self.options)
        else:
            self._discovery = StaticDiscovery(self._nsqd_addresses, self.options)
        self._workers = [
            self._spawn(self._work(), f"handler {number}") for number in range(self._concurrency)
        ]
        try:
            for address in self._nsqd_addresses:
                await self._connect(address)
        except BaseException:
            await self.close(drain_seconds=0)
            raise
        for name, work in (("discovery", self._discover(self._discovery)), ("rdy", self._rotate())):
            self._tasks.append(self._spawn(work, name))

    async def close(self, drain_seconds: float = 30) -> None:
        """Take no more, let the handlers finish what is here, give back what they cannot in time.

        A handler must not await this: it would wait for itself.
        """
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
        try:
            await _end(self._tasks)
            await self._drain(drain_seconds)
        finally:
            await _end(self._workers)
            for connection in list(self._connections.values()):
                await connection.close()
            if self._discovery is not None:
                await self._discovery.close()
            self._closed.set()

    async def _drain(self, seconds: float) -> None:
        # CLS first: what is given back below must not come here again. Its answer follows the last message.
        connections = list(self._connections.values())
        farewells = [connection.request(commands.CLS) for connection in connections]
        if farewells:
            await asyncio.wait(farewells, timeout=max(seconds, FAREWELL_SECONDS))
        try:
            async with asyncio.timeout(seconds):
                for connection in connections:
                    await connection.idle.wait()
        except TimeoutError:
            log.warning("%s/%s: %d messages not handled in time", self.topic, self.channel, self.in_flight)
        while not self._queue.empty():
            delivery = self._queue.get_nowait()
            if not delivery.answered:
                delivery.requeue()

    # --- listener of the connections

    def messages_received(self, connection: Connection, messages: list[Message]) -> None:
        now = self._now()
        self._rdy.heard(connection.address, now)
        for message in messages:
            self._queue.put_nowait(Delivery(message, connection, now))

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        if self._connections.get(connection.address) is not connection:
            return
        del self._connections[connection.address]
        self._send_rdy(self._rdy.remove(connection.address, self._now(), random.choice))
        if error is not None and not self._closing:
            log.warning("%s/%s (%s) %s", self.topic, self.channel, connection.address, error)
            if self._discovery is not None:
                self._discovery.hurry()

    # --- connections

    async def _discover(self, discovery: Discovery) -> None:
        async for addresses in discovery.rounds():
            missing = [address for address in addresses if address not in self._connections]
            async with asyncio.TaskGroup() as tasks:
                for address in missing:
                    tasks.create_task(self._try_connect(address))

    async def _try_connect(self, address: str) -> None:
        try:
            await self._connect(address)
        except (OSError, ProtocolError, ValueError) as error:
            log.warning("%s/%s (%s) not connected: %s", self.topic, self.channel, address, error)

    async def _connect(self, address: str) -> None:
        connection = await connect(address, self.options, self)
        try:
            await connection.request(self._subscribe)
            if connection.is_closed:
                raise ConnectionLostError(f"{address} closed the connection after SUB")
        except BaseException:
            await connection.close()
            raise
        self._connections[address] = connection
        self._send_rdy(self._rdy.add(address, connection.negotiated.max_rdy_count, self._now()))

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(self.options.rdy_redistribute_interval)
            self._send_rdy(self._rdy.rotate(self._now(), random.choice))

    def _send_rdy(self, changes: dict[str, int]) -> None:
        if self._closing:
            return  # CLS has set it to 0
        for address, count in changes.items():
            if connection := self._connections.get(address):
                connection.send(commands.rdy(count))

    # --- handling

    async def _work(self) -> None:
        handled = 0
        while True:
            delivery = await self._queue.get()
            if delivery.is_lost:
                continue  # handling it now would only make a duplicate
            await self._handle(delivery)
            handled += 1
            if handled == HANDLED_PER_TURN:
                handled = 0
                await asyncio.sleep(0)

    async def _handle(self, delivery: Delivery) -> None:
        if 0 < self.options.max_attempts < delivery.attempts:
            self._abandon(delivery)
            return
        try:
            pending = self._handler(delivery)
            if pending is not None:
                await pending
        except asyncio.CancelledError:
            if not delivery.answered:
                delivery.requeue()
            raise
        except Exception:
            log.exception("%s/%s: handler failed for %r", self.topic, self.channel, delivery)
            if not delivery.answered:
                delivery.requeue(self._requeue_delay(delivery), backoff=True)
            self._note(failed=True)
            return
        if self._auto_answer and not delivery.answered:
            delivery.finish()
        if delivery.answered:
            self._note(failed=delivery.backoff)

    def _abandon(self, delivery: Delivery) -> None:
        log.warning(
            "%s/%s: message %s attempted %d times, giving up",
            self.topic,
            self.channel,
            delivery.id.decode(errors="replace"),
            delivery.attempts,
        )
        if self._give_up is not None:
            self._give_up(delivery)
        if not delivery.answered:
            delivery.finish()

    def _requeue_delay(self, delivery: Delivery) -> float:
        return min(self.options.default_requeue_delay * delivery.attempts, self.options.max_requeue_delay)

    def _note(self, *, failed: bool) -> None:
        """Feed the outcome to the back-off machine and act on what it says."""
        before = self._backoff.phase
        if before is Phase.RUNNING and not failed:
            return  # the common path
        stop_for = (
            self._backoff.failed(random.random()) if failed else self._backoff.succeeded(random.random())
        )
        if self._backoff.phase is before:
            return
        self._send_rdy(self._rdy.enter(self._backoff.phase, self._now(), random.choice))
        if self._backoff.phase is Phase.RUNNING:
            log.info("%s/%s: exiting backoff, returning all to RDY", self.topic, self.channel)
        if stop_for is not None and not self._closing:
            log.warning(
                "%s/%s: backing off for %.1fs (backoff level %d), setting all to RDY 0",
                self.topic,
                self.channel,
                stop_for,
                self._backoff.level,
            )
            self._backoff_timer = asyncio.get_running_loop().call_later(stop_for, self._try_one)

    def _try_one(self) -> None:
        self._backoff.waited()
        self._send_rdy(self._rdy.enter(self._backoff.phase, self._now(), random.choice))

    # --- inside

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{self.topic}/{self.channel} {name}")
        task.add_done_callback(_report)
        return task

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    """Say so at once when a task that should run for ever ends by a mistake."""
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s ended", task.get_name(), exc_info=error)
