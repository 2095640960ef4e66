"""What the asynchronous client and the one for threads do alike: one test for both."""

import asyncio
from datetime import timedelta

import pytest

from bench.ports import free_port
from nsqclient import ClosedError, Config, UnreachableError
from nsqclient.testing import MemoryNsqd
from tests.support.client import Bodies, Face, message_count
from tests.support.waiting import eventually


@pytest.fixture
def nsqd(memory_nsqd):
    return memory_nsqd


@pytest.fixture(params=["asyncio", "threads"])
def face(request):
    return Face(request.param)


# --- producers


async def test_publishing_returns_when_nsqd_has_message(cluster, face):
    nsqd = cluster.nsqd()
    async with face.producer(nsqd.tcp_address) as producer:
        await producer.ping()
        await producer.publish("t", b"1")
        await producer.multi_publish("t", [b"2", b"3"])
        await producer.deferred_publish("t", b"4", delay=0.001)

        assert message_count(nsqd) == 4


@pytest.mark.parametrize("connected", [False, True])
async def test_refused_message_fails_no_other_submitted_message(cluster, face, connected):
    nsqd = cluster.nsqd("--max-msg-size=10")
    async with face.producer(nsqd.tcp_address) as producer:
        if connected:
            await producer.ping()
        sizes = [11 if n in {3, 50, 51} else 10 for n in range(100)]
        outcomes = [await producer.submit("t", b"x" * size) for size in sizes]
        await producer.flush()
        found = await asyncio.gather(*outcomes, return_exceptions=True)
        await producer.publish("t", b"x" * 10)

    assert [n for n, outcome in enumerate(found) if isinstance(outcome, Exception)] == [3, 50, 51]
    assert str(found[3]).startswith("E_BAD_MESSAGE")
    assert found[3] is not found[50]  # raising an error adds to its traceback
    assert message_count(nsqd) == 98


async def test_errors_are_raised_where_publish_was_called(face):
    async with face.producer(f"127.0.0.1:{free_port()}") as producer:
        with pytest.raises(OSError, match="connection refused"):
            await producer.publish("t", b"x")
        with pytest.raises(ValueError, match="topic name 'a b' is not valid"):
            await producer.publish("a b", b"x")
        with pytest.raises(ValueError, match="delay -1 s is negative"):
            await producer.deferred_publish("t", b"x", -1)
        for wrong in ("text", 5, None, ["x"]):
            with pytest.raises(TypeError, match="a body is bytes, not"):
                await producer.publish("t", wrong)
            with pytest.raises(TypeError, match="a body is bytes, not"):
                await producer.multi_publish("t", [b"fine", wrong])
        with pytest.raises(TypeError, match="several bodies are a list"):
            await producer.multi_publish("t", b"one")


async def test_close_fails_unsendable_publishes(face):
    producer = face.producer(f"127.0.0.1:{free_port()}", retry_seconds=60)
    waiting = [await producer.submit("t", b"x") for _ in range(3)]
    await producer.close(drain_seconds=0.1)

    for outcome in (*waiting, producer.publish("t", b"x")):
        with pytest.raises(ClosedError):
            await outcome


async def test_close_confirms_pending_publishes(cluster, face):
    nsqd = cluster.nsqd()
    producer = face.producer(nsqd.tcp_address)
    outcomes = [await producer.submit("t", b"%d" % n) for n in range(200)]
    await producer.close()

    assert all(outcome.exception() is None for outcome in await wait_for(outcomes))
    assert message_count(nsqd) == 200


async def wait_for(outcomes):
    await asyncio.wait(outcomes)
    return outcomes


async def test_publish_has_a_time_out(nsqd, face):
    async with face.producer(nsqd.address) as producer:
        await producer.ping()
        nsqd.freeze()
        await producer.submit("t", b"x")
        for publishing in (
            producer.publish("t", b"x", timeout=0.05),
            producer.multi_publish("t", [b"x"], timeout=0.05),
            producer.deferred_publish("t", b"x", 5, timeout=timedelta(seconds=0.05)),
            producer.flush(timeout=0.05),
        ):
            with pytest.raises(TimeoutError):
                await publishing
        nsqd.thaw()


async def test_addresses_of_producer_change_while_it_runs(nsqd, face):
    with MemoryNsqd() as other:
        async with face.producer(nsqd.address) as producer:
            await producer.publish("t", b"one")
            await producer.connect_to_nsqd(other.address)
            assert set(producer.nsqd_addresses) == {nsqd.address, other.address}
            await producer.disconnect_from_nsqd(nsqd.address)
            await producer.publish("t", b"two")
            assert (producer.nsqd_addresses, producer.nsqd_address) == ([other.address], other.address)
            with pytest.raises(ValueError, match="is none of the nsqd that were named"):
                await producer.disconnect_from_nsqd(nsqd.address)
            assert producer.unconfirmed == 0
        assert (nsqd.published("t"), other.published("t")) == ([b"one"], [b"two"])


