"""FastStream's test kit for this broker: published messages go straight to the handlers, without an nsqd."""

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast, overload

from faststream._internal.testing.broker import EnterType, TestBroker, change_producer

from nsqclient._errors import UnsupportedError
from nsqclient._message import Message, Outcome
from nsqclient._retry import Retry
from nsqclient.integrations.faststream.broker import NsqBroker
from nsqclient.integrations.faststream.publishing import NsqProducer, NsqPublisher
from nsqclient.integrations.faststream.subscribing import NsqSubscriber


class TestNsqBroker(TestBroker[NsqBroker, EnterType], broker=NsqBroker):
    """Delivers each published message once to every channel of its topic, immediately and without its delay.

    async with TestNsqBroker(broker) as tested:
        await tested.publish({"number": 17}, "orders")
        handle.mock.assert_called_once_with({"number": 17})
    """

    @overload
    def __init__(
        self: "TestNsqBroker[NsqBroker]",
        broker: NsqBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "TestNsqBroker[tuple[NsqBroker, ...]]",
        *brokers: NsqBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    def __init__(
        self, *brokers: NsqBroker, with_real: bool = False, connect_only: bool | None = None
    ) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)

    def create_publisher_fake_subscriber(
        self, broker: NsqBroker, publisher: NsqPublisher
    ) -> tuple[NsqSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        return broker.subscriber(publisher.topic, "_test", persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: NsqBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, NsqMemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: NsqBroker, *_args: Any, **_kwargs: Any) -> Any:
        return broker.client


class NsqMemoryProducer(NsqProducer):
    """Encodes as the real one does, and hands the messages to the subscribers."""

    def __init__(self, broker: NsqBroker, brokers: Sequence[NsqBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self.connect(broker._make_producer(), broker.config.fd_config._serializer, broker.config.broker_codec)
        self._brokers = brokers

    async def send(self, topic: str, body: bytes, headers: dict[str, str], delay: float) -> None:
        del delay
        if not body:
            raise ValueError("a message must not be empty")
        if headers and not self.producer.config.headers:
            raise UnsupportedError("headers are published with Config(headers=True) only")
        channels: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            if subscriber.topic == topic and subscriber.channel not in channels:
                channels.add(subscriber.channel)
                await subscriber.process_message(_message(topic, subscriber.channel, body, headers))

    async def send_batch(self, topic: str, bodies: Sequence[bytes], headers: dict[str, str]) -> None:
        for body in bodies:
            await self.send(topic, body, headers, 0)


class _Nowhere:
    """A source of messages that drops the answers of handlers."""

    address = "memory"
    is_closed = False
    retry = Retry()

    def __init__(self, topic: str, channel: str) -> None:
        self.topic, self.channel = topic, channel

    def answer(self, command: bytes, outcome: Outcome, received_at: float) -> None: ...

    def touch(self, message_id: bytes) -> None: ...

    def handling_failed(self, message: Message[object], error: BaseException | None) -> None:
        del message
        if error is not None:
            raise error


def _message(topic: str, channel: str, body: bytes, headers: dict[str, str]) -> Message[bytes]:
    source = _Nowhere(topic, channel)
    message: Message[bytes] = Message(time.time_ns(), 1, b"%016x" % time.monotonic_ns(), body, source, 0)
    if headers:
        message._headers = headers
    return message


def _subscribers(brokers: Iterable[NsqBroker]) -> Iterable[NsqSubscriber]:
    return (cast("NsqSubscriber", one) for broker in brokers for one in broker.subscribers)
