"""FastStream's handlers read from NSQ and publish to it; its own test kit runs them without an nsqd."""

import asyncio

import pytest
from faststream import AckPolicy, FastStream, TestApp
from faststream.exceptions import FeatureNotSupportedException, NackMessage, SetupError, StopConsume
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from nsqclient import Config, Fixed, HandshakeError, Retry, UnsupportedError
from nsqclient.integrations.faststream import (
    NsqBroker,
    NsqMessage,
    NsqRoute,
    NsqRoutePublisher,
    NsqRouter,
    TestNsqBroker,
)
from nsqclient.testing import MemoryNsqd
from tests.support.waiting import eventually

CALM = Config(max_in_flight=100, max_backoff_duration=0)


class Order(BaseModel):
    number: int


@pytest.fixture
def nsqd(memory_nsqd):
    return memory_nsqd


@pytest.fixture
def extended():
    with MemoryNsqd(headers=True) as nsqd:
        yield nsqd


def broker_of(nsqd, **settings):
    return NsqBroker(nsqd.address, **{"channel": "billing", "config": CALM, "logger": None, **settings})


async def test_handler_gets_its_model_and_its_result_is_published(nsqd):
    broker = broker_of(nsqd)

    @broker.subscriber("orders")
    @broker.publisher("paid")
    async def pay(order: Order) -> Order:
        return Order(number=order.number + 1)

    async with broker:
        await broker.start()
        await broker.publish(Order(number=17), "orders")
        await eventually(lambda: nsqd.finished("orders", "billing"), "it is finished")

    assert nsqd.published("paid") == [b'{"number":18}']


async def test_body_without_headers_is_json_text_or_bytes(nsqd):
    broker, seen = broker_of(nsqd), []

    @broker.subscriber("t")
    async def handle(body) -> None:
        seen.append(body)

    async with broker:
        await broker.start()
        for body in ({"a": 1}, "text", b"\xff"):
            await broker.publish(body, "t")
        await eventually(lambda: len(seen) == 3, "all are handled")

    assert seen == [{"a": 1}, "text", b"\xff"]


async def test_headers_arrive_with_body_and_answer_goes_to_reply_to(extended):
    broker, seen = broker_of(extended, config=Config(headers=True)), []

    @broker.subscriber("t")
    async def handle(body: str, message: NsqMessage) -> str:
        seen.append((message.headers, message.correlation_id, message.content_type, await message.decode()))
        return body.upper()

    async with broker:
        await broker.start()
        await broker.publish("x", "t", headers={"who": "me"}, correlation_id="c", reply_to="answers")
        await eventually(lambda: extended.published("answers") == [b"X"], "it was answered")

    assert seen == [({"who": "me"}, "c", "text/plain", "x")]


async def test_headers_to_nsqd_without_them_are_refused_by_broker_and_its_double(nsqd):
    broker = broker_of(nsqd)
    async with broker:
        with pytest.raises(UnsupportedError):
            await broker.publish("x", "t", headers={"a": "b"})
    async with TestNsqBroker(broker_of(nsqd)) as double:
        with pytest.raises(UnsupportedError):
            await double.publish("x", "t", headers={"a": "b"})


async def test_failing_message_is_redelivered_and_ends_in_dead_letters(extended):
    nsqd = extended
    broker, attempts = broker_of(nsqd), []

    @broker.subscriber("t", retry=Retry(2, Fixed(10)))
    async def handle(body, message: NsqMessage) -> None:
        attempts.append(message.raw_message.attempts)
        raise ValueError(body)

    async with broker:
        await broker.start()
        await broker.publish("x", "t")
        await eventually(lambda: nsqd.deferred("t", "billing"), "it was put off")
        nsqd.advance(10)
        await eventually(lambda: nsqd.finished("t", "billing"), "it was given up")

    assert attempts == [1, 2]
    assert nsqd.published("t.billing.dead") == [b"x"]
    assert nsqd.published_headers("t.billing.dead")[0]["dead-reason"] == "ValueError: x"


