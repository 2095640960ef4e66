"""Publishes from threads."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial, wraps
from typing import Any, Concatenate, Final, Self

from nsqclient import _producer as asynchronous
from nsqclient._errors import ClosedError
from nsqclient._requests import Body, Confirmation, awaitable, body_bytes
from nsqclient._threads import (
    LoopThread,
    P,
    PublishOutcome,
    blocking,
    generation,
    on_loop,
    same_arguments,
)
from nsqclient.sync._intake import Intake
from nsqclient.wire.durations import seconds_of

# Objects of the parent process stay referenced after a fork. Closing them would disturb the parent, because
# they share its sockets.
_inherited: Final[list[object]] = []


def _later(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Confirmation]],
) -> "Callable[Concatenate[Any, P], Future[None]]":
    """The same method, which does not block: its future ends when the message is confirmed, or fails."""

    @wraps(method)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> "Future[None]":
        outcome: Future[None] = face._send(method(face._here, *args, **kwargs))
        return outcome

    return call


class Producer:
    """Publishes from threads; see :class:`nsqclient.Producer` for what the arguments mean.

    It may be used in a forked process: the child opens its own connections, and publishes that were under
    way stay with the parent.
    """

    @same_arguments(asynchronous.Producer)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._make: Callable[[], asynchronous.Producer] = partial(
            asynchronous.Producer, *arguments, **options
        )
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._producer = self._make()
        self._thread = LoopThread("nsq producer")
        self._intake = Intake(self._producer, self._thread)
        self._ends = threading.RLock()  # as in a consumer
        # Publishes that go to the event loop one by one, because they are more than a topic and a body.
        self._others: set[Future[None]] = set()
        if self._closed:
            self._intake.close()
        self._generation = generation.number  # last, because other threads continue when they see it

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
            self._publish(topic, body, headers=headers, timeout=timeout)
            return
        self._thread.check_caller()
        seconds = None if timeout is None else seconds_of(timeout)
        outcome = self._submit(topic, body, seconds, in_bursts=False)
        try:
            outcome.result(seconds)
        except TimeoutError:
            outcome.cancel()
            raise

    _publish = blocking(asynchronous.Producer.publish)
    multi_publish = blocking(asynchronous.Producer.multi_publish)
    deferred_publish = blocking(asynchronous.Producer.deferred_publish)

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
            return self._send(self._here.submit(topic, body, headers=headers))
        return self._submit(topic, body, None if timeout is None else seconds_of(timeout), in_bursts=True)

    submit_many = _later(asynchronous.Producer.submit_many)
    submit_deferred = _later(asynchronous.Producer.submit_deferred)
    ping = blocking(asynchronous.Producer.ping)

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

    def _send(self, submitting: Coroutine[Any, Any, Confirmation]) -> "Future[None]":
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

    def flush(self, *, timeout: float | timedelta | None = None) -> None:
        """Wait until every publish is confirmed or has failed; errors are in the futures of submit()."""
        producer = self._here
        self._thread.call(self._flush(producer), None if timeout is None else seconds_of(timeout))

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

    connect_to_nsqd = blocking(asynchronous.Producer.connect_to_nsqd)
    disconnect_from_nsqd = blocking(asynchronous.Producer.disconnect_from_nsqd)
    connect_to_nsqlookupd = on_loop(asynchronous.Producer.connect_to_nsqlookupd)
    disconnect_from_nsqlookupd = on_loop(asynchronous.Producer.disconnect_from_nsqlookupd)

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

    async def _flush(self, producer: asynchronous.Producer) -> None:
        await self._intake.flush()
        if others := list(self._others):
            await asyncio.wait([awaitable(other) for other in others])
        await producer.flush()

    async def _finish(self, drain_seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._flush(self._producer)
        self._intake.end()
        await self._producer.close(0)
