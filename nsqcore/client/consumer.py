"""Reads a channel of a topic from every nsqd that has it, and answers each message for the handler."""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from nsqcore.client.backoff import Backoff, Phase
from nsqcore.client.config import Config
from nsqcore.client.connection import Connection, Listener
from nsqcore.client.delivery import Delivery, Outcome
from nsqcore.client.discovery import AddressSource, FixedAddresses, LookedUpAddresses
from nsqcore.client.errors import ConnectionLostError
from nsqcore.client.handling import BatchHandler, Handler, Handling, Job
from nsqcore.client.handshake import connect
from nsqcore.client.rdy import RdyDistribution
from nsqcore.wire import commands
from nsqcore.wire.errors import ProtocolError

log = logging.getLogger("nsqcore.client")

# Starved: this part of what may be in flight is, so more will only come after some is answered.
STARVED_SHARE: Final = 0.85

# How long even a hurried close waits for nsqd to confirm that it sends no more.
FAREWELL_SECONDS: Final = 1.0

# Touched so often in one message time-out that a touch that comes late is not yet too late.
_TOUCHES_PER_TIMEOUT: Final = 3


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """What a consumer has done since it was made."""

    received: int
    finished: int
    requeued: int
    connections: int


class Consumer(Listener):
    """Calls *handler* with each message: a return is FIN, an exception REQ and backing off.

    The handler is a coroutine function or a quick plain one; :meth:`add_handler` takes those that block and
    :meth:`add_batch_handler` those that want many messages at once. A handler may answer the message itself
    by ``finish()`` or ``requeue()``; with ``auto_answer=False`` it must, but may do so after its return.
    With ``auto_touch`` messages that are worked on for long are touched, as far as nsqd allows.
    A message delivered more than ``max_attempts`` times is finished without being handled: it is lost,
    unless *give_up* does something with it; should that fail, the message is delivered again.
    *choose* may thin out or reorder the addresses that were found.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        nsqd_addresses: Sequence[str] = (),
        lookupd_addresses: Sequence[str] = (),
        config: Config | None = None,
        concurrency: int = 1,
        auto_answer: bool = True,
        auto_touch: bool = False,
        give_up: Handler | None = None,
        choose: Callable[[list[str]], Iterable[str]] = list,
    ) -> None:
        if bool(nsqd_addresses) == bool(lookupd_addresses):
            raise ValueError("a consumer needs either nsqd or nsqlookupd addresses")
        self.topic = topic
        self.channel = channel
        self.config = config or Config()
        self._subscribe = commands.sub(topic, channel)  # refuses bad names here
        self._auto_touch = auto_touch
        self._choose = choose
        self._addresses: AddressSource
        if lookupd_addresses:
            self._addresses = LookedUpAddresses(lookupd_addresses, topic, self.config)
        else:
            self._addresses = FixedAddresses(nsqd_addresses, self.config)
        self._connections: dict[str, Connection] = {}
        self._rdy: RdyDistribution[str] = RdyDistribution(
            self.config.max_in_flight, self.config.low_rdy_idle_timeout, self.config.low_rdy_timeout
        )
        self._backoff = Backoff(
            self.config.backoff_multiplier,
            self.config.max_backoff_duration,
            full_jitter=self.config.backoff_strategy == "full_jitter",
        )
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._handling = Handling(
            f"{topic}/{channel}",
            max_attempts=self.config.max_attempts,
            auto_answer=auto_answer,
            auto_touch=auto_touch,
            give_up=give_up,
            is_starved=lambda: self.is_starved,
        )
        if handler is not None:
            self._handling.add(Job(handler, concurrency))
        self._tasks: list[asyncio.Task[None]] = []
        self._received = self._finished = self._requeued = 0
        self._started = False
        self._closing = False
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Consumer {self.topic}/{self.channel} of {', '.join(self._connections) or 'no nsqd'}>"

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return list(self._connections)

    @property
    def in_flight(self) -> int:
        """Messages received and not answered."""
        return sum(connection.in_flight for connection in self._connections.values())

    @property
    def msg_timeout(self) -> float:
        """The seconds after which a message that is not answered comes again; infinite without an nsqd."""
        timeouts = (connection.negotiated.msg_timeout for connection in self._connections.values())
        return min((timeout for timeout in timeouts if timeout > 0), default=math.inf) / 1000

    @property
    def is_starved(self) -> bool:
        """Whether some nsqd has sent nearly all it may, so holding on to messages would stall it."""
        return any(
            connection.in_flight > 0 and connection.in_flight >= STARVED_SHARE * self._rdy.count(address)
            for address, connection in self._connections.items()
        )

    @property
    def is_backing_off(self) -> bool:
        """Whether it has stopped or slowed down because the handler fails."""
        return self._backoff.phase is not Phase.RUNNING

    @property
    def stats(self) -> ConsumerStats:
        return ConsumerStats(self._received, self._finished, self._requeued, len(self._connections))

    # --- settings

    def add_handler(self, handler: Handler, *, concurrency: int = 1, in_threads: bool = False) -> None:
        """Have messages handled by this one as well: each goes to whichever handler is free.

        With ``in_threads`` it is a plain function that may block; *concurrency* of them run at once.
        """
        self._handling.add(Job(handler, concurrency, in_threads))

    def add_batch_handler(
        self,
        handler: BatchHandler,
        *,
        size: int,
        seconds: float = 0.25,
        concurrency: int = 1,
        in_threads: bool = False,
    ) -> None:
        """Have messages handled in lists of up to *size*, for which it waits *seconds* at most.

        A return finishes all of the list that are not answered, an exception requeues them.
        """
        self._handling.add(Job(handler, concurrency, in_threads, size, seconds))

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Share out another number from now on; 0 pauses."""
        self._send_rdy(self._rdy.resize(max_in_flight, self._now()))

    async def connect_to_nsqd(self, address: str) -> None:
        """Read from one more nsqd; only with fixed addresses."""
        self._fixed().add(address)
        if self._started and address not in self._connections:
            await self._connect(address)

    async def disconnect_from_nsqd(self, address: str) -> None:
        """Finish what came from this nsqd and leave it; only with fixed addresses."""
        self._fixed().remove(address)
        if connection := self._connections.pop(address, None):
            self._send_rdy(self._rdy.remove(address, self._now(), random.choice))
            await asyncio.wait([connection.request(commands.CLS)])
            await connection.idle.wait()
            await connection.close()

    def _fixed(self) -> FixedAddresses:
        if not isinstance(self._addresses, FixedAddresses):
            raise TypeError("the addresses of this consumer come from nsqlookupd")
        return self._addresses

    # --- life

    async def start(self) -> None:
        """Begin to look for nsqd; returns when every fixed address is connected, or raises what failed."""
        if self._closing or self._started:
            raise RuntimeError("a consumer is started once")
        if not self._handling.has_jobs:
            raise RuntimeError("a consumer needs a handler")
        self._started = True
        self._handling.start()
        try:
            if isinstance(self._addresses, FixedAddresses):
                for address in self._addresses.known:
                    await self._connect(address)
        except BaseException:
            await self.close(drain_seconds=0)
            raise
        for name, work in (("discovery", self._discover()), ("rdy", self._rotate())):
            self._tasks.append(self._spawn(work, name))
        if self._auto_touch:
            self._tasks.append(self._spawn(self._touch(), "touch"))

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
            touching = [task for task in self._tasks if task.get_name().endswith("touch")]
            await _end([task for task in self._tasks if task not in touching])
            await self._drain(drain_seconds)
            await _end(touching)
        finally:
            await self._handling.stop()
            for connection in list(self._connections.values()):
                await connection.close()
            await self._addresses.close()
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
        self._handling.give_back()

    # --- listener of the connections

    def messages_received(self, connection: Connection, messages: list[Delivery]) -> None:
        self._received += len(messages)
        self._rdy.heard(connection.address, messages[0].received_at)
        self._handling.receive(messages)

    def message_answered(self, outcome: Outcome) -> None:
        if outcome is Outcome.FINISHED:
            self._finished += 1
            if self._backoff.phase is Phase.RUNNING:
                return  # the common path
        else:
            self._requeued += 1
        self._note(outcome)

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        self._handling.forget(connection)
        if self._connections.get(connection.address) is not connection:
            return
        del self._connections[connection.address]
        self._send_rdy(self._rdy.remove(connection.address, self._now(), random.choice))
        if error is not None and not self._closing:
            log.warning("%s/%s (%s) %s", self.topic, self.channel, connection.address, error)
            self._addresses.hurry()

    # --- connections

    async def _discover(self) -> None:
        connecting: dict[str, asyncio.Task[None]] = {}
        try:
            async for addresses in self._addresses.rounds():
                connecting = {address: task for address, task in connecting.items() if not task.done()}
                for address in self._choose(addresses):
                    # One that is slow to answer must not keep the others waiting.
                    if address not in self._connections and address not in connecting:
                        connecting[address] = self._spawn(self._try_connect(address), f"connect {address}")
        finally:
            await _end(list(connecting.values()))

    async def _try_connect(self, address: str) -> None:
        try:
            await self._connect(address)
        except (OSError, ProtocolError, ValueError) as error:
            log.warning("%s/%s (%s) not connected: %s", self.topic, self.channel, address, error)

    async def _connect(self, address: str) -> None:
        connection = await connect(address, self.config, self)
        try:
            await connection.request(self._subscribe)
            if connection.is_closed:
                raise ConnectionLostError(f"{address} closed the connection after SUB")
        except BaseException:
            await connection.close()
            raise
        if address in self._connections or self._closing:
            await connection.close()
            return
        self._connections[address] = connection
        self._send_rdy(self._rdy.add(address, connection.negotiated.max_rdy_count, self._now()))

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(self.config.rdy_redistribute_interval)
            self._send_rdy(self._rdy.rotate(self._now(), random.choice))

    def _send_rdy(self, changes: dict[str, int]) -> None:
        if self._closing:
            return  # CLS has set it to 0
        for address, count in changes.items():
            if connection := self._connections.get(address):
                connection.send(commands.rdy(count))

    async def _touch(self) -> None:
        """Ask for more time, again and again, for what has been here for a part of the message time-out."""
        while True:
            timeouts = [connection.negotiated.msg_timeout for connection in self._connections.values()]
            pause = min(timeouts, default=1000) / 1000 / _TOUCHES_PER_TIMEOUT
            await asyncio.sleep(pause)
            for delivery in self._handling.held_since(self._now() - pause / 2):
                delivery.touch()

    # --- backing off

    def _note(self, outcome: Outcome) -> None:
        """Feed the outcome to the back-off machine and act on what it says."""
        before = self._backoff.phase
        chance = random.random()
        if outcome is Outcome.FAILED:
            stop_for = self._backoff.failed(chance)
        elif outcome is Outcome.FINISHED:
            stop_for = self._backoff.succeeded(chance)
        else:
            stop_for = self._backoff.continued(chance)
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
    """Say so at once when a task that should run forever ends by a mistake."""
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s ended", task.get_name(), exc_info=error)
