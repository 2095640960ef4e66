"""Reads a channel of a topic from every nsqd that has it, and answers each message for the handler."""

import asyncio
import logging
import math
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, Self

from nsqclient._backoff import Phase
from nsqclient._config import DEFAULT_MAX_IN_FLIGHT, Config
from nsqclient._errors import ClosedError
from nsqclient._handling import Handling
from nsqclient._jobs import BatchHandler, Decode, Handler, Job
from nsqclient._message import Message, T
from nsqclient._middleware import Middleware
from nsqclient._retry import Retry
from nsqclient._signals import watched
from nsqclient._subscriptions import Subscriptions
from nsqclient._tasks import end, spawn
from nsqclient.wire import commands
from nsqclient.wire.address import address_list
from nsqclient.wire.durations import seconds_of

if TYPE_CHECKING:
    from nsqclient._dead_letters import DeadLetterProducers

log = logging.getLogger("nsqclient")

# A consumer is starved when this share of its allowed messages is in flight: few more come before answers.
STARVED_SHARE: Final = 0.85

# How long even a hurried close waits for nsqd to confirm that it sends no more.
FAREWELL_SECONDS: Final = 1.0
# An nsqd that does not confirm it in this time does not answer at all.
MAX_FAREWELL_SECONDS: Final = 5.0

