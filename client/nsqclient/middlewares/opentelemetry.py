"""Spans around publishes and handlers, joined into one trace by headers where nsqd supports them.

Needs ``pip install nsqclient[otel]``.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from nsqclient._message import Message
from nsqclient._middleware import Middleware, Publication

_SYSTEM: Final[dict[str, str]] = {"messaging.system": "nsq"}


class OpenTelemetry(Middleware):
    """Makes spans: ``Producer(..., middlewares=[OpenTelemetry()])``, and the same for a consumer.

    With ``Config(headers=True)`` and an nsqd that supports headers, the trace continues from the publisher to
    the handler. Otherwise each has a trace of its own.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("nsqclient", tracer_provider=tracer_provider)

    async def publish(
        self, publication: Publication, call_next: Callable[[Publication], Awaitable[None]]
    ) -> None:
        attributes: dict[str, str | int] = {
            **_SYSTEM,
            "messaging.destination.name": publication.topic,
            "messaging.operation.name": "publish",
            "messaging.batch.message_count": len(publication.bodies),
        }
        with self._tracer.start_as_current_span(
            f"publish {publication.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            if publication.takes_headers:
                propagate.inject(publication.headers)
            await call_next(publication)

    async def handle(
        self, message: Message[Any], call_next: Callable[[Message[Any]], Awaitable[object]]
    ) -> object:
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=propagate.extract(dict(message.headers)),
            kind=SpanKind.CONSUMER,
            attributes={
                **self._of(message),
                "messaging.message.id": message.id.decode(errors="replace"),
                "messaging.message.body.size": len(message.body),
                "messaging.nsq.attempts": message.attempts,
            },
        ) as span:
            result = await call_next(message)
            if result is False:
                span.set_status(Status(StatusCode.ERROR, "the handler returned False"))
            return result

    async def handle_batch(
        self, messages: list[Message[Any]], call_next: Callable[[list[Message[Any]]], Awaitable[object]]
    ) -> object:
        contexts = (
            trace.get_current_span(propagate.extract(dict(message.headers))).get_span_context()
            for message in messages
        )
        with self._tracer.start_as_current_span(
            f"process {messages[0].topic}",
            kind=SpanKind.CONSUMER,
            attributes={**self._of(messages[0]), "messaging.batch.message_count": len(messages)},
            links=[Link(context) for context in contexts if context.is_valid],
        ):
            return await call_next(messages)

    @staticmethod
    def _of(message: Message[Any]) -> dict[str, str]:
        return {
            **_SYSTEM,
            "messaging.destination.name": message.topic,
            "messaging.consumer.group.name": message.channel,
            "messaging.operation.name": "process",
            "server.address": message.nsqd,
        }
