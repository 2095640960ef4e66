"""Past faults of the client, each tested as the correct behaviour.

Where a fault does not need a real nsqd, the test uses one in memory and controls its clock and health.
"""

import asyncio
import multiprocessing
import queue
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta

import pytest

from bench.ports import free_port
from nsqclient import (
    ClosedError,
    Config,
    Consumer,
    Fixed,
    Linear,
    NSQError,
    Producer,
    ProtocolError,
    Retry,
    UnreachableError,
    sync,
)
from nsqclient import _threads as threads
from nsqclient.testing import MemoryNsqd
from tests.support.client import CALM, Bodies, consumer_of
from tests.support.peers import answer_identify, scripted_peer
from tests.support.waiting import eventually, wait_until


@pytest.fixture
def nsqd(memory_nsqd):
    return memory_nsqd


# --- 1. no message lies unhandled


@pytest.mark.parametrize("other", ["another of its kind", "a handler of single messages"])
async def test_batch_handler_gets_trickled_messages_immediately(nsqd, other):
    bodies = Bodies()
    consumer = consumer_of(nsqd)
    consumer.add_batch_handler(bodies, size=10, seconds=0.05, concurrency=1 if other[0] == "a " else 2)
    if other.startswith("a handler"):
        consumer.add_handler(bodies)
    async with consumer:
        for n in range(12):
            nsqd.publish("t", b"%d" % n)
            await eventually(lambda: len(bodies) > n, f"message {n} is handled", seconds=5)  # noqa: B023
            # Long enough for the collectors to give up the batch that they began: this caused the fault.
            await asyncio.sleep(0.07)

    assert bodies == [b"%d" % n for n in range(12)]


# --- 2. one frozen nsqd of several


async def test_spreading_producer_skips_frozen_nsqd(nsqd):
    with MemoryNsqd() as frozen:
        producer = Producer([nsqd.address, frozen.address], spread=True, max_unconfirmed=50)
        async with producer:
            await producer.ping()
            await eventually(lambda: len(producer.nsqd_addresses) == 2, "both are connected")
            frozen.freeze()
            waits = [await producer.submit("t", b"first %d" % n) for n in range(2)]
            await eventually(lambda: any(wait.done() for wait in waits), "the healthy one has answered")
            for turn in range(20):  # until the producer notices that an answer of the frozen nsqd is overdue
                waits.append(await producer.submit("t", b"%d" % turn))
                await asyncio.sleep(0.04)
            for _ in range(30):
                await producer.publish("t", b"x", timeout=5)
            frozen.thaw()
            await asyncio.gather(*waits)

    assert len(nsqd.published("t")) >= 30


async def test_unconfirmed_publish_to_frozen_nsqd_goes_to_another(nsqd):
    with MemoryNsqd() as frozen:
        async with Producer([frozen.address, nsqd.address], publish_timeout=0.3) as producer:
            await producer.publish("t", b"before")
            frozen.freeze()
            await producer.publish("t", b"after", timeout=5)
            frozen.thaw()

    assert frozen.published("t")[:1] == [b"before"]
    assert nsqd.published("t") == [b"after"]


# --- 3. a handler that is not run does not finish messages


async def test_coroutine_function_for_threads_is_refused(nsqd):
    async def handler(message):
        pass

    class Callable:
        async def __call__(self, message):
            pass

    for wrong in (handler, Callable()):
        with pytest.raises(TypeError, match="is a coroutine function"):
            consumer_of(nsqd).add_handler(wrong, in_threads=True)
        with pytest.raises(TypeError, match="is a coroutine function"):
            consumer_of(nsqd, wrong, kind=sync.Consumer)


# --- 4. requeue() with its defaults waits


async def test_requeue_without_delay_waits_longer_after_each_attempt_and_backs_off(nsqd):
    nsqd.publish("t", b"x")
    config = Config(max_backoff_duration=0.001)
    slow = []
    retry = Retry(delay=Linear(10))
    async with consumer_of(nsqd, lambda message: message.requeue(), config=config, retry=retry) as consumer:
        for attempt in (1, 2, 3):
            await eventually(lambda: nsqd.deferred("t", "c"), "it was put off")
            assert nsqd.deferred("t", "c") == [10 * attempt]
            slow.append(consumer._subscriptions.backoff.level)
            nsqd.advance(10 * attempt)

    assert slow == [1, 1, 1]