@pytest.mark.parametrize("unusable", ["body", "message"])
async def test_unusable_message_becomes_dead_letter_after_last_attempt(nsqd, unusable):
    async def parser(message):
        raise ValueError(message.body)

    broker = broker_of(nsqd, **({"parser": parser} if unusable == "message" else {}))

    @broker.subscriber("t", retry=Retry(1, Fixed(600)))
    async def handle(order: Order) -> None: ...

    async with broker:
        await broker.start()
        await broker.publish("no order", "t")
        await eventually(lambda: nsqd.finished("t", "billing"), "it was given up")

    assert nsqd.published("t.billing.dead") == [b"no order"]
    assert nsqd.requeued("t", "billing") == 0


async def test_nacked_message_is_not_finished_before_it_is_dead_letter(nsqd):
    broker = broker_of(nsqd)

    @broker.subscriber("t", retry=Retry(1, Fixed(600)))
    async def handle(body, message: NsqMessage) -> None:
        await message.nack()

    async with broker:
        await broker.start()
        nsqd.publish("t", b"x")
        nsqd.refuse(*["E_PUB_FAILED"] * 10)
        await eventually(lambda: nsqd.requeued("t", "billing"), "it could not be kept")

    assert nsqd.finished("t", "billing") == nsqd.published("t.billing.dead") == []


@pytest.mark.parametrize("policy", [AckPolicy.ACK, AckPolicy.ACK_FIRST, AckPolicy.REJECT_ON_ERROR])
async def test_policy_may_have_what_failed_finished(nsqd, policy):
    broker = broker_of(nsqd, ack_policy=policy)

    @broker.subscriber("t")
    async def handle(body) -> None:
        raise ValueError(body)

    async with broker:
        await broker.start()
        await broker.publish("x", "t")
        await eventually(lambda: nsqd.finished("t", "billing"), "it is finished")

    assert nsqd.requeued("t", "billing") == 0


async def test_handler_can_put_message_off(nsqd):
    broker, seen = broker_of(nsqd), []

    @broker.subscriber("t")
    async def handle(body) -> None:
        seen.append(body)
        if len(seen) == 1:
            raise NackMessage(delay=30)

    async with broker:
        await broker.start()
        await broker.publish("x", "t")
        await eventually(lambda: nsqd.deferred("t", "billing") == [30], "it was put off")
        nsqd.advance(30)
        await eventually(lambda: nsqd.finished("t", "billing"), "it came again")


async def test_stopping_lets_handlers_finish(nsqd):
    broker, begun, go_on = broker_of(nsqd), asyncio.Event(), asyncio.Event()

    @broker.subscriber("t")
    async def handle(body) -> None:
        begun.set()
        await go_on.wait()

    await broker.start()
    await broker.publish("x", "t")
    await begun.wait()
    stopping = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(10):
        await stopping

    assert nsqd.finished("t", "billing") == [b"x"]


async def test_handler_can_end_its_subscriber(nsqd):
    broker, seen = broker_of(nsqd), []

    @broker.subscriber("t")
    async def handle(body) -> None:
        seen.append(body)
        raise StopConsume

    async with broker:
        await broker.start()
        for body in (b"1", b"2", b"3"):
            await broker.publish(body, "t")
        await eventually(lambda: nsqd.depth("t", "billing") == 2, "the subscriber is gone")

    # The message that ended the subscriber failed, so it comes again later.
    assert (len(seen), len(nsqd.deferred("t", "billing"))) == (1, 1)


async def test_delays_and_batches_are_published(nsqd):
    broker = broker_of(nsqd)

    @broker.subscriber("t")
    async def handle(body) -> None: ...

    async with broker:
        await broker.start()
        await broker.publish("later", "t", delay=60)
        await broker.publish_batch(1, 2, topic="t")
        await eventually(lambda: len(nsqd.finished("t", "billing")) == 2, "the batch is handled")
        assert nsqd.deferred("t", "billing") == [60]


async def test_headers_of_deferred_message_are_refused_and_not_lost(nsqd):
    broker = broker_of(nsqd)

    with pytest.raises(UnsupportedError, match="a deferred message cannot have headers"):
        broker.publisher("t", headers={"key": "value"}, delay=60)
    async with broker:
        await broker.start()
        for said in ({"headers": {"key": "value"}}, {"reply_to": "answers"}):
            with pytest.raises(UnsupportedError, match="a deferred message cannot have headers"):
                await broker.publish("later", "t", delay=60, **said)


