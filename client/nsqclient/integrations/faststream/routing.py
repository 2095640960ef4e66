"""Declares subscribers and publishers: on a broker, or on a router that a broker includes."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, cast

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy

from nsqclient._message import Message
from nsqclient._retry import Retry
from nsqclient.integrations.faststream.config import (
    NsqBrokerConfig,
    NsqPublisherConfig,
    NsqPublisherSpecificationConfig,
    NsqSubscriberConfig,
    NsqSubscriberSpecificationConfig,
)
from nsqclient.integrations.faststream.publishing import NsqPublisher, NsqPublisherSpecification
from nsqclient.integrations.faststream.subscribing import NsqSubscriber, NsqSubscriberSpecification
from nsqclient.wire.durations import seconds_of


class NsqRegistrator(Registrator[Message[bytes], NsqBrokerConfig]):
    """The decorators that brokers and routers have in common."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        channel: str = "",
        *,
        max_workers: int = 1,
        retry: Retry | None = None,
        auto_touch: bool = False,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> NsqSubscriber:
        """Handle the messages of a channel; without *channel* it is that of the broker.

        Up to *max_workers* calls of the handlers run together. *retry* and *auto_touch* are those of
        :class:`nsqclient.Consumer`.
        """
        outer = cast("NsqBrokerConfig", self.config)
        config = NsqSubscriberConfig(
            _outer_config=outer,
            _ack_policy=ack_policy,
            no_reply=no_reply,
            topic=topic,
            channel=channel,
            max_workers=max_workers,
            retry=retry,
            auto_touch=auto_touch,
        )
        specified = NsqSubscriberSpecificationConfig(
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
            topic=topic,
            channel=channel,
        )
        calls = CallsCollection[Message[bytes]]()
        subscriber = NsqSubscriber(config, NsqSubscriberSpecification(outer, specified, calls), calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        headers: dict[str, Any] | None = None,
        delay: float | timedelta = 0,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> NsqPublisher:
        """Publish to *topic* what the decorated handlers return."""
        outer = cast("NsqBrokerConfig", self.config)
        specified = NsqPublisherSpecificationConfig(
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
            schema_=schema,
            topic=topic,
        )
        config = NsqPublisherConfig(
            _outer_config=outer, topic=topic, headers=headers or {}, delay=seconds_of(delay)
        )
        publisher = NsqPublisher(config, NsqPublisherSpecification(outer, specified))
        super().publisher(publisher, persistent=persistent)
        return publisher


class NsqRoutePublisher(ArgsContainer):
    """A publisher of an :class:`NsqRoute`; its arguments are those of ``broker.publisher``."""


class NsqRoute(SubscriberRoute):
    """A handler for :class:`NsqRouter`; further arguments are those of ``broker.subscriber``."""

    def __init__(
        self,
        call: Callable[..., Any],
        topic: str,
        channel: str = "",
        *,
        publishers: Iterable[NsqRoutePublisher] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, topic, channel, publishers=publishers, **options)


class NsqRouter(NsqRegistrator, BrokerRouter[Message[bytes], NsqBrokerConfig]):
    """Subscribers and publishers for ``broker.include_router``; *prefix* is put before their topics."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[NsqRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[NsqRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        config = NsqBrokerConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            include_in_schema=include_in_schema,
        )
        super().__init__(config=config, handlers=handlers, routers=routers)
