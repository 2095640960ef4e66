"""Tracing and metrics, as the libraries behind the middlewares see them."""

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from nsqclient import Config, Middleware, Producer, ProtocolError, sync
from nsqclient.middlewares.opentelemetry import OpenTelemetry
from nsqclient.middlewares.prometheus import Prometheus
from nsqclient.testing import MemoryNsqd
from tests.support.client import consumer_of
from tests.support.waiting import eventually


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans) -> OpenTelemetry:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return OpenTelemetry(provider)


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("batch", [False, True])
async def test_trace_goes_from_publisher_to_handler_where_there_are_headers(spans, tracing, headers, batch):
    with MemoryNsqd(headers=headers) as nsqd:
        config = Config(headers=headers, max_in_flight=10)
        async with Producer(nsqd.address, config=config, middlewares=[tracing]) as producer:
            await producer.publish("t", b"x")
        consumer = consumer_of(nsqd, config=config, middlewares=[tracing])
        if batch:
            consumer.add_batch_handler(lambda _: None, size=1)
        else:
            consumer.add_handler(lambda _: None)
        async with consumer:
            await eventually(lambda: nsqd.finished("t", "c"), "it was handled")
    published, handled = spans.get_finished_spans()

    assert (published.name, handled.name) == ("publish t", "process t")
    assert handled.attributes["messaging.consumer.group.name"] == "c"
    if batch:
        assert [link.context.trace_id for link in handled.links] == [published.context.trace_id] * headers
    else:
        assert (handled.context.trace_id == published.context.trace_id) == headers


@pytest.mark.parametrize("publishing", ["publish", "multi_publish", "submit", "submit_many", "sync"])
async def test_publishes_carry_their_trace(tracing, publishing):
    with MemoryNsqd(headers=True) as nsqd:
        body = [b"x"] if "many" in publishing or "multi" in publishing else b"x"
        settings = {"config": Config(headers=True), "middlewares": [tracing]}
        if publishing == "sync":
            with sync.Producer(nsqd.address, **settings) as producer:
                await asyncio.to_thread(producer.publish, "t", body)
        else:
            async with Producer(nsqd.address, **settings) as producer:
                await producer.deferred_publish("t", b"y", 1)  # it cannot have headers
                await getattr(producer, publishing)("t", body)
        headers = nsqd.published_headers("t")
    assert "traceparent" in headers.pop()
    assert not any(headers)


async def test_span_tells_that_handler_failed(spans, tracing):
    def fail(message):
        raise ValueError("broken")

    with MemoryNsqd() as nsqd:
        nsqd.publish("t", b"x")
        async with consumer_of(nsqd, fail, middlewares=[tracing]):
            await eventually(lambda: nsqd.requeued("t", "c"), "it was given back")
    [handled] = spans.get_finished_spans()

    assert not handled.status.is_ok
    assert handled.events[0].name == "exception"


async def test_statistics_count_what_was_published_and_handled():
    registry = CollectorRegistry()
    metrics = Prometheus(registry)

    def handle(message):
        if message.body == b"bad":
            raise ValueError(message.body)

    with MemoryNsqd() as nsqd:
        async with Producer(nsqd.address, middlewares=[metrics]) as producer:
            await producer.multi_publish("t", [b"x", b"bad"])
            nsqd.refuse("E_BAD_TOPIC")
            with pytest.raises(ProtocolError):
                await producer.publish("t", b"x")
        config = Config(max_in_flight=10, max_backoff_duration=0)
        async with consumer_of(nsqd, handle, config=config, middlewares=[metrics]):
            await eventually(lambda: nsqd.finished("t", "c") and nsqd.requeued("t", "c"), "both were handled")

    def figure(name, **labels):
        return registry.get_sample_value(name, {"topic": "t", **labels})

    assert figure("nsqclient_published_messages_total") == 2
    assert figure("nsqclient_publish_errors_total", error="ProtocolError") == 1
    assert figure("nsqclient_publish_seconds_count") == 1
    assert figure("nsqclient_handled_messages_total", channel="c", outcome="handled") == 1
    assert figure("nsqclient_handled_messages_total", channel="c", outcome="failed") == 1
    assert figure("nsqclient_handling_messages", channel="c") == 0
    assert figure("nsqclient_handle_seconds_count", channel="c") == 2


async def test_publish_that_times_out_is_error_in_statistics_and_traces(spans, tracing):
    registry = CollectorRegistry()
    with MemoryNsqd() as nsqd:
        async with Producer(nsqd.address, middlewares=[tracing, Prometheus(registry)]) as producer:
            await producer.ping()
            nsqd.freeze()
            for publishing in (
                producer.publish("t", b"x", timeout=0.05),
                producer.multi_publish("t", [b"x"], timeout=0.05),
                producer.deferred_publish("t", b"x", 1, timeout=0.05),
            ):
                with pytest.raises(TimeoutError):
                    await publishing
            nsqd.thaw()

    labels = {"topic": "t", "error": "TimeoutError"}
    assert registry.get_sample_value("nsqclient_publish_errors_total", labels) == 3
    assert [span.status.is_ok for span in spans.get_finished_spans()] == [False] * 3


async def test_time_out_of_publish_is_also_that_of_its_middlewares():
    class Slow(Middleware):
        async def publish(self, publication, go_on):
            await asyncio.sleep(60)

    with MemoryNsqd() as nsqd:
        async with Producer(nsqd.address, middlewares=[Slow()]) as producer:
            with pytest.raises(TimeoutError):
                await producer.publish("t", b"x", timeout=0.05)
