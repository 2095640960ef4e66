"""Metrics of publishes and handlers for Prometheus.

Needs ``pip install nsqclient[prometheus]``.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from nsqclient._message import Message
from nsqclient._middleware import Middleware, Publication


class Prometheus(Middleware):
    """Make one per program, and pass it to its producers and consumers: ``middlewares=[metrics]``."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._published = Counter(
            "nsqclient_published_messages", "Messages that nsqd confirmed", ["topic"], registry=registry
        )
        self._publish_errors = Counter(
            "nsqclient_publish_errors", "Publishes that failed", ["topic", "error"], registry=registry
        )
        self._publish_seconds = Histogram(
            "nsqclient_publish_seconds", "Time until nsqd confirmed", ["topic"], registry=registry
        )
        self._handled = Counter(
            "nsqclient_handled_messages",
            "Messages a handler has ended with",
            ["topic", "channel", "outcome"],
            registry=registry,
        )
        self._handle_seconds = Histogram(
            "nsqclient_handle_seconds", "Time a handler took", ["topic", "channel"], registry=registry
        )
        self._in_progress = Gauge(
            "nsqclient_handling_messages",
            "Messages that handlers work on",
            ["topic", "channel"],
            registry=registry,
        )

    async def publish(
        self, publication: Publication, call_next: Callable[[Publication], Awaitable[None]]
    ) -> None:
        began = time.perf_counter()
        try:
            await call_next(publication)
        except Exception as error:
            self._publish_errors.labels(publication.topic, type(error).__name__).inc()
            raise
        self._published.labels(publication.topic).inc(len(publication.bodies))
        self._publish_seconds.labels(publication.topic).observe(time.perf_counter() - began)

    async def handle(
        self, message: Message[Any], call_next: Callable[[Message[Any]], Awaitable[object]]
    ) -> object:
        return await self._observe(message.topic, message.channel, 1, lambda: call_next(message))

    async def handle_batch(
        self, messages: list[Message[Any]], call_next: Callable[[list[Message[Any]]], Awaitable[object]]
    ) -> object:
        first = messages[0]
        return await self._observe(first.topic, first.channel, len(messages), lambda: call_next(messages))

    async def _observe(
        self, topic: str, channel: str, count: int, work: Callable[[], Awaitable[object]]
    ) -> object:
        outcome = "failed"
        began = time.perf_counter()
        in_progress = self._in_progress.labels(topic, channel)
        in_progress.inc(count)
        try:
            result = await work()
            if result is not False:
                outcome = "handled"
            return result
        finally:
            in_progress.dec(count)
            self._handle_seconds.labels(topic, channel).observe(time.perf_counter() - began)
            self._handled.labels(topic, channel, outcome).inc(count)