# --- consumers


async def test_addresses_of_consumer_change_while_it_runs(nsqd, face):
    bodies = Bodies()
    with MemoryNsqd() as other:
        nsqd.publish("t", b"one")
        async with face.consumer(nsqd, bodies) as consumer:
            await eventually(lambda: bodies == [b"one"], "the first is read")
            await consumer.connect_to_nsqd(other.address)
            other.publish("t", b"two")
            await eventually(lambda: bodies == [b"one", b"two"], "the second is read")
            await consumer.disconnect_from_nsqd(nsqd.address)
            assert consumer.nsqd_addresses == [other.address]
            assert not consumer.is_backing_off
            with pytest.raises(ValueError, match="none of the nsqd that were named"):
                await consumer.disconnect_from_nsqd(nsqd.address)


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_addresses_of_nsqlookupd_change_while_client_runs(nsqd, kind):
    face = Face("threads")
    async with face.producer(nsqd.address) if kind == "producer" else face.consumer(nsqd, print) as client:
        await client.connect_to_nsqlookupd("127.0.0.1:1")
        await client.disconnect_from_nsqlookupd("127.0.0.1:1")
        with pytest.raises(ValueError, match="none of the nsqlookupd"):
            await client.disconnect_from_nsqlookupd("127.0.0.1:1")


async def test_consumer_without_reachable_nsqd_raises_at_start(face):
    with MemoryNsqd() as gone:
        pass
    with pytest.raises(UnreachableError, match="connection refused"):
        await face.consumer(gone, print).start()


async def test_consumer_is_iterated_over_and_process_answers(nsqd, face):
    for body in (b"good", b"bad", b"next"):
        nsqd.publish("t", body)
    seen = []
    async with face.consumer(nsqd) as consumer:
        async for message in consumer:
            with message.process():
                seen.append(message.body)
                if message.body == b"bad":
                    raise ValueError(message.body)
            if len(seen) == 3:
                break
        await eventually(lambda: nsqd.deferred("t", "c") == [1], "the bad one is deferred")

    assert seen == [b"good", b"bad", b"next"]
    assert nsqd.finished("t", "c") == [b"good", b"next"]


async def test_messages_that_no_iteration_has_taken_are_requeued_at_the_end(nsqd, face):
    for n in range(100):
        nsqd.publish("t", b"%d" % n)
    bodies = set()
    async with face.consumer(nsqd, config=Config(max_in_flight=10)) as consumer:
        async for message in consumer:
            bodies.add(message.body)
            message.finish()
            if len(bodies) == 60:
                break

    await eventually(lambda: nsqd.depth("t", "c") == 40, "the others wait again")
    assert nsqd.in_flight("t", "c") == 0


async def test_iteration_ends_when_consumer_is_closed(nsqd, face):
    consumer = face.consumer(nsqd)
    await consumer.start()

    async def read():
        return [message async for message in consumer]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    await consumer.close()

    async with asyncio.timeout(10):
        assert await reading == []


async def test_get_returns_message_or_times_out_or_says_that_consumer_is_closed(nsqd, face):
    async with face.consumer(nsqd) as consumer:
        with pytest.raises(TimeoutError):
            await consumer.get(0.05)
        nsqd.publish("t", b"x")
        message = await consumer.get(10)
        message.finish()
        waiting = asyncio.create_task(consumer.get())
        await asyncio.sleep(0.05)
    with pytest.raises(ClosedError):
        await waiting
    assert message.body == b"x"
    async with face.consumer(nsqd, print) as consumer:
        with pytest.raises(RuntimeError, match="has a handler"):
            await consumer.get(1)


async def test_drain_reads_what_is_there_and_ends(nsqd, face):
    for n in range(20):
        nsqd.publish("t", b"%d" % n)
    async with face.consumer(nsqd, config=Config()) as consumer:
        async for message in consumer.drain(idle=0.5):
            message.finish()

    assert len(nsqd.finished("t", "c")) == 20


async def test_close_in_handler_is_refused_and_stop_is_what_it_can_call(nsqd, face):
    refused = []

    def handle_in_thread(_):
        try:
            consumer.inner.close()
        except RuntimeError as error:
            refused.append(str(error))
            consumer.inner.stop()

    async def handle_on_loop(_):
        try:
            await consumer.close()
        except RuntimeError as error:
            refused.append(str(error))
            consumer.stop()

    nsqd.publish("t", b"x")
    consumer = face.consumer(nsqd, handle_in_thread if face.is_sync else handle_on_loop)
    async with asyncio.timeout(10):
        if face.is_sync:
            await asyncio.to_thread(consumer.inner.run, signals=[])  # signals are for the main thread
        else:
            await consumer.run(signals=[])

    assert "call stop()" in refused[0]
    assert nsqd.finished("t", "c") == [b"x"]
