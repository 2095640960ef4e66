"""Passes the messages of a channel to the handlers that FastStream keeps for it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import SetupError
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from nsqclient._consumer import Consumer
from nsqclient._errors import ClosedError
from nsqclient._message import Message
from nsqclient.integrations.faststream.config import (
    NsqBrokerConfig,
    NsqSubscriberConfig,
    NsqSubscriberSpecificationConfig,
)
from nsqclient.integrations.faststream.message import decode_body, parse_message
from nsqclient.integrations.faststream.publishing import NsqReplyPublisher


class NsqSubscriberSpecification(SubscriberSpecification[NsqBrokerConfig, NsqSubscriberSpecificationConfig]):
    """The AsyncAPI description of a subscriber."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        channel = self.config.channel or self._outer_config.channel
        return [f"{self.topic}/{channel}" if channel else self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        message = MessageSpec(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        operation = Operation(message=message, bindings=None)
        spec = SubscriberSpec(
            address=self.topic, description=self.description, operation=operation, bindings=None
        )
        return {self.name: spec}


class NsqSubscriber(SubscriberUsecase[Message[bytes]]):
    """A consumer of one channel; FastStream decides when a message is acknowledged."""

    _outer_config: NsqBrokerConfig

    def __init__(
        self,
        config: NsqSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Message[bytes]],
    ) -> None:
        config.parser, config.decoder = parse_message, decode_body
        super().__init__(config, specification, calls)
        self._config = config
        self._consumer: Consumer[bytes] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._config.topic}"

    @property
    def channel(self) -> str:
        """The channel it was given, or that of its broker."""
        return self._config.channel or self._outer_config.channel

    async def start(self) -> None:
        """Read the channel if there are handlers; without handlers ``get_one`` and iterating read it."""
        await super().start()
        self._post_start()
        if self.calls:
            self._consumer = self._consumer_of(self._handle)
            try:
                await self._consumer.start()
            except BaseException:
                self.running = False
                raise

    async def stop(self) -> None:
        """Take no more messages; the handlers have the broker's graceful timeout to finish."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            closing = consumer.close(self._outer_config.graceful_timeout or 0)
            if (
                consumer._handling.is_called_by_a_handler
            ):  # it raised StopConsume, and cannot wait for its own end
                self._closing = asyncio.create_task(closing)
            else:
                await closing
        elif self._closing is not None:
            await self._closing
        await super().stop()

    async def get_one(self, *, timeout: float = 5) -> StreamMessage[Message[bytes]] | None:
        """The next message, which has to be acknowledged; None when none comes in *timeout* seconds.

        The first call connects before that time begins, and raises the error when it cannot.
        """
        consumer = await self._reading()
        try:
            message = await consumer.get(timeout)
        except (TimeoutError, ClosedError):
            return None
        return await self._parsed(message)

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Message[bytes]]]:
        async for message in await self._reading():
            if (parsed := await self._parsed(message)) is not None:
                yield parsed

    def get_log_context(self, message: StreamMessage[Message[bytes]] | None) -> dict[str, str]:
        message_id = message.message_id if message is not None else ""
        return {"topic": self.topic, "channel": self.channel, "message_id": message_id}

    def _consumer_of(self, handler: Any) -> Consumer[bytes]:
        if not self.channel:
            raise SetupError(
                f"the subscriber of {self.topic} needs a channel: name one, or NsqBroker(..., channel=...)"
                " for all that have none"
            )
        config, outer = self._config, self._outer_config
        return Consumer(
            self.topic,
            self.channel,
            handler,
            nsqd_addresses=outer.nsqd_addresses,
            lookupd_addresses=outer.lookupd_addresses,
            config=outer.client,
            concurrency=config.max_workers,
            auto_answer=False,
            auto_touch=config.auto_touch,
            retry=config.retry,
        )

    async def _handle(self, message: Message[bytes]) -> None:
        if not self.running:
            message.requeue(0)
            return
        await self.consume(message)
        # For example, a message that could not be parsed has no acknowledgement.
        if not message.answered and not message.is_lost and self.ack_policy is not AckPolicy.MANUAL:
            message._source.handling_failed(cast("Message[object]", message), None)

    async def _reading(self) -> Consumer[bytes]:
        """The consumer to read from; after one that could not be started, the next call makes another."""
        if self.calls:
            raise SetupError("messages of a subscriber with handlers go to these")
        if self._consumer is not None:
            return self._consumer
        self._consumer = consumer = self._consumer_of(None)
        try:
            await consumer.start()
        except ClosedError:
            pass  # stop() was called during the start, and reading from it ends
        except BaseException:
            if self._consumer is consumer:
                self._consumer = None
            raise
        return consumer

    async def _parsed(self, message: Message[bytes]) -> StreamMessage[Message[bytes]] | None:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.fd_config.context
        middlewares = (middleware(message, context=context) for middleware in self._broker_middlewares)
        return await process_msg(message, middlewares=middlewares, parser=parser, decoder=decoder)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Iterable[PublisherProto]:
        return (NsqReplyPublisher(self._outer_config.producer, message.reply_to),)
