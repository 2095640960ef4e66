"""The connections of a consumer, and how many messages the nsqd of each may send."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from nsqclient._addresses import AddressBook
from nsqclient._backoff import Backoff, Phase
from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ConnectionLostError
from nsqclient._handshake import connect
from nsqclient._listener import Listener
from nsqclient._message import Outcome
from nsqclient._rdy import RdyDistribution, longest_wait
from nsqclient._tasks import end, spawn
from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError

log = logging.getLogger("nsqclient")

# The first lookup of a lost nsqd comes after this time, the next after doubling pauses up to the poll
# interval. After a mere restart, a pause of a minute would leave its messages undelivered.
FIRST_RETRY_SECONDS: Final = 0.5

# How long start() waits for further nsqd when one is connected.
START_GRACE_SECONDS: Final = 1.0

# A warning is logged when messages may wait this long for their nsqd's turn; a few seconds more are usual.
LONG_WAIT_SECONDS: Final = 60.0


class RoundPace:
    """The pause between rounds: the interval; after a loss a short pause, doubling up to the interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._retry: float | None = None
        self._hurried = asyncio.Event()

    @property
    def is_hurried(self) -> bool:
        return self._retry is not None

    def hurry(self) -> None:
        self._retry = FIRST_RETRY_SECONDS
        self._hurried.set()

    async def pause(self, extra: float = 0) -> None:
        """Wait for the next round; hurry() cuts a long wait short."""
        self._hurried.clear()
        wait = self._next_wait() or self._interval + extra
        try:
            async with asyncio.timeout(wait):
                await self._hurried.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._next_wait() or 0)

    def _next_wait(self) -> float | None:
        wait = self._retry
        if wait is not None:
            self._retry = wait * 2 if wait * 2 < self._interval else None
        return wait