async def test_requeue_without_delay_backs_off_only_if_failing_handler_would(nsqd):
    nsqd.publish("t", b"x")
    seen = []

    def handle(message):
        seen.append(consumer.is_backing_off)
        if len(seen) == 1:
            message.requeue()

    consumer = consumer_of(nsqd, handle, config=Config(), retry=Retry(5, Fixed(0), backoff=False))
    async with consumer:
        await eventually(lambda: len(seen) == 2, "it came again")

    assert seen == [False, False]


async def test_requeue_with_delay_leaves_consumer_at_its_pace(nsqd):
    nsqd.publish("t", b"x")
    seen = []

    def handle(message):
        seen.append(message.attempts)
        if len(seen) < 3:
            message.requeue(timedelta(0))

    async with consumer_of(nsqd, handle) as consumer:
        await eventually(lambda: nsqd.finished("t", "c"), "it was finished")
        assert not consumer.is_backing_off

    assert seen == [1, 2, 3]


# --- 6. memory while nsqd is away


@pytest.mark.parametrize(
    ("bound", "batch", "expected"),
    [
        ({"max_unconfirmed_bytes": 5_000_000}, [bytes(1_000_000)], 5),
        ({"max_unconfirmed": 1000}, [b"x"] * 500, 2),
    ],
    ids=["bytes", "messages of a batch"],
)
async def test_backlog_is_bounded_in_messages_and_bytes(bound, batch, expected):
    producer = Producer("127.0.0.1:1", retry_seconds=60, **bound)
    taken = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            while True:
                await producer.submit_many("t", batch)
                taken += 1
    unconfirmed = producer.unconfirmed
    await producer.close(0)

    assert (taken, unconfirmed) == (expected, expected * len(batch))


def test_threads_cannot_fill_memory_either():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        producer = sync.Producer(f"{host}:{port}", max_unconfirmed_bytes=4_000_000)
        with pytest.raises(TimeoutError, match="no room for a message"):
            for _ in range(20):
                producer.submit("t", bytes(1_000_000), timeout=0.3)
        producer.close(0)


async def test_backlog_is_sent_in_writes_that_are_bounded():
    port = free_port()
    producer = Producer(f"127.0.0.1:{port}", retry_seconds=60, max_unconfirmed_bytes=30_000_000)
    waits = [await producer.submit("t", bytes([n]) * 1_000_000) for n in range(20)]
    most = 0
    with MemoryNsqd(port=port) as nsqd:
        while not all(wait.done() for wait in waits):
            for link in producer._links.open.values():
                most = max(most, link.under_way.bytes)
            await asyncio.sleep(0)
        await producer.close()
        order = [body[0] for body in nsqd.published("t")]

    assert order == list(range(20))
    assert most <= 5_000_000


# --- 7. a slow line is not a dead one


async def test_peer_that_reads_slowly_is_kept():
    connections = 0

    async def slow(reader, writer):
        nonlocal connections
        connections += 1
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        reader._limit = 4096
        await answer_identify(reader, writer)
        await reader.readline()
        left = int.from_bytes(await reader.readexactly(4))
        while left:
            left -= len(await reader.readexactly(min(left, 32768)))
            await asyncio.sleep(0.01)
        writer.write(b"\0\0\0\6\0\0\0\0OK")

    config = Config(write_timeout=0.8)
    async with scripted_peer(slow) as address, Producer(address, config=config) as producer:
        # More than the kernel takes in one call. At some 3 MB/s this takes about two seconds.
        await producer.publish("t", bytes(6_000_000), timeout=30)

    assert connections == 1


# --- 8. many publishers that wait for room


async def test_waiting_publishers_have_linear_cost(nsqd):
    """The work is counted in calls of Python and C, because seconds depend on the load of the machine."""

    async def cost(n):
        calls = 0

        def count(frame, event, arg):
            nonlocal calls
            calls += event in {"call", "c_call"}

        async with Producer(nsqd.address, max_unconfirmed=50) as producer:
            await producer.ping()
            sys.setprofile(count)
            try:
                await asyncio.gather(*(producer.publish("t", b"x") for _ in range(n)))
            finally:
                sys.setprofile(None)
        return calls / n

    few, many = await cost(500), await cost(4000)

    assert many < 1.2 * few


# --- 9. after a fork


