"""Publishes from threads."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Self

from nsqclient import _producer as asynchronous
from nsqclient._config import Config
from nsqclient._errors import ClosedError
from nsqclient._middleware import Middleware
from nsqclient._publications import Body, body_bytes
from nsqclient._requests import Confirmation, awaitable
from nsqclient._threads import LoopThread, PublishOutcome, generation
from nsqclient.sync._intake import Intake
from nsqclient.wire.durations import seconds_of

# Objects of the parent process, kept after a fork: closing them would disturb the parent, whose sockets they
# share.
_inherited: Final[list[object]] = []


class Producer:
    """Publishes from threads; see :class:`nsqclient.Producer` for what the arguments mean.

    It may be used in a forked process: the child opens its own connections, and publishes that were under
    way stay with the parent.
    """

    def __init__(
        self,
        nsqd_addresses: Sequence[str] | str = (),
        *,
        lookupd_addresses: Sequence[str] | str = (),
        config: Config | None = None,
        retry_seconds: float | timedelta = 0,
        spread: bool = False,
        publish_timeout: float | timedelta = 10,
        max_unconfirmed: int = 10_000,
        max_unconfirmed_bytes: int = 32 << 20,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._make: Callable[[], asynchronous.Producer] = lambda: asynchronous.Producer(
            nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            retry_seconds=retry_seconds,
            spread=spread,
            publish_timeout=publish_timeout,
            max_unconfirmed=max_unconfirmed,
            max_unconfirmed_bytes=max_unconfirmed_bytes,
            middlewares=middlewares,
        )
        self._room = {"most_messages": max_unconfirmed, "most_bytes": max_unconfirmed_bytes}
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._producer = self._make()
        self._thread = LoopThread("nsq producer")
        self._intake = Intake(self._producer, self._thread, **self._room)
        self._ends = threading.RLock()  # as in a consumer
        # Publishes that go to the event loop one by one, because they are more than a topic and a body.
        self._others: set[Future[None]] = set()
        if self._closed:
            self._intake.close()
        self._generation = generation.number  # last, because other threads go on when they see it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        body: Body,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish one message and wait for its confirmation; raises TimeoutError after *timeout* seconds."""
        if headers is not None:
            self._call(self._here.publish(topic, body, headers=headers, timeout=timeout))
            return
        self._thread.check_caller()
        seconds = None if timeout is None else seconds_of(timeout)
        outcome = self._submit(topic, body, seconds, in_bursts=False)
        try:
            outcome.result(seconds)
        except TimeoutError:
            outcome.cancel()
            raise

    def multi_publish(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        self._call(self._here.multi_publish(topic, bodies, headers=headers, timeout=timeout))

    def deferred_publish(
        self, topic: str, body: Body, delay: float | timedelta, *, timeout: float | timedelta | None = None
    ) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        self._call(self._here.deferred_publish(topic, body, delay, timeout=timeout))

    def submit(
        self,
        topic: str,
        body: Body,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> "Future[None]":
        """Send one message and return a future that ends when the message is confirmed, or fails.

        Blocks while too much is under way, at most *timeout* seconds. It does not block in a callback of such
        a future, nor with headers.
        """
        if headers:
            return self._later(self._here.submit(topic, body, headers=headers))
        return self._submit(topic, body, None if timeout is None else seconds_of(timeout), in_bursts=True)

    def submit_many(self, topic: str, bodies: Sequence[Body]) -> "Future[None]":
        """Like :meth:`submit`, for several messages of which nsqd takes all or none; it does not block."""
        return self._later(self._here.submit_many(topic, bodies))

    def submit_deferred(self, topic: str, body: Body, delay: float | timedelta) -> "Future[None]":
        """Like :meth:`submit`, for a message delivered after *delay* seconds; it does not block."""
        return self._later(self._here.submit_deferred(topic, body, delay))

    def _submit(self, topic: str, body: Body, timeout: float | None, *, in_bursts: bool) -> PublishOutcome:
        checked = body if body.__class__ is bytes else body_bytes(body)
        if not checked:
            raise ValueError("a message must not be empty")
        if self._generation != generation.number:
            self._begin_again()
        outcome = PublishOutcome()
        if not in_bursts:
            outcome.prepare_to_wait()
        self._intake.put(topic, checked, outcome, timeout, in_bursts=in_bursts)
        return outcome

    def _later(self, submitting: Coroutine[Any, Any, Confirmation]) -> "Future[None]":
        if self._closed:
            submitting.close()
            refused = PublishOutcome()
            refused.set_exception(ClosedError("the producer is closed"))
            return refused

        async def confirmed() -> None:
            await (await submitting)

        outcome = asyncio.run_coroutine_threadsafe(confirmed(), self._thread.loop)
        self._others.add(outcome)
        outcome.add_done_callback(self._others.discard)
        return outcome

    def ping(self, *, timeout: float | timedelta | None = None) -> None:
        """Connect unless connected already; raises the error that prevents it."""
        self._call(self._here.ping(timeout=timeout))

    def flush(self, *, timeout: float | timedelta | None = None) -> None:
        """Wait until every publish is confirmed or has failed; errors are in the futures of submit()."""
        self._call(self._flush(), timeout)

    def close(self, drain_seconds: float | timedelta = 30) -> None:
        """Wait up to *drain_seconds* for the publishes under way, then disconnect."""
        if self._generation != generation.number:
            self._closed = True  # it was never used in this process
            _inherited.append((self._producer, self._thread))
            return
        self._thread.check_caller()
        self._intake.close()
        with self._ends:
            if self._closed:
                return
            self._closed = True
            try:
                self._thread.call(self._finish(seconds_of(drain_seconds)))
            finally:
                self._thread.stop()

    # --- which nsqd

    @property
    def nsqd_address(self) -> str:
        """The nsqd that gets the next message; empty while none is known."""
        return self._here.nsqd_address

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return self._here.nsqd_addresses

    @property
    def unconfirmed(self) -> int:
        """The number of unconfirmed messages that the event loop has taken over."""
        return self._here.unconfirmed

    def connect_to_nsqd(self, address: str) -> None:
        """Add an nsqd to publish to. Raises the error of a failed connection; it is tried again later."""
        self._call(self._here.connect_to_nsqd(address))

    def disconnect_from_nsqd(self, address: str) -> None:
        """Remove an nsqd that was given by address, and wait for the publishes under way to it.

        Raises ValueError when it was not given.
        """
        self._call(self._here.disconnect_from_nsqd(address))

    def connect_to_nsqlookupd(self, address: str) -> None:
        """Add an nsqlookupd to ask for nsqd."""
        here = self._here
        self._thread.do(here.connect_to_nsqlookupd, address)

    def disconnect_from_nsqlookupd(self, address: str) -> None:
        """Stop asking this nsqlookupd, and disconnect from the nsqd that only it has named."""
        here = self._here
        self._thread.do(here.disconnect_from_nsqlookupd, address)

    # --- inside

    @property
    def _here(self) -> asynchronous.Producer:
        """The producer of this process."""
        if self._generation != generation.number:
            self._begin_again()
        return self._producer

    def _begin_again(self) -> None:
        with generation.adopting:
            if self._generation != generation.number:
                _inherited.append((self._producer, self._thread, self._intake))
                self._begin()

    def _call(self, work: Any, timeout: float | timedelta | None = None) -> None:
        self._thread.call(work, None if timeout is None else seconds_of(timeout))

    async def _flush(self) -> None:
        await self._intake.flush()
        if others := list(self._others):
            await asyncio.wait([awaitable(other) for other in others])
        await self._producer.flush()

    async def _finish(self, drain_seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._flush()
        self._intake.end()
        await self._producer.close(0)