class Subscriptions:
    """The connections of one consumer; *listener* gets their events."""

    def __init__(
        self,
        listener: Listener,
        topic: str,
        channel: str,
        config: Config,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        choose: Callable[[list[str]], Iterable[str]],
    ) -> None:
        self._listener = listener
        self._topic, self._channel = topic, channel
        self._name = f"{topic}/{channel}"  # for the log
        self._config = config
        self.pace = RoundPace(config.lookupd_poll_interval)
        self.addresses = AddressBook(nsqds, lookupds, config, self._use_answer, topic=topic)
        self._choose = choose
        self._subscribe = commands.sub(topic, channel)  # raises here for invalid names
        self.open: dict[str, Connection] = {}
        self.leaving: set[Connection] = set()  # to nsqd that are no longer used, until nothing is in flight
        self._leaves: Counter[str] = Counter()  # how often each address was disconnected
        self.rdy: RdyDistribution[str] = RdyDistribution(
            config.max_in_flight, config.low_rdy_idle_timeout, config.low_rdy_timeout
        )
        strategy = config.backoff_strategy
        self.backoff = Backoff(
            config.backoff_multiplier,
            config.max_backoff_duration,
            full_jitter=strategy == "full_jitter",
            strategy=None if isinstance(strategy, str) else partial(self._stop_for, strategy),
        )
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()  # the addresses whose last connection failed
        self._is_pausing = False  # late answers of nsqlookupd are used immediately
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False
        self._starting: set[asyncio.Task[None]] = set()
        self.is_closing = False

    @property
    def all(self) -> list[Connection]:
        """The connections in use, and the closing ones."""
        return [*self.open.values(), *self.leaving]

    # --- connecting

    async def connect_some(self, addresses: list[str]) -> None:
        """Connect to all in parallel; return when all have ended, or one is connected and others are slow.

        Raises the first error when none is connected.
        """
        errors: list[Exception] = []

        async def attempt(address: str) -> None:
            try:
                await self.connect(address)
            except (OSError, ProtocolError, ValueError) as error:
                errors.append(error)
                log.warning("%s (%s) not connected: %s", self._name, address, error)

        self._starting = waiting = {asyncio.create_task(attempt(address)) for address in addresses}
        try:
            while waiting:
                grace = START_GRACE_SECONDS if self.open else None
                done, waiting = await asyncio.wait(
                    waiting, timeout=grace, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break  # discovery tries those that are slow again
                for task in done:
                    if not task.cancelled():  # by start_closing()
                        task.result()
        finally:
            await end(self._starting)
        if errors and not self.open and not self.is_closing:
            raise errors[0]

    async def discover(self) -> None:
        """Connect to the nsqd that are known, round after round, and ask nsqlookupd for others."""
        asking: asyncio.Task[None] | None = None
        # Consumers that start together must not all query at the same times.
        jitter = random.random() * self._config.lookupd_poll_jitter * self._config.lookupd_poll_interval
        try:
            while True:
                if self.addresses.has_lookupds and (asking is None or asking.done()):
                    asking = spawn(self.addresses.query_lookupds(), f"{self._name} ask nsqlookupd")
                    # The configured nsqd wait only briefly for it.
                    await asyncio.wait(
                        [asking], timeout=FIRST_RETRY_SECONDS if self.addresses.configured else None
                    )
                self._is_pausing = True
                self._connect_known()
                # No nsqd yet: the registration of a new topic takes a moment.
                if self.addresses.has_lookupds and not self.addresses.known and not self.pace.is_hurried:
                    self.pace.hurry()
                await self.pace.pause(extra=jitter)
                jitter = 0
                self._is_pausing = False
        finally:
            await end([*self._connecting.values(), *([] if asking is None else [asking])])
            await self.addresses.close()

    def _use_answer(self) -> None:
        """An nsqlookupd has answered; its answer is used at the end of the round, or immediately if late."""
        if self._is_pausing:
            self._connect_known()

    def _connect_known(self) -> None:
        known = self.addresses.known
        self._failing.intersection_update(known)
        for address in self._chosen(known):
            # An nsqd that is slow to answer must not delay the others.
            if address not in self.open and address not in self._connecting:
                self._connecting[address] = spawn(
                    self._try_connect(address), f"{self._name} connect {address}"
                )

    def _chosen(self, addresses: list[str]) -> list[str]:
        """Choose some addresses; an error means none in this round, and does not end the discovery."""
        try:
            return list(self._choose(addresses))
        except Exception:
            log.exception("%s: choose failed for %r", self._name, addresses)
            return []

    async def _try_connect(self, address: str) -> None:
        try:
            await self.connect(address)
        except (OSError, ProtocolError, ValueError) as error:
            log.warning("%s (%s) not connected: %s", self._name, address, error)
            self.addresses.unreachable(address)
            if address not in self._failing:  # the pauses grow after its first failure
                self._failing.add(address)
                self.pace.hurry()
        else:
            self._failing.discard(address)
        finally:
            del self._connecting[address]

    async def connect(self, address: str) -> None:
        leaves = self._leaves[address]
        connection = await connect(
            address, self._config, self._listener, is_configured=address in self.addresses.configured
        )
        connection.topic, connection.channel = self._topic, self._channel
        try:
            await connection.request(self._subscribe)
            if connection.is_closed:
                raise ConnectionLostError(f"{address} closed the connection after SUB")
        except BaseException:
            await connection.close()
            raise
        if address in self.open or self.is_closing or self._leaves[address] > leaves:
            await connection.close()
            return
        self.open[address] = connection
        self._warn_long_rotation()
        self.send_rdy(self.rdy.add(address, connection.negotiated.max_rdy_count, self._now()))

    def _warn_long_rotation(self) -> None:
        """Warn once when there are so many more nsqd than messages in flight that turns are far apart."""
        wait = longest_wait(len(self.open), self.rdy.max_in_flight, self._config.low_rdy_idle_timeout)
        if wait < LONG_WAIT_SECONDS or self._warned:
            return
        self._warned = True
        log.warning(
            "%s: %d nsqd share max_in_flight %d, so a message may wait %.0f s until its nsqd has a turn",
            self._name,
            len(self.open),
            self.rdy.max_in_flight,
            wait,
        )

    async def rotate(self) -> None:
        passing_on: list[Connection] = []  # once their messages in flight are answered
        while True:
            await _any_idle(passing_on, self._config.rdy_redistribute_interval)
            in_flight = {address: link.in_flight for address, link in self.open.items() if link.in_flight}
            self.send_rdy(self.rdy.rotate(self._now(), random.choice, in_flight))
            passing_on = [self.open[address] for address in in_flight if not self.rdy.count(address)]

    def send_rdy(self, changes: dict[str, int]) -> None:
        if self.is_closing:
            return  # CLS has set it to 0
        for address, count in changes.items():
            if connection := self.open.get(address):
                connection.send(commands.rdy(count))

    def lost(self, connection: Connection, error: Exception | None) -> None:
        """A connection has ended; the others take over its share."""
        if self.open.get(connection.address) is not connection:
            return
        del self.open[connection.address]
        self.send_rdy(self.rdy.remove(connection.address, self._now(), random.choice))
        if error is not None and not self.is_closing:
            log.warning("%s (%s) %s", self._name, connection.address, error)
            self.pace.hurry()

    async def disconnect(self, address: str) -> None:
        """Wait until the messages from this nsqd are answered, and disconnect."""
        self._leaves[address] += 1  # for a connection that is being made
        if connection := self.open.pop(address, None):
            self.send_rdy(self.rdy.remove(address, self._now(), random.choice))
            self.leaving.add(connection)
            try:
                await asyncio.wait([connection.request(commands.CLS)])
                await connection.idle.wait()
            finally:
                await connection.close()
                self.leaving.discard(connection)

    def resize(self, max_in_flight: int) -> None:
        self.send_rdy(self.rdy.resize(max_in_flight, self._now()))

    def start_closing(self) -> None:
        """Make no more connections, and ask for no more messages."""
        self.is_closing = True
        for task in self._starting:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # --- backing off

    def note(self, outcome: Outcome) -> None:
        """Pass the outcome to the back-off state, and act on its answer."""
        before = self.backoff.phase
        chance = random.random()
        if outcome is Outcome.FAILED:
            stop_for = self.backoff.failed(chance)
        elif outcome is Outcome.FINISHED:
            stop_for = self.backoff.succeeded(chance)
        else:
            stop_for = self.backoff.continued(chance)
        if self.backoff.phase is before:
            return
        self.send_rdy(self.rdy.enter(self.backoff.phase, self._now(), random.choice))
        if self.backoff.phase is Phase.RUNNING:
            log.info("%s: exiting backoff, returning all to RDY", self._name)
        if stop_for is not None and not self.is_closing:
            log.warning(
                "%s: backing off for %.1fs (backoff level %d), setting all to RDY 0",
                self._name,
                stop_for,
                self.backoff.level,
            )
            self._timer = asyncio.get_running_loop().call_later(stop_for, self._try_one)

    def _try_one(self) -> None:
        self.backoff.waited()
        self.send_rdy(self.rdy.enter(self.backoff.phase, self._now(), random.choice))

    # --- inside

    def _stop_for(self, strategy: Callable[[int], float], level: int) -> float:
        """The pause of the program's strategy; its error must not prevent the pause."""
        try:
            return float(strategy(level))
        except Exception:
            log.exception("%s: the back-off strategy failed; the exponential one is used", self._name)
            return self._config.backoff_multiplier * 2.0**level

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _any_idle(connections: list[Connection], seconds: float) -> None:
    """Wait until one of them has nothing in flight, but at most *seconds*."""
    if not connections:
        await asyncio.sleep(seconds)
        return
    waiting = [asyncio.create_task(connection.idle.wait()) for connection in connections]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(waiting)