@contextmanager
def forked(work, *arguments):
    """Run *work* in a child process; yields a function that starts it and returns its answer."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=lambda: answers.put(work(*arguments)))
    try:
        child.start()
        yield lambda: answers.get(timeout=20)
    finally:
        child.kill()
        child.join(20)


FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def publish(producer):
    producer.publish("t", b"child", timeout=10)
    return "published"


@FORKS
def test_producer_continues_in_forked_process(nsqd):
    with sync.Producer(nsqd.address) as producer:
        producer.publish("t", b"before")
        with forked(publish, producer) as answer:
            assert answer() == "published"
        producer.publish("t", b"after")

    assert nsqd.published("t") == [b"before", b"child", b"after"]


@FORKS
def test_fork_at_moment_when_outcome_is_set_stops_no_publish_in_child(nsqd):
    with sync.Producer(nsqd.address) as producer, ExitStack() as stack:
        with threads.generation.touching:
            answer = stack.enter_context(forked(publish, producer))
        assert answer() == "published"


@FORKS
def test_threads_of_forked_process_share_one_producer(nsqd):
    def publish_at_once(producer):
        go = threading.Barrier(8)

        def publish_one(body):
            go.wait()
            producer.publish("t", body, timeout=10)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(publish_one, [b"%d" % n for n in range(8)]))
        return [thread.name for thread in threading.enumerate()].count("nsq producer")

    with sync.Producer(nsqd.address) as producer, forked(publish_at_once, producer) as answer:
        assert answer() == 1

    assert sorted(nsqd.published("t")) == [b"%d" % n for n in range(8)]


def test_publish_in_callback_is_refused_instead_of_waiting_for_itself(nsqd):
    refusals = queue.SimpleQueue()

    def publish_again(_):
        try:
            producer.publish("t", b"y")
        except RuntimeError as error:
            refusals.put(str(error))

    with sync.Producer(nsqd.address) as producer:
        producer.submit("t", b"x").add_done_callback(publish_again)

        assert "would wait for itself" in refusals.get(timeout=10)
        producer.publish("t", b"z", timeout=10)


def test_submit_in_callback_of_full_producer_does_not_wait_for_itself(nsqd):
    done = threading.Event()
    left = 200

    def again(_):
        nonlocal left
        left -= 1
        if left > 0:
            producer.submit("t", b"x").add_done_callback(again)
        else:
            done.set()

    with sync.Producer(nsqd.address, max_unconfirmed=2) as producer:
        for _ in range(20):
            producer.submit("t", b"x").add_done_callback(again)
        assert done.wait(20)


# --- 10. close() ends


async def test_close_waits_once_when_handler_and_nsqd_hang(nsqd):
    working = asyncio.Event()

    async def handle(message):
        working.set()
        await asyncio.sleep(100)

    nsqd.publish("t", b"x")
    consumer = consumer_of(nsqd, handle)
    await consumer.start()
    await working.wait()
    nsqd.freeze()
    began = time.monotonic()
    await consumer.close(2)
    took = time.monotonic() - began
    nsqd.thaw()

    assert took < 4  # twice would take longer


@pytest.mark.parametrize("in_threads", [False, True])
async def test_close_lets_batch_handler_finish_what_waits_for_full_batch(nsqd, in_threads):
    bodies = []
    consumer = consumer_of(nsqd)
    consumer.add_batch_handler(
        lambda messages: bodies.extend(message.body for message in messages),
        size=50,
        seconds=600,
        in_threads=in_threads,
    )
    await consumer.start()
    nsqd.publish("t", b"x")
    await eventually(lambda: consumer.in_flight, "it has arrived")
    async with asyncio.timeout(10):
        await consumer.close(600)

    assert bodies == nsqd.finished("t", "c") == [b"x"]
    assert nsqd.requeued("t", "c") == 0


async def test_close_ends_despite_handler_that_swallows_its_cancellation(nsqd, caplog):
    working, end = asyncio.Event(), asyncio.Event()

    async def handle(message):
        working.set()
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()

    nsqd.publish("t", b"x")
    consumer = consumer_of(nsqd, handle)
    await consumer.start()
    await working.wait()
    async with asyncio.timeout(5):
        await consumer.close(0.1)
    end.set()

    assert "1 handlers do not end when they are cancelled" in caplog.text


HANGS = """
import asyncio, sys, threading
from nsqclient import Consumer, sync
started = threading.Event()
def hang(message):
    started.set()
    threading.Event().wait()
"""
HANGS_BESIDE_ASYNCIO = f"""{HANGS}
async def main():
    consumer = Consumer("t", "c", nsqd_addresses=[sys.argv[1]])
    consumer.add_handler(hang, in_threads=True)
    await consumer.start()
    await asyncio.to_thread(started.wait)
    await consumer.close(0.1)