# Touches in one message timeout: enough that a delayed touch still comes before the timeout.
_TOUCHES_PER_TIMEOUT: Final = 3


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Messages received, finished and requeued since the consumer was made, and its connections now.

    An answer that nsqd refuses, because it came after the message timeout, does not count.
    """

    received: int
    finished: int
    requeued: int
    connections: int


class Consumer(Generic[T]):
    """Calls *handler* with each message: a return sends FIN, an exception sends REQ and starts backing off.

    The handler is a coroutine function, or a plain function that is quick. One that blocks is called in
    threads (*in_threads*). :meth:`add_handler` takes further handlers and :meth:`add_batch_handler` handlers
    of several messages. Without a handler the consumer is iterated over. A handler may answer the message
    itself with ``finish()`` or ``requeue()``; with ``auto_answer=False`` it must, and may do so after its
    return. With ``auto_touch`` messages that take long are touched, as far as nsqd allows.

    *retry* says how often a message is tried, after which delays, and what follows; by default it is tried
    until it works. *decode* makes ``message.value`` from the body. *middlewares* are called around the
    handler. *choose* may drop or reorder the discovered addresses.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler[T] | None = None,
        *,
        nsqd_addresses: Sequence[str] | str = (),
        lookupd_addresses: Sequence[str] | str = (),
        config: Config | None = None,
        concurrency: int = 1,
        in_threads: bool = False,
        auto_answer: bool = True,
        auto_touch: bool = False,
        retry: Retry | None = None,
        decode: Decode[T] | None = None,
        middlewares: Sequence[Middleware] = (),
        choose: Callable[[list[str]], Iterable[str]] = list,
    ) -> None:
        nsqds, lookupds = address_list(nsqd_addresses), address_list(lookupd_addresses)
        if not nsqds and not lookupds:
            raise ValueError("a consumer needs addresses of nsqd or of nsqlookupd")
        self.topic = topic
        self.channel = channel
        self._name = f"{topic}/{channel}"  # for the log
        self.config = config or Config()
        self.retry = retry or Retry()
        self._auto_touch = auto_touch
        self._dead_letters = _dead_letters(self.retry.dead_letters_of(topic, channel), self.config)
        self._handling = Handling(
            self._name,
            retry=self.retry,
            auto_answer=auto_answer,
            auto_touch=auto_touch,
            is_starved=lambda: self.is_starved,
            publish_dead_letter=self._dead_letters.publish if self._dead_letters is not None else None,
            decode=decode,
            middlewares=middlewares,
        )
        self._subscriptions = Subscriptions(
            topic,
            channel,
            self.config,
            nsqds,
            lookupds,
            choose,
            self.retry,
            self._handling,
            self._dead_letters,
        )
        self._connections = self._subscriptions.open
        if handler is not None:
            self._handling.add(Job(handler, concurrency, in_threads))
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False
        self._start_error: BaseException | None = None
        self._iterated = False  # without a handler no messages are asked for before
        self._closing = False
        self._closed = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurried = False
        self._last_wait: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        if self._handling.has_jobs:
            raise RuntimeError("this consumer has a handler, which gets the messages")
        return self

    async def __anext__(self) -> Message[T]:
        """The next message, which has to be answered (``async with message.process():`` does that)."""
        if not self._started and not self._closing:
            try:
                await self.start()
            except ClosedError:
                if not self._closing:
                    raise
                # Another task has closed it during the wait.
                raise StopAsyncIteration from None
        if not self._iterated:
            self._iterated = True
            self.change_max_in_flight(self.config.max_in_flight)
        # Several tasks may iterate. Messages that can no longer be answered are skipped.
        while (message := await self._handling.next()) is not None:
            if not message.is_lost:
                return message
        if self._start_error is not None:
            raise ClosedError("the consumer could not be started; make another one") from self._start_error
        raise StopAsyncIteration

    async def get(self, timeout: float | timedelta | None = None) -> Message[T]:
        """The next message, which has to be answered.

        Raises TimeoutError when none comes within *timeout* seconds, and ClosedError when the consumer is
        closed. Without *timeout* it waits.
        """
        async with asyncio.timeout(None if timeout is None else seconds_of(timeout)):
            try:
                return await anext(aiter(self))
            except StopAsyncIteration:
                raise ClosedError("the consumer is closed") from None

    async def drain(self, idle: float | timedelta = 2) -> AsyncIterator[Message[T]]:
        """Yields the messages that are there; ends when none has come for *idle* seconds.

        The time of a back-off does not count. It does not wait for deferred messages. With more nsqd than
        ``max_in_flight``, *idle* has to be above ``low_rdy_idle_timeout``.
        """
        while True:
            paused = self._is_paused
            try:
                message = await self.get(idle)
            except TimeoutError:
                if not paused and not self._is_paused:
                    return
            except ClosedError:
                return
            else:
                yield message

    def __repr__(self) -> str:
        return f"<Consumer {self.topic}/{self.channel} of {', '.join(self._connections) or 'no nsqd'}>"

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return list(self._connections)

    @property
    def in_flight(self) -> int:
        """The number of messages received and not answered."""
        return sum(connection.in_flight for connection in self._subscriptions.all)

    @property
    def msg_timeout(self) -> float:
        """The seconds after which an unanswered message is delivered again; infinite without an nsqd."""
        timeouts = (connection.negotiated.msg_timeout for connection in self._connections.values())
        return min((timeout for timeout in timeouts if timeout > 0), default=math.inf) / 1000

    @property
    def is_starved(self) -> bool:
        """Whether some nsqd has sent nearly all it may, and sends few more until some are answered."""
        return any(
            connection.in_flight > 0
            and connection.in_flight >= STARVED_SHARE * self._subscriptions.rdy.count(address)
            for address, connection in self._connections.items()
        )

    @property
    def is_backing_off(self) -> bool:
        """Whether it has stopped or slowed down because the handler fails."""
        return self._subscriptions.backoff.phase is not Phase.RUNNING

    @property
    def _is_paused(self) -> bool:
        """Whether the back-off admits no message, not even the trial after a pause."""
        return self._subscriptions.backoff.phase is Phase.STOPPED

    @property
    def stats(self) -> ConsumerStats:
        counts = self._subscriptions
        return ConsumerStats(counts.received, counts.finished, counts.requeued, len(self._connections))

    # --- settings

    def add_handler(self, handler: Handler[T], *, concurrency: int = 1, in_threads: bool = False) -> None:
        """Add a handler; each message goes to one that is free.

        With ``in_threads`` it is a plain function that may block. Up to *concurrency* calls run concurrently.
        """
        self._handling.add(Job(handler, concurrency, in_threads))

    def add_batch_handler(
        self,
        handler: BatchHandler[T],
        *,
        size: int,
        seconds: float | timedelta = 0.25,
        concurrency: int = 1,
        in_threads: bool = False,
    ) -> None:
        """Add a handler of lists of up to *size* messages; a list waits at most *seconds* to fill up.

        A return finishes the unanswered messages of the list, an exception requeues them.
        """
        self._handling.add(Job(handler, concurrency, in_threads, size, seconds_of(seconds)))

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Change the number of messages that all nsqd together may have in flight; 0 pauses."""
        self._subscriptions.resize(max_in_flight)

    async def connect_to_nsqd(self, address: str) -> None:
        """Add an nsqd to read from; it is connected again whenever the connection is lost."""
        if self._started:
            await self._subscriptions.add(address)
        else:
            self._subscriptions.addresses.add(address)

    async def disconnect_from_nsqd(self, address: str) -> None:
        """Remove an nsqd that was given by address: wait until its messages are answered, then disconnect.

        Raises ValueError when it was not given.
        """
        await self._subscriptions.remove(address)

    def connect_to_nsqlookupd(self, address: str) -> None:
        """Add an nsqlookupd to ask for nsqd."""
        self._subscriptions.add_lookupd(address)

    def disconnect_from_nsqlookupd(self, address: str) -> None:
        """Stop asking this nsqlookupd; connections to the nsqd it has named stay until they are lost."""
        self._subscriptions.remove_lookupd(address)

    # --- start and stop

    async def run(
        self,
        *,
        signals: Iterable[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
        drain_seconds: float | timedelta = 30,
    ) -> None:
        """Handle messages until one of *signals* arrives or :meth:`stop` is called, then close.

        A second signal ends the wait for the handlers. With no signals only :meth:`stop` ends it.
        """

        def on_signal() -> None:
            if self._stop.is_set():
                self._stop_waiting()
            self._stop.set()

        with watched(signals, on_signal):
            try:
                if not self._started:
                    await self.start()
                await self._stop.wait()
            finally:
                await self.close(drain_seconds)

    def stop(self) -> None:
        """End :meth:`run`; may be called in a handler."""
        self._stop.set()

    async def start(self) -> None:
        """Connect to the nsqd that were given by address, and begin to look for others.

        Returns when all of them are connected, or one of them is and the others did not connect in time.
        Raises the error of a failed connection when none of them can be reached.
        """
        if self._closing or self._started:
            raise RuntimeError("a consumer is started once")
        self._started = True
        self._fit_max_in_flight()
        self._handling.start()
        try:
            if fixed := self._subscriptions.addresses.configured:
                await self._subscriptions.connect_some(fixed)
        except BaseException as error:
            if not self._closing:
                self._start_error = error
            await self.close(drain_seconds=0)
            raise
        if self._closing:
            raise ClosedError("the consumer was closed while it started")
        for name, work in (
            ("discovery", self._subscriptions.keep_connected()),
            ("rdy", self._subscriptions.rotate()),
        ):
            self._tasks.append(spawn(work, f"{self._name} {name}"))
        if self._auto_touch:
            self._tasks.append(spawn(self._touch(), f"{self._name} touch"))

    def _fit_max_in_flight(self) -> None:
        """Raise max_in_flight to what the handlers can have in hand, unless the settings give a value."""
        if not self._handling.has_jobs and not self._iterated:
            self._subscriptions.resize(0)
        demand = self._handling.demand
        if demand <= self.config.max_in_flight or self.config.max_in_flight == 0:
            return
        if self.config.max_in_flight == DEFAULT_MAX_IN_FLIGHT:
            self._subscriptions.resize(demand)
            return
        log.warning(
            "%s: the handlers can have %d messages in hand, and max_in_flight lets in %d",
            self._name,
            demand,
            self.config.max_in_flight,
        )

    async def close(self, drain_seconds: float | timedelta = 30) -> None:
        """Take no more messages, let the handlers finish those received, and requeue the rest.

        This takes at most *drain_seconds* and a little more for closing the connections. Raises RuntimeError
        in a handler, which would wait for itself: a handler calls :meth:`stop`.
        """
        if self._handling.is_called_by_a_handler:
            raise RuntimeError("a handler cannot wait for its own end: call stop(), which run() waits for")
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        self._stop.set()
        self._subscriptions.start_closing()
        try:
            touching = [task for task in self._tasks if task.get_name().endswith("touch")]
            await end([task for task in self._tasks if task not in touching])
            await self._subscriptions.stop_connecting()
            await self._drain(seconds_of(drain_seconds))
            await end(touching)
        finally:
            await self._handling.stop()
            if self._dead_letters is not None:
                await self._dead_letters.close()
            await asyncio.gather(*(connection.close() for connection in self._subscriptions.all))
            self._closed.set()

    async def _drain(self, seconds: float) -> None:
        """Stop deliveries from nsqd, and give the handlers *seconds* to finish."""
        if not self._handling.has_jobs:
            self._handling.requeue_waiting()  # no iteration waits any more
        deadline = self._now() + seconds
        # CLS first, so that requeued messages are not sent here again. Its answer follows the last message.
        # Closing connections have already sent it, and nsqd accepts it only once.
        if farewells := [connection.request(commands.CLS) for connection in self._connections.values()]:
            await asyncio.wait(farewells, timeout=min(max(seconds, FAREWELL_SECONDS), MAX_FAREWELL_SECONDS))
        if self._now() < deadline:
            self._handling.expect_no_more()
        connections = self._subscriptions.all
        try:
            async with asyncio.timeout_at(-math.inf if self._hurried else deadline) as self._last_wait:
                for connection in connections:
                    await connection.idle.wait()
        except TimeoutError:
            if in_flight := sum(one.in_flight for one in connections if not one.is_closed):
                messages = "message" if in_flight == 1 else "messages"
                log.warning("%s: %d %s not handled in time", self._name, in_flight, messages)
        self._handling.requeue_waiting()

    def _stop_waiting(self) -> None:
        """Stop the wait of close() for the handlers."""
        self._hurried = True
        if self._last_wait is not None and not self._last_wait.expired():
            self._last_wait.reschedule(self._now())

    # --- inside

    async def _touch(self) -> None:
        """Touch messages repeatedly once they have used a share of the message timeout."""
        while True:
            timeouts = [connection.negotiated.msg_timeout for connection in self._connections.values()]
            pause = min(timeouts, default=1000) / 1000 / _TOUCHES_PER_TIMEOUT
            await asyncio.sleep(pause)
            for message in self._handling.received_before(self._now() - pause / 2):
                message.touch()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _dead_letters(topic: str, config: Config) -> "DeadLetterProducers | None":
    if not topic:
        return None
    # Imported here because a producer imports much and few consumers need one.
    from nsqclient._dead_letters import DeadLetterProducers

    return DeadLetterProducers(topic, config)
