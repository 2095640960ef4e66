"""Features of the client: loops, policies, headers, types, middlewares, and its nsqd in memory."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from nsqclient import (
    ClosedError,
    Config,
    Consumer,
    Exponential,
    Fixed,
    Middleware,
    Producer,
    ProtocolError,
    Publication,
    Retry,
    UnreachableError,
    UnsupportedError,
    sync,
)
from nsqclient._backoff import Phase
from nsqclient._publish_chain import MAX_ENTERING
from nsqclient.testing import MemoryNsqd
from tests.support.client import consumer_of, fail
from tests.support.waiting import eventually


@pytest.fixture
def nsqd(memory_nsqd):
    return memory_nsqd


# --- loops


async def test_consumer_without_handler_takes_no_message_before_iteration(nsqd):
    nsqd.publish("t", b"x")
    async with consumer_of(nsqd) as consumer:
        await eventually(lambda: consumer.nsqd_addresses, "it is connected")
        assert nsqd.in_flight("t", "c") == 0
        async for message in consumer:
            message.finish()
            break

    assert nsqd.finished("t", "c") == [b"x"]


async def test_iteration_ends_when_consumer_is_closed_while_it_starts(nsqd):
    nsqd.freeze()
    consumer = consumer_of(nsqd)

    async def read():
        return [message async for message in consumer]

    reading = asyncio.create_task(read())
    await eventually(lambda: nsqd.connections_made, "it has connected")
    await consumer.close(0)

    async with asyncio.timeout(5):
        assert await reading == []
    nsqd.thaw()


async def test_iteration_over_consumer_that_could_not_be_started_says_so():
    with MemoryNsqd() as gone:
        pass
    consumer = consumer_of(gone)
    with pytest.raises(UnreachableError):
        await anext(consumer)
    with pytest.raises(ClosedError, match="could not be started; make another one"):
        await anext(consumer)


async def test_process_can_pass_its_exception_on(nsqd):
    nsqd.publish("t", b"x")
    async with consumer_of(nsqd) as consumer:
        with pytest.raises(ValueError, match="broken"):
            async for message in consumer:
                async with message.process(reraise=True):
                    assert message.value == b"x"  # without a decoder
                    raise ValueError("broken")
    await eventually(lambda: nsqd.requeued("t", "c") == 1, "it was given back")


async def test_cancelled_loop_requeues_its_message_immediately(nsqd):
    nsqd.publish("t", b"x")
    working = asyncio.Event()

    async def work():
        async for message in consumer:
            async with message.process():
                working.set()
                await asyncio.sleep(100)

    async with consumer_of(nsqd) as consumer:
        task = asyncio.create_task(work())
        await working.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await eventually(lambda: nsqd.requeued("t", "c") == 1, "it was given back")

    assert nsqd.deferred("t", "c") == []


RUN = """
import asyncio, sys
from nsqclient import Consumer
async def handle(message):
    print("working", flush=True)
    await asyncio.sleep(0.3)
    print("done", flush=True)
consumers = [Consumer(topic, "c", handle, nsqd_addresses=[sys.argv[1]]) for topic in ("t", "u")]
async def main():
    await asyncio.gather(*(consumer.run() for consumer in consumers))
asyncio.run(main())
print("ended")
"""
RUN_SYNC = """
import sys, time
from nsqclient.sync import Consumer
def handle(message):
    print("working", flush=True)
    time.sleep(0.3)
    print("done", flush=True)
