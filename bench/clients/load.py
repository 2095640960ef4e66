"""Runs one work with one client library in a separate process and prints its messages a second.

Each library is used in the fastest way it documents. The time ends only when every message is confirmed: an
OK for each published message, a FIN sent for each one that was read, and an empty channel at the end.
"""

import asyncio
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable

IN_FLIGHT = 2000  # most messages of a consumer, and most publishes without an OK
BATCH = 100  # messages in one MPUB
GATHERED = 1000  # publishes that are awaited together
THREADS = 4  # threads of a consumer whose handlers run in threads
CHANNEL = "bench"


class Watch:
    """Wall time and CPU time of this process, from creation or ``start`` to the end."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0
        self.start()

    def start(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def end(self) -> "Watch":
        self.seconds, self.cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        return self


class Meter:
    """Counts messages up to a number; its time runs from the first message to the last."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.watch: Watch | None = None

    def one_more(self) -> bool:
        """Count a message; return True if it was the last one."""
        if self.watch is None:
            self.watch = Watch()
        self.left -= 1
        if self.left == 0:
            self.watch.end()
        return self.left <= 0


# --- ours


async def ours(work: str, address: str, topic: str, body: bytes, messages: int) -> Watch | None:
    from nsqclient import Config, Consumer, Producer

    if work.startswith("consume"):
        meter, done = Meter(messages), asyncio.Event()

        def handle(_delivery) -> None:
            if meter.one_more():
                done.set()

        async def handle_async(delivery) -> None:
            handle(delivery)

        loop, lock = asyncio.get_running_loop(), threading.Lock()

        def handle_in_a_thread(_delivery) -> None:
            with lock:
                ended = meter.one_more()
            if ended:
                loop.call_soon_threadsafe(done.set)

        config = Config(max_in_flight=IN_FLIGHT)
        consumer = Consumer(topic, CHANNEL, nsqd_addresses=[address], config=config)
        if work == "consume-threads":
            consumer.add_handler(handle_in_a_thread, concurrency=THREADS, in_threads=True)
        else:
            consumer.add_handler(handle_async if work == "consume-async" else handle)
        async with consumer:
            await done.wait()
        return meter.watch
    if work == "sync-submit":
        return await asyncio.to_thread(ours_sync, address, topic, body, messages)
    async with Producer(address) as producer:
        await producer.ping()
        watch = Watch()
        if work == "publish":
            for _ in range(messages):
                await producer.submit(topic, body)
            await producer.flush()
        elif work == "publish-one":
            for _ in range(messages):
                await producer.publish(topic, body)
        elif work == "publish-gather":
            for _ in range(messages // GATHERED):
                await asyncio.gather(*(producer.publish(topic, body) for _ in range(GATHERED)))
        else:
            for _ in range(messages // BATCH):
                await producer.submit_many(topic, [body] * BATCH)
            await producer.flush()
        return watch.end()


def ours_sync(address: str, topic: str, body: bytes, messages: int) -> Watch:
    from nsqclient import sync

    with sync.Producer(address) as producer:
        producer.ping()
        watch = Watch()
        waiting = deque(producer.submit(topic, body) for _ in range(messages))
        for future in waiting:
            future.result()
        return watch.end()


# --- ansq


async def ansq(work: str, address: str, topic: str, body: bytes, messages: int) -> Watch | None:
    from ansq import create_reader, create_writer

    if work.startswith("consume"):
        reader = await create_reader(topic=topic, channel=CHANNEL, nsqd_tcp_addresses=[address])
        for connection in reader._connections.values():
            await connection.rdy(IN_FLIGHT)  # the library has no option for RDY
        meter = Meter(messages)
        async for message in reader.messages():
            await message.fin()
            if meter.one_more():
                break
        await reader.close()
        return meter.watch
    writer = await create_writer(nsqd_tcp_addresses=[address])
    watch = Watch()
    if work == "publish":
        await side_by_side(messages, lambda: writer.pub(topic, body))
    else:
        await publish_with(writer, work, topic, body, messages)
    watch.end()
    await writer.close()
    return watch


async def publish_with(writer, work: str, topic: str, body: bytes, messages: int) -> None:
    """Publish with ansq or asyncnsq, whose interfaces are the same here."""
    if work == "publish-one":
        for _ in range(messages):
            await writer.pub(topic, body)
    elif work == "publish-gather":
        for _ in range(messages // GATHERED):
            await asyncio.gather(*(writer.pub(topic, body) for _ in range(GATHERED)))
    else:
        await side_by_side(messages // BATCH, lambda: writer.mpub(topic, *[body] * BATCH), tasks=20)


async def side_by_side(count: int, publish: Callable[[], Awaitable[object]], tasks: int = 200) -> None:
    """Keep many publishes under way with tasks, for a library without delivery futures."""
    left = iter(range(count))

    async def some() -> None:
        for _ in left:
            await publish()

    await asyncio.gather(*(some() for _ in range(tasks)))


# --- asyncnsq


async def asyncnsq(work: str, address: str, topic: str, body: bytes, messages: int) -> Watch | None:
    from asyncnsq import create_reader, create_writer

    host, _, port = address.rpartition(":")
    if work.startswith("consume"):
        reader = await create_reader(nsqd_tcp_addresses=[address], max_in_flight=IN_FLIGHT)
        await reader.subscribe(topic, CHANNEL)
        meter = Meter(messages)
        async for message in reader.messages():
            await message.fin()
            if meter.one_more():
                break
        await asyncio.sleep(0.5)  # lets the last FINs be sent
        return meter.watch
    writer = await create_writer(host=host, port=int(port))
    watch = Watch()
    if work == "publish":
        await side_by_side(messages, lambda: writer.pub(topic, body))
    else:
        await publish_with(writer, work, topic, body, messages)
    return watch.end()


# --- pynsq


async def pynsq(work: str, address: str, topic: str, body: bytes, messages: int) -> Watch | None:
    import nsq

    done = asyncio.Event()
    meter = Meter(messages if work.startswith(("consume", "publish")) else messages // BATCH)
    if work.startswith("consume"):

        def handle(_message) -> bool:
            if meter.one_more():
                done.set()
            return True

        reader = nsq.Reader(
            topic, CHANNEL, message_handler=handle, nsqd_tcp_addresses=[address], max_in_flight=IN_FLIGHT
        )
        await done.wait()
        reader.close()
        return meter.watch
    writer = nsq.Writer([address])
    await asyncio.sleep(1)  # the library does not report the end of its handshake
    waiting = asyncio.Semaphore(1 if work == "publish-one" else IN_FLIGHT if work == "publish" else 20)

    def confirmed(_connection, data) -> None:
        assert data == b"OK", data
        waiting.release()
        if meter.one_more():
            done.set()

    watch = Watch()
    for _ in range(meter.left):
        await waiting.acquire()
        if work.startswith("publish"):
            writer.pub(topic, body, confirmed)
        else:
            writer.mpub(topic, [body] * BATCH, confirmed)
    await done.wait()
    return watch.end()


# --- gnsq


def gnsq(work: str, address: str, topic: str, body: bytes, messages: int) -> Watch | None:
    from gevent import monkey

    monkey.patch_all()
    import gevent
    import gnsq as library

    if work.startswith("consume"):
        meter = Meter(messages)
        consumer = library.Consumer(topic, CHANNEL, nsqd_tcp_addresses=[address], max_in_flight=IN_FLIGHT)

        def handle(_consumer, message) -> None:  # noqa: ARG001 - passed by keyword
            if meter.one_more():
                gevent.spawn_later(1, consumer.close)  # the last FIN is sent after this returns

        consumer.on_message.connect(handle, weak=False)
        consumer.start()
        return meter.watch
    producer = library.Producer([address])
    producer.start()
    watch = Watch()
    waiting = []
    for _ in range(messages // BATCH if work == "mpub" else messages):
        if work in {"publish", "sync-submit"}:
            waiting.append(producer.publish(topic, body, raise_error=False))
        elif work == "publish-one":
            producer.publish(topic, body)
        else:
            waiting.append(producer.multipublish(topic, [body] * BATCH, raise_error=False))
        if len(waiting) >= IN_FLIGHT:
            wait_for(waiting)
    wait_for(waiting)
    watch.end()
    producer.close()
    return watch


def wait_for(waiting: list) -> None:
    for answer in waiting:
        answer.get()
    waiting.clear()


LIBRARIES = {"ours": ours, "ansq": ansq, "asyncnsq": asyncnsq, "pynsq": pynsq, "gnsq": gnsq}


def main() -> None:
    library, work, loop, address, topic, size, count = sys.argv[1:]
    body, messages = b"x" * int(size), int(count)
    run = LIBRARIES[library]
    if library == "gnsq":
        watch = gnsq(work, address, topic, body, messages)
    elif loop == "uvloop":
        import uvloop

        watch = uvloop.run(run(work, address, topic, body, messages))
    else:
        watch = asyncio.run(run(work, address, topic, body, messages))
    print(json.dumps({"rate": messages / watch.seconds, "cpu_us": watch.cpu / messages * 1e6}))


if __name__ == "__main__":
    main()
