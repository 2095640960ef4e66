"""Publishes to nsqd what handlers return and programs publish."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable, PublisherMiddleware
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from nsqclient._errors import UnsupportedError
from nsqclient._producer import Producer
from nsqclient.integrations.faststream.config import (
    NsqBrokerConfig,
    NsqPublisherConfig,
    NsqPublisherSpecificationConfig,
)
from nsqclient.integrations.faststream.message import decode_body, headers_of, parse_message
from nsqclient.wire.durations import seconds_of

NO_REQUESTS = "NSQ has no answers to requests: publish, and subscribe to the topic of the answers"


def _refuse_headers(delay: float | timedelta, headers: dict[str, Any] | None, reply_to: str = "") -> None:
    """A header of the caller must not be lost. Raises UnsupportedError."""
    if delay and (headers or reply_to):
        raise UnsupportedError("a deferred message cannot have headers")


class NsqPublishCommand(BatchPublishCommand):
    """One or more messages for one topic."""

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        topic: str = "",
        delay: float | timedelta = 0,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        _publish_type: PublishType = PublishType.PUBLISH,
    ) -> None:
        """A *delay* excludes *headers* and *reply_to*. Raises UnsupportedError."""
        _refuse_headers(delay, headers, reply_to)
        super().__init__(
            body,
            *bodies,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.delay = seconds_of(delay)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "NsqPublishCommand":
        if isinstance(cmd, NsqPublishCommand):
            return cmd
        body, bodies = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *bodies,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class NsqProducer(ProducerProto[NsqPublishCommand]):
    """Encodes and publishes messages; raises IncorrectState while the broker is not connected."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode_body)
        self.codec: CodecProto = DefaultCodec()
        self._serializer: Any = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer, serializer: Any, codec: CodecProto | None) -> None:
        self._producer = producer
        self._serializer = serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        self._producer = None

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("the broker is not connected: use it in `async with`, or call `connect()`")
        return self._producer

    async def encoded(self, cmd: NsqPublishCommand, body: Any) -> tuple[bytes, dict[str, str]]:
        """The body and the headers to publish; without ``Config(headers=True)`` only those of the caller,
        which the client refuses with UnsupportedError.
        """
        data, content_type = await self.codec.encode(body, self._serializer)
        if self.producer.config.headers:
            return data, headers_of(
                cmd.headers,
                content_type=content_type,
                correlation_id=cmd.correlation_id,
                reply_to=cmd.reply_to,
            )
        return data, headers_of(cmd.headers, content_type=None, correlation_id=None, reply_to=cmd.reply_to)

    async def publish(self, cmd: NsqPublishCommand) -> None:
        body, headers = await self.encoded(cmd, cmd.body)
        await self.send(cmd.destination, body, headers, cmd.delay)

    async def publish_batch(self, cmd: NsqPublishCommand) -> None:
        encoded = [await self.encoded(cmd, body) for body in cmd.batch_bodies]
        await self.send_batch(
            cmd.destination, [body for body, _ in encoded], encoded[0][1] if encoded else {}
        )

    async def request(self, cmd: NsqPublishCommand) -> Any:
        del cmd
        raise FeatureNotSupportedException(NO_REQUESTS)

    async def send(self, topic: str, body: bytes, headers: dict[str, str], delay: float) -> None:
        if delay:
            # nsqd takes no headers with a deferred message: those that FastStream adds are left out.
            await self.producer.deferred_publish(topic, body, delay)
        else:
            await self.producer.publish(topic, body, headers=headers or None)

    async def send_batch(self, topic: str, bodies: Sequence[bytes], headers: dict[str, str]) -> None:
        await self.producer.multi_publish(topic, bodies, headers=headers or None)


class NsqPublisherSpecification(PublisherSpecification[NsqBrokerConfig, NsqPublisherSpecificationConfig]):
    """The AsyncAPI description of a publisher."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payload)
        operation = Operation(message=message, bindings=None)
        description = self.config.description_
        spec = PublisherSpec(address=self.topic, description=description, operation=operation, bindings=None)
        return {self.name: spec}


class NsqPublisher(PublisherUsecase):
    """Publishes to one topic what the decorated handlers return and what :meth:`publish` is given."""

    _outer_config: NsqBrokerConfig

    def __init__(self, config: NsqPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        _refuse_headers(config.delay, config.headers)
        self._topic = config.topic
        self.headers = config.headers
        self.delay = config.delay

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        delay: float | timedelta | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> None:
        """Publish one message and wait for its confirmation."""
        command = NsqPublishCommand(
            message,
            topic=topic or self.topic,
            delay=self.delay if delay is None else delay,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to,
        )
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=())

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        if cmd.body is None:
            return  # a handler without a result; NSQ has no empty messages
        command = NsqPublishCommand.from_cmd(cmd)
        command.destination = self.topic
        command.add_headers(self.headers, override=False)
        command.delay = command.delay or self.delay
        await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, message: Any, *args: Any, **kwargs: Any) -> Any:
        """Always raises FeatureNotSupportedException, because NSQ has no answers to messages."""
        del message, args, kwargs
        raise FeatureNotSupportedException(NO_REQUESTS)


class NsqReplyPublisher(FakePublisher):
    """Publishes what a handler returns to the topic that the message names as ``reply_to``."""

    def __init__(self, producer: ProducerProto[Any], topic: str) -> None:
        super().__init__(producer=producer)
        self._topic = topic

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        if cmd.body is not None:
            await super()._publish(cmd, _extra_middlewares=_extra_middlewares)

    def patch_command(self, cmd: PublishCommand) -> NsqPublishCommand:
        command = NsqPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._topic
        return command