asyncio.run(main())
"""
HANGS_WITHOUT_ASYNCIO = f"""{HANGS}
consumer = sync.Consumer("t", "c", hang, nsqd_addresses=[sys.argv[1]])
consumer.start()
started.wait()
consumer.close(0.1)
"""


@pytest.mark.parametrize("program", [HANGS_BESIDE_ASYNCIO, HANGS_WITHOUT_ASYNCIO], ids=["asyncio", "threads"])
def test_program_ends_despite_hanging_handler_thread(nsqd, program):
    nsqd.publish("t", b"x")
    ended = subprocess.run([sys.executable, "-c", program, nsqd.address], timeout=30, check=False)

    assert ended.returncode == 0
    wait_until(lambda: nsqd.depth("t", "c") == 1, "another consumer can have the message")


async def test_close_does_not_wait_for_abandoned_publish(nsqd):
    producer = Producer(nsqd.address)
    await producer.ping()
    nsqd.freeze()
    with pytest.raises(TimeoutError):
        await producer.publish("t", b"x", timeout=0.1)
    async with asyncio.timeout(5):
        await producer.close()
    nsqd.thaw()


# --- 11. start()


async def test_consumer_starts_when_one_of_its_nsqd_is_there(nsqd, caplog):
    nsqd.publish("t", b"x")
    bodies = Bodies()
    gone = f"127.0.0.1:{free_port()}"
    async with Consumer("t", "c", bodies, nsqd_addresses=[gone, nsqd.address], config=CALM) as consumer:
        await eventually(lambda: bodies, "it is read")
        assert consumer.nsqd_addresses == [nsqd.address]

    assert f"({gone}) not connected: {gone}: connection refused" in caplog.text


async def test_nsqd_that_refuses_at_first_is_tried_again_soon(nsqd, caplog):
    port = free_port()
    late = f"127.0.0.1:{port}"
    async with Consumer("t", "c", Bodies(), nsqd_addresses=[late, nsqd.address], config=CALM) as consumer:
        await eventually(lambda: caplog.text.count(f"({late}) not connected") > 1, "it is refused")
        with MemoryNsqd(port=port):
            await eventually(lambda: late in consumer.nsqd_addresses, "it is connected", seconds=20)


async def test_consumer_connects_to_all_its_nsqds_concurrently(nsqd):
    with MemoryNsqd() as slow:
        slow.freeze()
        consumer = consumer_of(slow, nsqd, Bodies(), config=CALM)
        async with asyncio.timeout(5), consumer:
            assert consumer.nsqd_addresses == [nsqd.address]
            slow.thaw()


async def test_close_ends_start_that_waits(nsqd):
    nsqd.freeze()
    consumer = consumer_of(nsqd, Bodies())
    starting = asyncio.create_task(consumer.start())
    await eventually(lambda: nsqd.connections_made, "it has connected")
    await consumer.close(0)
    async with asyncio.timeout(5):
        with pytest.raises(ClosedError):
            await starting
    nsqd.thaw()


@pytest.mark.parametrize("kind", ["concurrency", "batch"])
async def test_consumer_takes_as_much_as_its_handlers_can_have_in_hand(nsqd, kind):
    for n in range(40):
        nsqd.publish("t", b"%d" % n)
    at_once = 0
    go_on = asyncio.Event()

    async def handle(messages):
        nonlocal at_once
        at_once += len(messages) if isinstance(messages, list) else 1
        await go_on.wait()

    consumer = consumer_of(nsqd, config=Config())
    if kind == "concurrency":
        consumer.add_handler(handle, concurrency=10)
    else:
        consumer.add_batch_handler(handle, size=10, seconds=5)
    async with consumer:
        await eventually(lambda: at_once == 10, "ten are in hand")
        go_on.set()


async def test_max_in_flight_below_handlers_demand_is_logged(nsqd, caplog):
    async with consumer_of(nsqd, Bodies(), concurrency=10, config=Config(max_in_flight=5)):
        pass

    assert "can have 10 messages in hand, and max_in_flight lets in 5" in caplog.text


# --- 14. texts and types


async def test_bodies_may_be_any_bytes_and_delays_timedeltas(nsqd):
    body = bytearray(b"array")
    async with Producer(nsqd.address, retry_seconds=timedelta(seconds=1)) as producer:
        await producer.publish("t", body)
        await producer.multi_publish("t", [memoryview(b"view"), body])
        await producer.deferred_publish("t", body, timedelta(minutes=5))
    assert Config(read_timeout=timedelta(minutes=2)).read_timeout == 120
    nsqd._broker.topics["t"].channel("c")

    assert nsqd.published("t") == [b"array", b"view", b"array", b"array"]
    assert nsqd.deferred("t", "c") == [300]


async def test_answer_that_does_not_reach_nsqd_is_not_counted(nsqd):
    nsqd.publish("t", b"x")
    working, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message):
        working.set()
        await go_on.wait()

    async with consumer_of(nsqd, handle) as consumer:
        await working.wait()
        nsqd.drop_connections()
        await eventually(lambda: not consumer.nsqd_addresses, "it is noticed")
        go_on.set()
        await eventually(lambda: not consumer._handling._in_hand, "the handler has ended")

        assert consumer.stats.finished == 0


async def test_waiting_messages_of_lost_connection_are_not_handled(nsqd):
    for n in range(3):
        nsqd.publish("t", b"%d" % n)
    handled, go_on = [], asyncio.Event()

    async def handle(message):
        handled.append((message.body, message.attempts))
        await go_on.wait()

    async with consumer_of(nsqd, handle) as consumer:
        await eventually(lambda: handled, "the first is in hand")
        nsqd.drop_connections()
        await eventually(lambda: not consumer.nsqd_addresses, "the loss is noticed")
        go_on.set()
        await eventually(lambda: len(nsqd.finished("t", "c")) == 3, "all were delivered again")

    assert sorted(handled) == [(b"0", 1), (b"0", 2), (b"1", 2), (b"2", 2)]


# --- nsqd that take turns


async def test_slow_message_does_not_delay_messages_of_other_nsqd(nsqd):
    most = 0

    async def slow(message):
        nonlocal most
        for _ in range(14):
            most = max(most, consumer.in_flight)
            await asyncio.sleep(0.1)
        handled.append(message.body)

    handled = Bodies()
    quick_turns = Config(low_rdy_idle_timeout=1, low_rdy_timeout=1, rdy_redistribute_interval=0.1)
    with MemoryNsqd() as other:
        for each in (nsqd, other):
            each.publish("t", b"from " + each.address.encode())
        consumer = consumer_of(nsqd, other, slow, config=quick_turns)
        async with consumer:
            await eventually(lambda: len(handled) == 2, "both had their turn")

    assert most == 1


# --- without heartbeats


async def test_quiet_connection_without_heartbeats_is_kept(nsqd):
    config = Config(heartbeat_interval=-1, read_timeout=0.3)
    async with (
        consumer_of(nsqd, Bodies(), config=config),
        Producer(nsqd.address, config=config) as producer,
    ):
        await producer.ping()
        await asyncio.sleep(1)

        assert nsqd.connections_made == 2
        nsqd.freeze()
        with pytest.raises(ConnectionError, match="did not answer"):
            await producer.publish("t", b"x")


# --- errors and addresses


@pytest.mark.parametrize("kind", [Producer, sync.Producer])
def test_producer_takes_one_address_or_several_by_position_or_keyword(kind):
    for made in (
        lambda: kind("127.0.0.1:4150"),
        lambda: kind(["127.0.0.1:4150"]),
        lambda: kind(nsqd_addresses="127.0.0.1:4150"),
        lambda: kind(nsqd_addresses=("127.0.0.1:4150",)),
    ):
        producer = made()
        assert producer.nsqd_address == "127.0.0.1:4150"
        if kind is sync.Producer:
            producer.close()
    with pytest.raises(TypeError, match="an address is text"):
        kind([4150])
    for wrong in ("127.0.0.1", ("host:4150", "host:x")):
        with pytest.raises(ValueError, match="is not host:port"):
            kind(wrong)
    with pytest.raises(ValueError, match="needs addresses of nsqd or of nsqlookupd"):
        kind()


def test_consumer_needs_addresses_and_names():
    with pytest.raises(ValueError, match="needs addresses of nsqd or of nsqlookupd"):
        Consumer("t", "c")
    with pytest.raises(ValueError, match="channel name 'a b' is not valid"):
        Consumer("t", "a b", nsqd_addresses="a:1")


async def test_publish_errors_are_nsq_errors(nsqd):
    async def error_of(address, **settings):
        async with Producer(address, config=Config(dial_timeout=0.3), **settings) as producer:
            with pytest.raises(NSQError) as caught:
                await producer.publish("t", b"x")
        with pytest.raises(NSQError):
            await producer.publish("t", b"x")
        return type(caught.value)

    assert await error_of(f"127.0.0.1:{free_port()}") is UnreachableError
    assert await error_of("no-such-host.invalid:4150") is UnreachableError
    assert await error_of((), lookupd_addresses=f"127.0.0.1:{free_port()}") is UnreachableError
    nsqd.refuse("E_BAD_TOPIC")
    assert await error_of(nsqd.address) is ProtocolError
    assert issubclass(UnreachableError, ConnectionError)
