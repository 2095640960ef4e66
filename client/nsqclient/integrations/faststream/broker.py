"""The broker: one producer for all publishes, and a consumer for each subscriber."""

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from faststream._internal.basic_types import LoggerProto
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
from faststream.exceptions import FeatureNotSupportedException
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.security import BaseSecurity
from faststream.specification.schema import BrokerSpec
from faststream.specification.schema.extra import Tag, TagDict

from nsqclient._config import Config
from nsqclient._message import Message
from nsqclient._producer import Producer
from nsqclient.integrations.faststream.config import NsqBrokerConfig
from nsqclient.integrations.faststream.publishing import NO_REQUESTS, NsqProducer, NsqPublishCommand
from nsqclient.integrations.faststream.routing import NsqRegistrator
from nsqclient.wire.address import address_list
from nsqclient.wire.errors import NSQError


class NsqLoggerStorage(DefaultLoggerStorage):
    """The access log of the subscribers; its columns are as wide as their longest names."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 5, "channel": 7}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        if (logger := self._get_logger_ref()) is not None:
            return logger
        columns = " | ".join(f"%({name})-{width}s" for name, width in self._widths.items())
        logger = get_broker_logger(
            name="nsq",
            default_context=dict.fromkeys(self._widths, ""),
            message_id_ln=16,
            fmt=f"%(asctime)s %(levelname)-8s - {columns} | %(message_id)-16s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(logger)
        return logger


class NsqBroker(NsqRegistrator, BrokerUsecase[Message[bytes], Producer, NsqBrokerConfig]):
    """``broker = NsqBroker("127.0.0.1:4150", channel="billing")``.

    Subscribers that name no channel read *channel*. *config* has the settings for publishing and reading;
    with ``Config(headers=True)`` and nsqd that support headers, messages carry their content type,
    correlation id, ``reply_to`` and headers. *publish_timeout* and *retry_seconds* are those of
    :class:`nsqclient.Producer`; the other arguments are FastStream's own.
    """

    def __init__(
        self,
        nsqd_addresses: Sequence[str] | str = (),
        *,
        lookupd_addresses: Sequence[str] | str = (),
        channel: str = "",
        config: Config | None = None,
        publish_timeout: float | timedelta = 10,
        retry_seconds: float | timedelta = 0,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[NsqRegistrator] = (),
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        security: BaseSecurity | None = None,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        client = config or Config()
        nsqds, lookupds = address_list(nsqd_addresses), address_list(lookupd_addresses)
        self._make_producer = partial(
            Producer,
            nsqds,
            lookupd_addresses=lookupds,
            config=client,
            publish_timeout=publish_timeout,
            retry_seconds=retry_seconds,
        )
        self._make_producer()  # raises here for wrong arguments
        outer = NsqBrokerConfig(
            nsqd_addresses=tuple(nsqds),
            lookupd_addresses=tuple(lookupds),
            channel=channel,
            client=client,
            producer=NsqProducer(parser, decoder),
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            logger=make_logger_state(
                logger=logger, log_level=log_level, default_storage_cls=NsqLoggerStorage
            ),
            fd_config=FastDependsConfig(
                use_fastdepends=apply_types,
                serializer=serializer,
                provider=provider or dependency_provider,
                context=context or ContextRepo(),
            ),
            broker_dependencies=dependencies,
            graceful_timeout=graceful_timeout,
            ack_policy=ack_policy,
            id_generator=id_generator,
            extra_context={"broker": self},
        )
        specification = BrokerSpec(
            url=[specification_url] if specification_url else [*nsqds, *lookupds],
            protocol=protocol or "nsq",
            protocol_version=protocol_version or "V2",
            description=description,
            tags=tags,
            security=security,
        )
        super().__init__(config=outer, specification=specification, routers=routers)

    @property
    def client(self) -> Producer:
        """The producer, for calls that FastStream does not have; IncorrectState while not connected."""
        producer: NsqProducer = self.config.producer  # type: ignore[assignment]
        return producer.producer

    async def _connect(self) -> Producer:
        producer = self._make_producer()
        encoder: NsqProducer = self.config.producer  # type: ignore[assignment]
        encoder.connect(producer, self.config.fd_config._serializer, self.config.broker_codec)
        return producer

    async def start(self) -> None:
        """Connect and read; raises the error of a failed connection when no given nsqd can be reached."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Let the handlers finish, wait until their publishes are confirmed, and disconnect."""
        await super().stop(exc_type, exc_val, exc_tb)
        if self._connection is not None:
            await self._connection.close(self.config.graceful_timeout or 0)
            self._connection = None
            encoder: NsqProducer = self.config.producer  # type: ignore[assignment]
            encoder.disconnect()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether an nsqd can be reached to publish to."""
        if self._connection is None:
            return False
        try:
            await self._connection.ping(timeout=timeout)
        except (NSQError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        delay: float | timedelta = 0,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> None:
        """Publish one message and wait for its confirmation; it is delivered after *delay* seconds."""
        command = NsqPublishCommand(
            message,
            topic=topic,
            delay=delay,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
        )
        await self._basic_publish(command, producer=self.config.producer)

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        if not messages:
            return
        command = NsqPublishCommand(
            *messages,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
        )
        await self._basic_publish_batch(command, producer=self.config.producer)

    async def request(  # type: ignore[override]
        self, message: Any = None, topic: str = "", **options: Any
    ) -> Any:
        """Always raises FeatureNotSupportedException, because NSQ has no answers to messages."""
        del message, topic, options
        raise FeatureNotSupportedException(NO_REQUESTS)
