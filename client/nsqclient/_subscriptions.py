"""The connections of a consumer, and how many messages the nsqd of each may send."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nsqclient._backoff import Backoff, Phase
from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ConnectionLostError
from nsqclient._handling import Handling
from nsqclient._links import Links
from nsqclient._listener import Listener
from nsqclient._message import Message, Outcome
from nsqclient._rdy import RdyDistribution, longest_wait
from nsqclient._retry import Retry
from nsqclient._tasks import end
from nsqclient.wire import commands
from nsqclient.wire.errors import E_FIN_FAILED, E_REQ_FAILED, ProtocolError

if TYPE_CHECKING:
    from nsqclient._dead_letters import DeadLetterProducers

log = logging.getLogger("nsqclient")

# How long start() waits for further nsqd when one is connected.
START_GRACE_SECONDS: Final = 1.0

# A warning is logged when messages may wait this long for their nsqd's turn; a few seconds more are usual.
LONG_WAIT_SECONDS: Final = 60.0


class Subscriptions(Links, Listener):
    """The connections of one consumer: *handling* gets their messages, and their events are counted."""

    def __init__(
        self,
        topic: str,
        channel: str,
        config: Config,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        choose: Callable[[list[str]], Iterable[str]],
        retry: Retry,
        handling: Handling,
        dead_letters: "DeadLetterProducers | None",
    ) -> None:
        super().__init__(self, config, nsqds, lookupds, topic=topic)
        self.retry = retry
        self._handling = handling
        self._dead_letters = dead_letters
        self.received = self.finished = self.requeued = 0
        self._topic, self._channel = topic, channel
        self._name = f"{topic}/{channel}"  # for the log
        self._choose = choose
        self._subscribe = commands.sub(topic, channel)  # raises here for invalid names
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
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False
        self.is_closing = False

    # --- connecting

    async def connect_some(self, addresses: list[str]) -> None:
        """Connect to all in parallel; return when all have ended, or one is connected and others are slow.

        Raises the first error when none is connected.
        """
        errors: list[BaseException] = []
        waiting = {self._opening(address) for address in addresses}
        while waiting:
            grace = START_GRACE_SECONDS if self.open else None
            done, waiting = await asyncio.wait(waiting, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break  # those that are slow may still come
            errors += filter(None, (task.exception() for task in done if not task.cancelled()))
        if errors and not self.open and not self.is_closing:
            raise errors[0]

    def _chosen(self) -> list[str]:
        """Choose some addresses; an error means none in this round, and does not end the discovery."""
        addresses = self.roster.addresses
        try:
            return list(self._choose(addresses))
        except Exception:
            log.exception("%s: choose failed for %r", self._name, addresses)
            return []

    def _not_opened(self, address: str, error: Exception) -> None:
        log.warning("%s (%s) not connected: %s", self._name, address, error)

    async def _prepare(self, link: Connection) -> None:
        link.topic, link.channel = self._topic, self._channel
        await link.request(self._subscribe)
        if link.is_closed:
            raise ConnectionLostError(f"{link.address} closed the connection after SUB")

    def _opened(self, link: Connection) -> None:
        self._warn_long_rotation()
        self.send_rdy(self.rdy.add(link.address, link.negotiated.max_rdy_count, self._now()))

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

    def retire(self, link: Connection) -> asyncio.Task[None]:
        self.send_rdy(self.rdy.remove(link.address, self._now(), random.choice))
        return super().retire(link)

    async def _answered(self, link: Connection) -> None:
        await asyncio.wait([link.request(commands.CLS)])
        await link.idle.wait()

    def resize(self, max_in_flight: int) -> None:
        self.send_rdy(self.rdy.resize(max_in_flight, self._now()))

    def start_closing(self) -> None:
        """Make no more connections, and ask for no more messages."""
        self.is_closing = True
        for task in self._connecting.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # --- events of the connections

    def messages_received(self, connection: Connection, messages: list[Message[Any]]) -> None:
        self.received += len(messages)
        self.rdy.heard(connection.address, messages[0].received_at)
        self.roster.succeeded(connection.address)
        self._handling.receive(messages)

    def message_answered(self, outcome: Outcome) -> None:
        if outcome is Outcome.FINISHED:
            self.finished += 1
            if self.backoff.phase is Phase.RUNNING:
                return  # the common path
        elif outcome is Outcome.GIVEN_UP:
            self.finished += 1
            return  # the next message says whether the handler works
        elif outcome is Outcome.DEAD:
            self.finished += 1
            outcome = Outcome.FAILED
        else:
            self.requeued += 1
        self._note(outcome)

    def answer_refused(self, error: ProtocolError) -> None:
        if error.code == E_FIN_FAILED:
            self.finished -= 1
        elif error.code == E_REQ_FAILED:
            self.requeued -= 1

    def handling_failed(self, message: Message[Any], error: BaseException | None) -> None:
        self._handling.failed([message], error)

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        """The other connections take over its share."""
        address = connection.address
        self._handling.forget(connection)
        if self._dead_letters is not None:
            self._dead_letters.disconnect(address)
        if self.open.get(address) is not connection:
            return
        del self.open[address]
        self.send_rdy(self.rdy.remove(address, self._now(), random.choice))
        if error is not None and not self.is_closing:
            log.warning("%s (%s) %s", self._name, address, error)
            self.failed(address)
            self.query_soon()

    # --- backing off

    def _note(self, outcome: Outcome) -> None:
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
