"""A consumer that handles messages in threads, or is iterated over."""

import queue
import signal as signals_of_the_system
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Self

from nsqclient import _consumer as asynchronous
from nsqclient._config import Config
from nsqclient._consumer import ConsumerStats
from nsqclient._errors import ClosedError
from nsqclient._jobs import Decode, Job
from nsqclient._message import Message, T
from nsqclient._middleware import Middleware
from nsqclient._retry import Retry
from nsqclient._thread_safe import ThreadSafe, works_for
from nsqclient._threads import LoopThread, Mailbox, blocking, on_loop

if TYPE_CHECKING:
    from nsqclient._in_threads import HandlerThreads

Handler = Callable[[Message[T]], None]
BatchHandler = Callable[[list[Message[T]]], None]

# On some systems a wait without a timeout cannot be interrupted, but repeated waits can.
_PATIENCE_SECONDS: Final = 3600.0
# A signal that arrives just before a wait does not interrupt it, and its handler runs after it.
_LATE_SECONDS: Final = 1.0


class Consumer(Generic[T]):
    """Calls *handler*, which may block, in threads; without a handler it is iterated over.

        with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
            for message in consumer:
                print(message.body)
                message.finish()

    See :class:`nsqclient.Consumer` for what the arguments mean.
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
        auto_answer: bool = True,
        auto_touch: bool = False,
        retry: Retry | None = None,
        decode: Decode[T] | None = None,
        middlewares: Sequence[Middleware] = (),
        choose: Callable[[list[str]], Iterable[str]] = list,
    ) -> None:
        if handler is not None:
            Job(handler, concurrency, in_threads=True)  # raises for wrong arguments before a thread starts
        if retry is not None and callable(retry.then):
            retry = replace(retry, then=partial(self._give_up, Job(retry.then, concurrency, in_threads=True)))
        self._here: asynchronous.Consumer[T] = asynchronous.Consumer(
            topic,
            channel,
            nsqd_addresses=nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            auto_answer=auto_answer,
            auto_touch=auto_touch,
            retry=retry,
            decode=decode,
            middlewares=middlewares,
            choose=choose,
        )
        self._give_up_threads: HandlerThreads | None = None
        self._started = False
        if handler is not None:
            self._here.add_handler(handler, concurrency=concurrency, in_threads=True)
        self._closed = threading.Event()
        # Held by the one thread that closes; others wait until it is done. The handler of a signal that
        # interrupts that thread may close too.
        self._ends = threading.RLock()
        # Not an Event: the handler of a signal would wait for the lock of the thread that it interrupts.
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = LoopThread(f"nsq consumer {topic}/{channel}")
        self._mailbox = Mailbox(self._thread.loop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message[T]]:
        """Yields messages as they arrive, until the consumer is closed; each has to be answered."""
        with suppress(ClosedError):
            while True:
                yield self.get()

    def get(self, timeout: float | timedelta | None = None) -> Message[T]:
        """The next message, which has to be answered.

        Raises TimeoutError when none comes within *timeout* seconds, and ClosedError when the consumer is
        closed. Without *timeout* it waits.
        """
        message = self._here._handling.take()  # without the way to the event loop and back
        if message is None:
            message = self._thread.call(self._here.get(timeout))
        message._source = ThreadSafe(message._source, self._mailbox)
        return message

    def drain(self, idle: float | timedelta = 2) -> Iterator[Message[T]]:
        """Yields the messages that are there; ends when none has come for *idle* seconds.

        See :meth:`nsqclient.Consumer.drain`.
        """
        with suppress(ClosedError):
            while True:
                paused = self._here._is_paused
                try:
                    message = self.get(idle)
                except TimeoutError:
                    if not paused and not self._here._is_paused:
                        return
                else:
                    yield message

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return self._here.nsqd_addresses

    @property
    def in_flight(self) -> int:
        """The number of messages received and not answered."""
        return self._here.in_flight

    @property
    def msg_timeout(self) -> float:
        """The seconds after which an unanswered message is delivered again; infinite without an nsqd."""
        return self._here.msg_timeout

    @property
    def is_starved(self) -> bool:
        """Whether some nsqd has sent nearly all it may, and sends few more until some are answered."""
        return self._here.is_starved

    @property
    def is_backing_off(self) -> bool:
        """Whether it has stopped or slowed down because the handler fails."""
        return self._here.is_backing_off

    @property
    def stats(self) -> ConsumerStats:
        return self._here.stats

    def add_handler(self, handler: Handler[T], *, concurrency: int = 1) -> None:
        """Add a handler; each message goes to a free one. Up to *concurrency* calls run together."""
        self._here.add_handler(handler, concurrency=concurrency, in_threads=True)

    def add_batch_handler(
        self, handler: BatchHandler[T], *, size: int, seconds: float | timedelta = 0.25, concurrency: int = 1
    ) -> None:
        """Add a handler of lists of up to *size* messages; a list waits at most *seconds* to fill up."""
        self._here.add_batch_handler(
            handler, size=size, seconds=seconds, concurrency=concurrency, in_threads=True
        )

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Change the number of messages that all nsqd together may have in flight; 0 pauses."""
        self._thread.loop.call_soon_threadsafe(self._here.change_max_in_flight, max_in_flight)

    connect_to_nsqd = blocking(asynchronous.Consumer.connect_to_nsqd)
    disconnect_from_nsqd = blocking(asynchronous.Consumer.disconnect_from_nsqd)
    connect_to_nsqlookupd = on_loop(asynchronous.Consumer.connect_to_nsqlookupd)
    disconnect_from_nsqlookupd = on_loop(asynchronous.Consumer.disconnect_from_nsqlookupd)

    def start(self) -> None:
        """Connect to the nsqd that were given by address, and begin to look for others.

        Raises the error of a failed connection when none of the given nsqd can be reached.
        """
        if self._thread.is_inherited:
            raise RuntimeError("it was made before this process was forked; make it in the child process")
        self._started = True
        try:
            self._thread.call(self._here.start())
        except BaseException:
            with self._ends:
                self._end()
            raise

    def run(
        self,
        *,
        signals: Sequence[signals_of_the_system.Signals] = (
            signals_of_the_system.SIGINT,
            signals_of_the_system.SIGTERM,
        ),
        drain_seconds: float | timedelta = 30,
    ) -> None:
        """Handle messages until one of *signals* arrives or :meth:`stop` is called, then close.

        Signals reach the main thread only; in another thread pass none and call :meth:`stop`.
        """
        before = {one: signals_of_the_system.signal(one, lambda *_: self.stop()) for one in signals}
        try:
            if not self._started:
                self.start()
            self._wait_for_stop()
        finally:
            for one, handler in before.items():
                signals_of_the_system.signal(one, handler)
            self.close(drain_seconds)

    def stop(self) -> None:
        """End :meth:`run`; may be called in a handler, also one of a signal."""
        self._stops.put(None)

    def _wait_for_stop(self) -> None:
        while True:
            with suppress(queue.Empty):
                self._stops.get(timeout=_LATE_SECONDS)
                return

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until another thread closes the consumer; False when *seconds* pass before."""
        if seconds is not None:
            return self._closed.wait(seconds)
        while not self._closed.wait(_PATIENCE_SECONDS):
            pass
        return True

    def close(self, drain_seconds: float | timedelta = 30) -> None:
        """Take no more messages, let the handlers finish those received, and requeue the rest.

        Raises RuntimeError in a handler, which would wait for itself: a handler calls :meth:`stop`.
        """
        if self._thread.is_inherited:
            return
        if self._here._handling.is_called_by_a_handler or works_for(self):
            raise RuntimeError("a handler cannot wait for its own end: call stop(), which run() waits for")
        self._thread.check_caller()
        self.stop()
        with self._ends:
            if self._closed.is_set():
                return
            try:
                self._thread.call(self._here.close(drain_seconds))
            finally:
                self._end()

    def _end(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        if self._give_up_threads is not None:
            self._give_up_threads.stop()
        self._thread.stop()

    async def _give_up(self, job: Job, message: Message[T]) -> None:
        """Run *job* for a failed message in a thread, because it may block like a handler."""
        if self._give_up_threads is None:
            from nsqclient._in_threads import HandlerThreads

            name = f"{self._here.topic}/{self._here.channel} give up"
            self._give_up_threads = HandlerThreads(self, job, name)
        await self._give_up_threads.call(message)