Consumer("t", "c", handle, nsqd_addresses=[sys.argv[1]]).run()
print("ended")
"""


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [RUN, RUN_SYNC], ids=["asyncio", "threads"])
def test_run_ends_well_on_signal(nsqd, program, which):
    nsqd.publish("t", b"x")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, nsqd.address], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.send_signal(which)
    rest, _ = process.communicate(timeout=20)

    assert (rest, process.returncode) == ("done\nended\n", 0)
    assert nsqd.finished("t", "c") == [b"x"]


async def test_second_signal_ends_wait_for_handlers(nsqd):
    working = asyncio.Event()

    async def handle(message):
        working.set()
        await asyncio.sleep(100)

    nsqd.publish("t", b"x")
    running = asyncio.create_task(consumer_of(nsqd, handle).run(signals=[signal.SIGUSR1]))
    await working.wait()
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.sleep(0.05)
    assert not running.done()
    os.kill(os.getpid(), signal.SIGUSR1)
    async with asyncio.timeout(10):
        await running

    await eventually(lambda: nsqd.requeued("t", "c") == 1, "it was given back")


# --- addresses


@pytest.mark.parametrize("kind", [Producer, Consumer])
async def test_nsqd_removed_while_it_is_being_connected_is_not_used(nsqd, kind):
    arguments = () if kind is Producer else ("t", "c", lambda _: None)
    with MemoryNsqd() as slow:
        slow.freeze()
        async with kind(*arguments, nsqd_addresses=nsqd.address) as client:
            connecting = asyncio.create_task(client.connect_to_nsqd(slow.address))
            await eventually(lambda: slow.connections_made, "it is being connected")
            await client.disconnect_from_nsqd(slow.address)
            slow.thaw()
            with pytest.raises(ClosedError, match="was removed while it was being connected"):
                await connecting
            assert slow.address not in client.nsqd_addresses


async def test_closing_waits_for_messages_of_nsqd_that_is_being_left(nsqd):
    may_end = asyncio.Event()
    nsqd.publish("t", b"x")
    consumer = consumer_of(nsqd, lambda message: may_end.wait())
    await consumer.start()
    await eventually(lambda: consumer.in_flight, "the handler has it")
    leaving = asyncio.create_task(consumer.disconnect_from_nsqd(nsqd.address))
    await eventually(lambda: not consumer.nsqd_addresses, "it is being left")
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0.05)
    assert consumer.in_flight == 1
    may_end.set()
    async with asyncio.timeout(5):
        await asyncio.gather(leaving, closing)

    await eventually(lambda: nsqd.finished("t", "c") == [b"x"], "nsqd has the answer")


async def test_close_ends_disconnect_with_unanswered_messages(nsqd):
    nsqd.publish("t", b"x")
    consumer = consumer_of(nsqd, lambda message: None, auto_answer=False)
    await consumer.start()
    await eventually(lambda: consumer.in_flight, "the handler has it")
    leaving = asyncio.create_task(consumer.disconnect_from_nsqd(nsqd.address))
    await eventually(lambda: not consumer.nsqd_addresses, "it is being left")
    await consumer.close(drain_seconds=0.1)
    async with asyncio.timeout(5):
        await leaving


@pytest.mark.parametrize("connecting", ["ping", "connect_to_nsqd"])
async def test_producer_that_is_closed_while_it_connects_says_so(nsqd, connecting):
    nsqd.freeze()
    producer = Producer(nsqd.address)
    arguments = [nsqd.address] if connecting == "connect_to_nsqd" else []
    waiting = asyncio.create_task(getattr(producer, connecting)(*arguments))
    await asyncio.sleep(0.05)
    await producer.close()
    with pytest.raises(ClosedError):
        async with asyncio.timeout(5):
            await waiting
    nsqd.thaw()


async def test_producer_publishes_when_only_added_nsqd_is_connected():
    with MemoryNsqd() as first, MemoryNsqd() as other:
        async with Producer(first.address) as producer:
            await producer.connect_to_nsqd(other.address)
            await producer.publish("t", b"one", timeout=5)
            first.drop_connections()
            await eventually(lambda: producer.nsqd_addresses == [other.address], "the first is lost")
            await producer.publish("t", b"two", timeout=5)
        assert first.published("t") + other.published("t") == [b"one", b"two"]


async def test_nsqd_are_named_and_found_together_and_nsqlookupd_change(cluster, nsqd):
    lookupd = cluster.nsqlookupd()
    found = cluster.nsqd()
    async with Producer(found.tcp_address) as producer:
        await producer.publish("t", b"found")
    nsqd.publish("t", b"named")
    bodies = []
    often = Config(lookupd_poll_interval=0.1, max_in_flight=10)
    async with consumer_of(nsqd, lambda message: bodies.append(message.body), config=often) as consumer:
        await eventually(lambda: bodies == [b"named"], "what was named is read")
        consumer.connect_to_nsqlookupd(lookupd.http_address)
        await eventually(lambda: bodies == [b"named", b"found"], "what was found is read as well")
        consumer.disconnect_from_nsqlookupd(lookupd.http_address)
    async with Producer(nsqd.address, lookupd_addresses=lookupd.http_address, config=often) as producer:
        await producer.publish("u", b"x")
        both = {nsqd.address, found.tcp_address}
        await eventually(lambda: set(producer.nsqd_addresses) == both, "it spreads over both")


# --- one message, and what is there


async def test_drain_continues_after_long_back_off(nsqd):
    for n in range(3):
        nsqd.publish("t", b"%d" % n)
    bodies = []
    config = Config(max_in_flight=1, backoff_strategy=lambda level: 0.5)
    async with consumer_of(nsqd, config=config, retry=Retry(delay=Fixed(1000))) as consumer:
        async for message in consumer.drain(idle=0.1):
            async with message.process():
                bodies.append(message.body)
                raise ValueError

    assert sorted(bodies) == [b"0", b"1", b"2"]


# --- policies


async def test_retry_sets_delays_and_gives_up_after_max_attempts(nsqd, caplog):
    nsqd.publish("t", b"x")
    delays, gone = [], []

    def give_up(message):
        gone.append(message.attempts)
        return len(gone)  # as writing to a file does

    retry = Retry(3, Exponential(1, 600), backoff=False, then=give_up)

    async with consumer_of(nsqd, fail, retry=retry) as c:
        for _ in range(3):
            await eventually(lambda: nsqd.deferred("t", "c"), "it was put off")
            delays += nsqd.deferred("t", "c")
            assert not c.is_backing_off
            nsqd.advance(delays[-1])
        await eventually(lambda: gone, "it was given up")

    assert (delays, gone) == ([1, 2, 4], [4])
    assert "attempted 4 times, giving up" in caplog.text


async def test_default_consumer_never_gives_message_up(nsqd):
    nsqd.publish("t", b"order")
    attempts = []

    def fail(message):
        attempts.append(message.attempts)
        if message.attempts < 12:
            raise ConnectionError("database is down")

    async with consumer_of(nsqd, fail) as consumer:
        while not consumer.stats.finished:
            nsqd.advance(600)
            await asyncio.sleep(0.01)

    assert attempts == list(range(1, 13))
    assert nsqd.finished("t", "c") == [b"order"]


@pytest.mark.parametrize("kind", ["single", "batch", "given up"])
async def test_cancellation_inside_handler_does_not_end_consumer(nsqd, kind):
    handled = []

    async def handle(message):
        handled.append(message.body)
        if message.body == b"leaves it":
            asyncio.current_task().cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        elif message.body == b"cancelled inside":
            raise asyncio.CancelledError

    async def handle_batch(messages):
        await handle(messages[0])

    settings = {"retry": Retry(1, then=handle)} if kind == "given up" else {}
    consumer = consumer_of(nsqd, **settings)
    if kind == "batch":
        consumer.add_batch_handler(handle_batch, size=1)
    else:
        consumer.add_handler(handle)
    for body in (b"leaves it", b"cancelled inside", b"next"):
        nsqd.publish("t", body)
    if kind == "given up":
        async with consumer_of(nsqd) as before:
            for _ in range(3):
                (await anext(before)).requeue(10)
        nsqd.advance(10)
    async with consumer:
        await eventually(lambda: handled[-1:] == [b"next"], "the handler continues", seconds=5)

    assert handled == [b"leaves it", b"cancelled inside", b"next"]


async def test_refused_dead_letter_is_retried_without_loss_of_other_messages(nsqd, caplog):
    handled = []

    async def handle(message):
        if message.body == b"poison":
            raise ValueError(message.body)
        await asyncio.sleep(1)
        handled.append((message.body, message.attempts))

    for body in (b"poison", b"a", b"b", b"c"):
        nsqd.publish("t", body)
    nsqd.refuse(*["E_PUB_FAILED"] * 10)
    retry = Retry(max_attempts=1, delay=Fixed(0))
    async with consumer_of(nsqd, handle, concurrency=4, retry=retry):
        await eventually(lambda: len(nsqd.finished("t", "c")) == 4, "all are finished")

    assert sorted(handled) == [(b"a", 1), (b"b", 1), (b"c", 1)]
    assert nsqd.published("t.c.dead") == [b"poison"]
    assert "was given up and could not be kept" in caplog.text


async def test_consumer_backs_off_while_dead_letters_are_refused(nsqd):
    nsqd.publish("t", b"poison")
    nsqd.refuse("E_PUB_FAILED", "E_PUB_FAILED")

    retry = Retry(max_attempts=1, delay=Fixed(50))
    config = Config(backoff_multiplier=1000, max_backoff_duration=3600)
    async with consumer_of(nsqd, fail, retry=retry, config=config) as consumer:
        await eventually(lambda: nsqd.deferred("t", "c") == [50], "it was requeued")

        assert consumer.is_backing_off
        assert nsqd.published("t.c.dead") == []


async def test_dead_letter_unconfirmed_at_close_is_requeued(nsqd):
    nsqd.publish("t", b"poison")
    with MemoryNsqd() as frozen:
        consumer = consumer_of(nsqd, retry=Retry(max_attempts=1, delay=Fixed(50)))
        consumer._dead_letters._producers[nsqd.address] = Producer(frozen.address)
        frozen.freeze()
        async with consumer:
            async for message in consumer:
                with message.process():
                    raise ValueError(message.body)
                break
            await consumer.close(drain_seconds=0.1)

    assert nsqd.deferred("t", "c") == [50]
    assert nsqd.finished("t", "c") == []


async def test_dead_letter_connection_ends_with_that_of_consumer(nsqd):
    nsqd.publish("t", b"poison")

    async with consumer_of(nsqd, fail, retry=Retry(1)) as consumer:
        await eventually(lambda: nsqd.finished("t", "c"), "it was finished")
        assert len(nsqd._sessions) == 2
        await consumer.disconnect_from_nsqd(nsqd.address)
        await eventually(lambda: not nsqd._sessions, "both connections have ended")


async def trial_of(consumer):
    await eventually(lambda: consumer._subscriptions.backoff.phase is Phase.TRIAL, "one message is tried")


async def test_trial_message_that_becomes_dead_letter_keeps_back_off(nsqd):
    nsqd.publish("t", b"x")
    attempts = []

    def fail(message):
        attempts.append(message.attempts)
        raise ValueError(message.body)

    config = Config(max_backoff_duration=3600, backoff_strategy=lambda level: 0.05 if level < 2 else 1000)
    retry = Retry(2, Fixed(50))
    async with consumer_of(nsqd, fail, retry=retry, config=config) as consumer:
        await trial_of(consumer)
        nsqd.advance(50)
        await eventually(lambda: nsqd.finished("t", "c"), "it has failed twice")

        assert (attempts, consumer.is_backing_off) == ([1, 2], True)


@pytest.mark.parametrize("then", ["dead_letter", "discard"])
async def test_trial_message_given_up_without_handler_repeats_trial(nsqd, then):
    nsqd.publish("t", b"old")
    async with consumer_of(nsqd) as consumer:
        async for message in consumer:
            message.requeue(0 if message.attempts < 3 else 50)
            if message.attempts == 3:
                break
    nsqd.publish("t", b"bad")
    handled = []

    def handle(message):
        handled.append((message.body, consumer.is_backing_off))
        if message.body == b"bad":
            raise ValueError(message.body)

    config = Config(max_in_flight=1, backoff_multiplier=0.1)
    async with consumer_of(nsqd, handle, retry=Retry(3, Fixed(1000), then=then), config=config) as consumer:
        await trial_of(consumer)
        nsqd.advance(50)
        nsqd.publish("t", b"good")
        await eventually(lambda: len(nsqd.finished("t", "c")) == 2, "the next one was handled")

        assert handled == [(b"bad", False), (b"good", True)]
        assert not consumer.is_backing_off
    assert nsqd.finished("t", "c") == [b"old", b"good"]


async def test_backing_off_can_have_strategy_of_its_own(nsqd):
    nsqd.publish("t", b"x")
    levels = []

    def strategy(level):
        levels.append(level)
        return 0.01 * level

    def fail(message):
        if message.attempts < 4:
            raise ValueError(message.attempts)

    config = Config(backoff_strategy=strategy)
    async with consumer_of(nsqd, fail, config=config, retry=Retry(delay=Fixed(0))):
        await eventually(lambda: nsqd.finished("t", "c"), "it was handled in the end")

    # Timing decides whether the consumer already backs off when the second failure comes.
    assert sorted(set(levels)) in ([1, 2], [1, 2, 3])


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
async def test_last_failed_attempt_is_logged_as_error_with_traceback(nsqd, caplog, level):
    caplog.set_level(level, logger="nsqclient")
    nsqd.publish("t", b"x")

    def fail(message):
        raise ValueError("first line\nsecond line")

    async with consumer_of(nsqd, fail, retry=Retry(2, Fixed(5), backoff=False)):
        await eventually(lambda: nsqd.deferred("t", "c"), "it failed once")
        nsqd.advance(5)
        await eventually(lambda: nsqd.finished("t", "c"), "it failed for the last time")

    first, last = (one for one in caplog.records if "handler failed" in one.getMessage())
    assert (first.levelname, bool(first.exc_info)) == ("WARNING", level == "DEBUG")
    assert first.getMessage().endswith("which is delivered again: ValueError: first line")
    assert (last.levelname, bool(last.exc_info)) == ("ERROR", True)
    assert nsqd.published("t.c.dead") == [b"x"]


# --- headers


@pytest.fixture
def extended():
    with MemoryNsqd(headers=True) as nsqd:
        yield nsqd


WITH_HEADERS = Config(headers=True, max_in_flight=100, max_backoff_duration=0)


async def test_dead_letter_has_headers_of_its_message(extended):
    extended.publish("t", b"poison", {"id": "1"})

    async with consumer_of(extended, fail, retry=Retry(1), config=WITH_HEADERS):
        await eventually(lambda: extended.finished("t", "c"), "it was finished")

    [headers] = extended.published_headers("t.c.dead")
    assert int(headers.pop("dead-first")) <= int(headers.pop("dead-last"))
    assert headers == {
        "id": "1",
        "dead-topic": "t",
        "dead-channel": "c",
        "dead-id": f"{1:016x}",
        "dead-node": "127.0.0.1",
        "dead-attempts": "1",
        "dead-client": f"{WITH_HEADERS.client_id}@{WITH_HEADERS.hostname}",
        "dead-reason": "ValueError: b'poison'",
    }


async def test_dead_letter_drops_message_headers_that_are_too_long(extended):
    extended.publish("t", b"poison", {"long": "x" * 65_000, "more": "y" * 500})

    def fail(message):
        raise ValueError("first line\nsecond line")

    async with consumer_of(extended, fail, retry=Retry(1), config=WITH_HEADERS):
        await eventually(lambda: extended.finished("t", "c"), "it was finished")

    [headers] = extended.published_headers("t.c.dead")
    assert headers["dead-reason"] == "ValueError: first line"
    assert "long" not in headers


async def test_dead_letters_to_nsqd_without_headers_are_logged_once(nsqd, caplog):
    retry = Retry(1, backoff=False)
    async with consumer_of(nsqd, fail, retry=retry, config=Config()) as consumer:
        for body in (b"1", b"2"):
            nsqd.publish("t", body)
            await eventually(lambda body=body: body in nsqd.published("t.c.dead"), "it is a dead letter")
        assert not consumer.is_backing_off

    assert nsqd.published_headers("t.c.dead") == [{}, {}]
    warnings = [record for record in caplog.records if "takes no headers" in record.getMessage()]
    assert len(warnings) == 1


async def test_headers_to_nsqd_that_has_none_are_error_that_says_so(nsqd):
    async with Producer(nsqd.address, config=WITH_HEADERS) as producer:
        await producer.publish("t", b"x")
        with pytest.raises(UnsupportedError, match="does not take headers"):
            await producer.publish("t", b"x", headers={"id": "1"})
    async with Producer(nsqd.address) as producer:
        with pytest.raises(UnsupportedError, match=r"Config\(headers=True\)"):
            await producer.publish("t", b"x", headers={"id": "1"})

    assert nsqd.published("t") == [b"x"]


# --- types


@dataclass
class Order:
    number: int


def order(body: bytes) -> Order:
    return Order(json.loads(body)["number"])


class ModelOrder(pydantic.BaseModel):
    number: int


class StructOrder(msgspec.Struct):
    number: int


# decoder -> (function, its result for a good body, the error that it raises for a bad one)
DECODERS = {
    "function": (order, Order(5), "JSONDecodeError"),
    "pydantic": (ModelOrder.model_validate_json, ModelOrder(number=5), "ValidationError"),
    "pydantic adapter": (
        pydantic.TypeAdapter(dict[str, int]).validate_json,
        {"number": 5},
        "ValidationError",
    ),
    "msgspec": (msgspec.json.Decoder(StructOrder).decode, StructOrder(5), "DecodeError"),
}


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("decoder", DECODERS)
async def test_message_has_value_that_was_decoded(nsqd, decoder, in_threads):
    decode, value, _ = DECODERS[decoder]
    nsqd.publish("t", b'{"number": 5}')
    seen = []
    consumer: Consumer[object] = consumer_of(nsqd, decode=decode)
    consumer.add_handler(
        lambda message: seen.append((message.value, message.topic, message.channel, message.nsqd)),
        in_threads=in_threads,
    )
    async with consumer:
        await eventually(lambda: seen, "it is handled")

    assert seen == [(value, "t", "c", nsqd.address)]


@pytest.mark.parametrize("dead_letter_topic", ["t.dead", ""])
@pytest.mark.parametrize("decoder", DECODERS)
async def test_undecodable_message_does_not_reach_handler(nsqd, caplog, decoder, dead_letter_topic):
    decode, _, said = DECODERS[decoder]
    nsqd.publish("t", b"nonsense")
    seen = []
    async with consumer_of(
        nsqd, seen.append, decode=decode, retry=Retry(dead_letter_topic=dead_letter_topic)
    ):
        if dead_letter_topic:
            await eventually(lambda: nsqd.finished("t", "c"), "it was put away")
        else:
            await eventually(lambda: nsqd.deferred("t", "c") == [1], "it failed as a handler fails")

    assert seen == []
    assert nsqd.published("t.dead") == ([b"nonsense"] if dead_letter_topic else [])
    assert said in caplog.text


# --- middlewares


class Noting(Middleware):
    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    async def publish(self, publication, go_on):
        self.notes.append(f"{self.name} publishes {len(publication.bodies)}")
        try:
            await go_on(publication)
        finally:
            self.notes.append(f"{self.name} published")

    async def handle(self, message, go_on):
        self.notes.append(f"{self.name} before")
        try:
            return await go_on(message)
        finally:
            self.notes.append(f"{self.name} after")

    async def handle_batch(self, messages, go_on):
        return await self.handle(messages, go_on)


class Upper(Middleware):
    async def publish(self, publication, go_on):
        changed = [body.upper() for body in publication.bodies]
        await go_on(Publication(publication.topic, changed, publication.delay, together=publication.together))


async def test_middlewares_stand_around_every_publish_and_may_change_it(nsqd):
    notes = []
    async with Producer(nsqd.address, middlewares=[Noting("outer", notes), Upper()]) as producer:
        await producer.publish("t", b"a")
        await producer.multi_publish("t", [b"b", b"c"])
        await producer.deferred_publish("t", b"d", 1)
        await (await producer.submit("t", b"e"))
        nsqd.refuse("E_BAD_TOPIC")
        with pytest.raises(ProtocolError, match="E_BAD_TOPIC"):
            await producer.publish("t", b"f")

    assert nsqd.published("t") == [b"A", b"B", b"C", b"D", b"E"]
    assert notes[:4] == ["outer publishes 1", "outer published", "outer publishes 2", "outer published"]
    assert len(notes) == 10


class Late(Middleware):
    def __init__(self):
        self.may_go = asyncio.Event()
        self.waiting = 0

    async def publish(self, publication, go_on):
        self.waiting += 1
        await self.may_go.wait()
        await go_on(publication)


@pytest.mark.parametrize("ending", ["flush", "close"])
async def test_flush_and_close_wait_for_middlewares(nsqd, ending):
    async with Producer(nsqd.address, middlewares=[late := Late()]) as producer:
        confirmations = [
            await producer.submit("t", b"a"),
            await producer.submit_many("t", [b"b", b"c"]),
            await producer.submit_deferred("t", b"d", 1),
        ]
        waiting = asyncio.create_task(getattr(producer, ending)())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        late.may_go.set()
        await waiting
        assert [confirmation.exception() for confirmation in confirmations] == [None] * 3

    assert nsqd.published("t") == [b"a", b"b", b"c", b"d"]


def test_publishes_of_threads_pass_middlewares_before_close(nsqd):
    with sync.Producer(nsqd.address, middlewares=[Upper()]) as producer:
        for _ in range(2000):
            producer.submit("t", b"a")
        producer.publish("t", b"a")

    assert nsqd.published("t") == [b"A"] * 2001


async def test_publish_that_middlewares_hold_fails_when_its_producer_is_closed(nsqd):
    producer = Producer(nsqd.address, middlewares=[Late()])
    submitted = await producer.submit("t", b"a")
    await producer.close(drain_seconds=0.1)

    for publishing in (submitted, producer.submit("t", b"b"), producer.publish("t", b"c")):
        with pytest.raises(ClosedError):
            await publishing


async def test_publishers_wait_while_many_publishes_are_in_middlewares(nsqd):
    async def publish_all():
        for _ in range(2000):
            await producer.submit("t", b"a")

    async with Producer(nsqd.address, middlewares=[late := Late()]) as producer:
        for _ in range(MAX_ENTERING + 1):
            (await producer.submit("t", b"a")).cancel()  # it gives its place back
        await asyncio.sleep(0.05)
        publishing = asyncio.create_task(publish_all())
        await eventually(lambda: late.waiting == MAX_ENTERING, "no more are taken")
        await asyncio.sleep(0.05)
        assert late.waiting == MAX_ENTERING
        late.may_go.set()
        await publishing

    assert len(nsqd.published("t")) == 2000


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("in_batches", [False, True])
async def test_middlewares_stand_around_handler_in_their_order(nsqd, in_threads, in_batches):
    notes = []
    nsqd.publish("t", b"x")
    consumer = consumer_of(nsqd, middlewares=[Noting("outer", notes), Noting("inner", notes)])
    if in_batches:
        consumer.add_batch_handler(lambda _: notes.append("handler"), size=1, in_threads=in_threads)
    else:
        consumer.add_handler(lambda _: notes.append("handler"), in_threads=in_threads)
    async with consumer:
        await eventually(lambda: nsqd.finished("t", "c"), "it was handled")

    assert notes == ["outer before", "inner before", "handler", "inner after", "outer after"]


# --- the nsqd in memory


async def test_time_passes_in_nsqd_in_memory_when_test_says_so(nsqd):
    got = []
    consumer = consumer_of(nsqd, lambda message: got.append(message.attempts), auto_answer=False)
    await consumer.start()
    try:
        async with Producer(nsqd.address) as producer:
            await producer.deferred_publish("t", b"x", 3600)
        nsqd.advance(3599)
        assert got == []
        nsqd.advance(1)
        await eventually(lambda: got == [1], "it is due")
        nsqd.advance(60)
        await eventually(lambda: got == [1, 2], "it was not answered in time")
    finally:
        await consumer.close(0)

    assert nsqd.timed_out("t", "c") == 1


async def test_nsqd_in_memory_refuses_what_a_real_one_refuses(nsqd):
    async with Producer(nsqd.address) as producer:
        nsqd.refuse("E_MPUB_FAILED")
        with pytest.raises(ProtocolError, match="E_MPUB_FAILED refused by the test"):
            await producer.multi_publish("t", [b"x"])
    reader, writer = await asyncio.open_connection(*nsqd.address.split(":"))
    writer.write(b"  V2PUB bad$name\n\0\0\0\1x")
    assert b"E_BAD_TOPIC" in await reader.read()
    writer.close()


def test_nsqd_in_memory_ends_with_its_connections(nsqd):
    before = threading.active_count()
    with MemoryNsqd() as other, sync.Producer(other.address) as producer:
        producer.publish("t", b"x")

    assert threading.active_count() == before


async def test_program_that_asks_nsqlookupd_is_tested_unchanged(nsqd):
    bodies = []

    async def handle(message):
        bodies.append(message.body)

    lookupd = nsqd.lookupd_address
    async with (
        Producer(lookupd_addresses=lookupd) as producer,
        Consumer("t", "c", handle, lookupd_addresses=lookupd),
    ):
        await producer.publish("t", b"x")
        await eventually(lambda: nsqd.finished("t", "c") == [b"x"], "it is finished")

    assert bodies == [b"x"]


@pytest.mark.parametrize("addresses", [1, 2])
async def test_addresses_are_tried_once_before_refusal_is_raised(nsqd, addresses):
    with MemoryNsqd() as other:
        nodes = [nsqd, other][:addresses]
        for node in nodes:
            node.refuse("E_PUB_FAILED", "E_PUB_FAILED")
        async with Producer([node.address for node in nodes]) as producer:
            with pytest.raises(ProtocolError, match="E_PUB_FAILED"):
                await producer.publish("t", b"x")

        assert [node.connections_made for node in nodes] == [1] * addresses


async def test_connection_that_breaks_is_opened_once_more(nsqd):
    async with Producer(nsqd.address) as producer:
        await producer.publish("t", b"1")
        nsqd.drop_connections()
        await producer.publish("t", b"2")

    assert nsqd.published("t") == [b"1", b"2"]
