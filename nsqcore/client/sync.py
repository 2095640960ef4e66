"""The same client for programs without an event loop: its own loop runs in a thread, calls block.

Everything here may be called from any thread.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

from nsqcore.client import consumer as asynchronous
from nsqcore.client import producer
from nsqcore.client.config import Config
from nsqcore.client.consumer import ConsumerStats
from nsqcore.client.delivery import Delivery
from nsqcore.client.errors import ClosedError
from nsqcore.client.handling import ThreadSafe

T = TypeVar("T")

Handler = Callable[[Delivery], None]
BatchHandler = Callable[[list[Delivery]], None]

# Waiting without end cannot be interrupted on every system, waiting again and again can.
_PATIENCE_SECONDS: Final = 3600.0


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        # A program that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the loop and wait for its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this call would wait for itself: it was made on the event loop of the client")
        if self.loop.is_closed():
            work.close()
            raise ClosedError("it is closed")
        running = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


class Producer:
    """Publishes from threads; see :class:`nsqcore.client.Producer` for what the arguments mean."""

    def __init__(
        self,
        *nsqd_addresses: str,
        lookupd_addresses: Sequence[str] = (),
        config: Config | None = None,
        retry_seconds: float = 0,
        spread: bool = False,
        max_unconfirmed: int = 10_000,
    ) -> None:
        self._producer = producer.Producer(
            *nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            retry_seconds=retry_seconds,
            spread=spread,
            max_unconfirmed=max_unconfirmed,
        )
        self._room = threading.BoundedSemaphore(max_unconfirmed)
        self._submitted: deque[tuple[str, bytes, Future[None]]] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._wake = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._thread = _LoopThread("nsq producer")
        self._sending = asyncio.run_coroutine_threadsafe(self._send(), self._thread.loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, topic: str, body: bytes) -> None:
        """Publish one message and wait for its confirmation."""
        self.submit(topic, body).result()

    def multi_publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        self._thread.call(self._producer.multi_publish(topic, bodies))

    def deferred_publish(self, topic: str, body: bytes, delay: float) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        self._thread.call(self._producer.deferred_publish(topic, body, delay))

    def submit(self, topic: str, body: bytes) -> "Future[None]":
        """Send one message; the future ends when it is confirmed, or fails.

        Blocks while too much is under way.
        """
        self._room.acquire()
        outcome: Future[None] = Future()
        outcome.add_done_callback(self._has_room)
        with self._lock:
            if self._closed:
                outcome.set_exception(ClosedError("the producer is closed"))
                return outcome
            self._submitted.append((topic, body, outcome))
            if len(self._submitted) == 1:  # otherwise it is awake already
                self._thread.loop.call_soon_threadsafe(self._wake.set)
        return outcome

    def ping(self) -> None:
        """Connect if need be, or raise what prevents it."""
        self._thread.call(self._producer.ping())

    def flush(self) -> None:
        """Wait until nothing is under way; errors are in the futures that submit() returned."""
        self._thread.call(self._flush())

    def close(self, drain_seconds: float = 30) -> None:
        """Wait for what is under way, that long at most, and hang up."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._thread.call(self._finish(drain_seconds))
        finally:
            self._thread.stop()

    # --- on the loop

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._submitted:
                # It stays in the queue while it waits for room, or flush() would not see it.
                topic, body, outcome = self._submitted[0]
                try:
                    confirmation = await self._producer.submit(topic, body)
                except asyncio.CancelledError:
                    _settle(outcome, ClosedError("the producer was closed before this was sent"))
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, it is for whoever submitted
                    _settle(outcome, error)
                else:
                    confirmation.add_done_callback(partial(_pass_on, outcome))
                finally:
                    self._submitted.popleft()
            self._all_sent.set()

    async def _flush(self) -> None:
        while self._submitted:
            self._all_sent.clear()
            await self._all_sent.wait()
        await self._producer.flush()

    async def _finish(self, drain_seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._flush()
        self._sending.cancel()
        await asyncio.sleep(0)
        await self._producer.close(drain_seconds=0 if self._producer.unconfirmed else drain_seconds)
        while self._submitted:
            _settle(self._submitted.popleft()[2], ClosedError("the producer was closed before this was sent"))

    def _has_room(self, _outcome: "Future[None]") -> None:
        self._room.release()


class Consumer:
    """Calls a handler, which may block, in threads; or, without a handler, is iterated over.

        with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
            for message in consumer:
                print(message.body)
                message.finish()

    See :class:`nsqcore.client.Consumer` for what the arguments mean.
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
    ) -> None:
        self._consumer = asynchronous.Consumer(
            topic,
            channel,
            nsqd_addresses=nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            auto_answer=auto_answer and handler is not None,
            auto_touch=auto_touch,
            give_up=give_up,
        )
        self._received: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._has_handler = handler is not None
        if handler is not None:
            self._consumer.add_handler(handler, concurrency=concurrency, in_threads=True)
        self._closing = False
        self._closed = threading.Event()
        self._thread = _LoopThread(f"nsq consumer {topic}/{channel}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        """The messages as they come, until the consumer is closed; each has to be answered."""
        if self._has_handler:
            raise RuntimeError("this consumer has a handler, which gets the messages")
        while (delivery := self._received.get()) is not None:
            if not delivery.is_lost:
                yield delivery
        self._received.put(None)  # for others that iterate

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return self._consumer.nsqd_addresses

    @property
    def stats(self) -> ConsumerStats:
        return self._consumer.stats

    def add_handler(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Have messages handled by this one as well: each goes to whichever handler is free."""
        self._has_handler = True
        self._consumer.add_handler(handler, concurrency=concurrency, in_threads=True)

    def add_batch_handler(
        self, handler: BatchHandler, *, size: int, seconds: float = 0.25, concurrency: int = 1
    ) -> None:
        """Have messages handled in lists of up to *size*, for which it waits *seconds* at most."""
        self._has_handler = True
        self._consumer.add_batch_handler(
            handler, size=size, seconds=seconds, concurrency=concurrency, in_threads=True
        )

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Share out another number from now on; 0 pauses."""
        self._thread.loop.call_soon_threadsafe(self._consumer.change_max_in_flight, max_in_flight)

    def start(self) -> None:
        """Begin to look for nsqd; raises what failed when a fixed address cannot be reached."""
        if not self._has_handler:
            self._consumer.add_handler(self._hand_over)
        try:
            self._thread.call(self._consumer.start())
        except BaseException:
            self._end()
            raise

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until another thread closes the consumer; False when the time is up first."""
        if seconds is not None:
            return self._closed.wait(seconds)
        while not self._closed.wait(_PATIENCE_SECONDS):
            pass
        return True

    def close(self, drain_seconds: float = 30) -> None:
        """Take no more, let the handlers finish what is here, give back what they cannot in time."""
        if self._closed.is_set():
            return
        self._closing = True
        self._give_back()
        try:
            self._thread.call(self._consumer.close(drain_seconds))
        finally:
            self._end()

    def _end(self) -> None:
        self._closed.set()
        self._received.put(None)
        self._thread.stop()

    def _give_back(self) -> None:
        """Requeue what was not taken by an iteration."""
        with suppress(queue.Empty):
            while True:
                delivery = self._received.get_nowait()
                if delivery is not None:
                    delivery.requeue()

    def _hand_over(self, delivery: Delivery) -> None:
        if self._closing:
            delivery.requeue()
            return
        delivery._source = ThreadSafe(delivery._source, self._thread.loop)
        self._received.put(delivery)


def _pass_on(outcome: "Future[None]", confirmation: "asyncio.Future[bytes]") -> None:
    if confirmation.cancelled():
        outcome.cancel()
    else:
        _settle(outcome, confirmation.exception())


def _settle(outcome: "Future[None]", error: BaseException | None) -> None:
    with suppress(InvalidStateError):  # whoever submitted has cancelled it
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)