async def test_subscriber_without_handlers_is_read_from(nsqd):
    broker = broker_of(nsqd, config=Config(read_timeout=1, heartbeat_interval=-1))
    subscriber = broker.subscriber("t", "looking")
    async with broker:
        nsqd.freeze()
        with pytest.raises(HandshakeError):
            await subscriber.get_one(timeout=0.05)
        nsqd.thaw()
        assert await subscriber.get_one(timeout=0.05) is None
        await broker.publish("x", "t")
        message = await subscriber.get_one()
        await message.ack()
        await eventually(lambda: nsqd.finished("t", "looking") == [b"x"], "it is finished")
        await subscriber.stop()


async def test_subscriber_without_channel_raises_error(nsqd):
    broker = broker_of(nsqd, channel="")

    @broker.subscriber("t")
    async def handle(body) -> None: ...

    with pytest.raises(SetupError, match="the subscriber of t needs a channel"):
        await broker.start()
    await broker.stop()


async def test_request_is_refused_with_sentence(nsqd):
    async with broker_of(nsqd) as broker:
        with pytest.raises(FeatureNotSupportedException, match="NSQ has no answers"):
            await broker.request("x", "t")


async def test_ping_says_whether_nsqd_is_there(nsqd):
    async with broker_of(nsqd) as broker:
        assert await broker.ping(timeout=5)
    async with NsqBroker("127.0.0.1:1", logger=None) as broker:
        assert not await broker.ping(timeout=5)


async def test_routers_bring_handlers_and_put_their_prefix_before_topics(nsqd):
    seen = []

    async def handle(body) -> str:
        seen.append(body)
        return "done"

    router = NsqRouter("eu.", [NsqRoute(handle, "orders", publishers=[NsqRoutePublisher("paid")])])
    broker = broker_of(nsqd, routers=[router])
    async with broker:
        await broker.start()
        await broker.publish("x", "eu.orders")
        await eventually(lambda: nsqd.published("eu.paid"), "it was handled")

    assert (seen, nsqd.finished("eu.orders", "billing")) == (["x"], [b"x"])


async def test_kit_gives_message_to_each_channel_once():
    broker, seen = NsqBroker("127.0.0.1:1", channel="billing", logger=None), []
    published = broker.publisher("paid")

    @broker.subscriber("orders")
    @published
    async def pay(order: Order) -> int:
        seen.append("billing")
        return order.number

    @broker.subscriber("orders", "audit")
    async def look(order: Order) -> None:
        seen.append("audit")

    @broker.subscriber("orders", "audit")
    async def look_too(order: Order) -> None:
        seen.append("audit")

    app = FastStream(broker)
    async with TestNsqBroker(broker, connect_only=True) as tested, TestApp(app):
        await tested.publish(Order(number=17), "orders", delay=60)
        published.mock.assert_called_once_with(17)
        pay.mock.assert_called_once_with({"number": 17})

    assert sorted(seen) == ["audit", "billing"]


async def test_kit_raises_handler_errors():
    broker = NsqBroker("127.0.0.1:1", channel="c", logger=None)

    @broker.subscriber("t")
    async def handle(body: int) -> None:
        raise ValueError(body)

    async with TestNsqBroker(broker) as tested:
        with pytest.raises(ValueError, match="17"):
            await tested.publish(17, "t")
        with pytest.raises(ValueError, match="must not be empty"):
            await tested.publish("", "t")


def test_page_of_asyncapi_names_topics_channels_and_models():
    broker = NsqBroker("127.0.0.1:4150", channel="billing", logger=None)

    @broker.subscriber("orders")
    @broker.publisher("paid")
    async def pay(order: Order) -> Order:
        return order

    page = AsyncAPI(broker).to_specification().to_jsonable()

    assert page["servers"]["development"]["protocol"] == "nsq"
    assert set(page["channels"]) == {"orders.billing:Pay", "paid:Publisher"}
    assert "Order" in page["components"]["schemas"]
