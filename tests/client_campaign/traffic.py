"""The traffic of a run: all kinds of publishes, on the event loop and from threads, and two channels."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from nsqclient import Consumer, Message, Producer, ProtocolError, sync
from tests.client_campaign.journal import Handled, Journal
from tests.support.waiting import eventually

TOPIC = "campaign"

# Everything must end within this time after the faults.
PATIENCE_SECONDS = 90.0
CLOSE_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Load:
    """The number and size of the published messages."""

    per_turn: int = 8
    pause: float = 0.01
    sizes: tuple[int, ...] = (10, 200, 5000)


class Traffic:
    """Publishes and reads with the given addresses and settings, and writes the journal."""

    def __init__(
        self,
        journal: Journal,
        seed: int,
        load: Load,
        *,
        nodes: int,
        to: dict[str, object],
        of: dict[str, object],
    ) -> None:
        """*to* are arguments of the producers, *of* of the consumers, which must find *nodes* nsqd."""
        self._nodes = nodes
        self._journal = journal
        self._rng = random.Random(seed)
        self._load = load
        self._to, self._of = to, of
        self._number = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._waiting: set[asyncio.Future[object]] = set()
        self._waiting_of_threads: list[Future[None]] = []

    async def run(self, fault: Awaitable[None]) -> None:
        """Send until *fault* ends, then wait for all outcomes."""
        loop = asyncio.get_running_loop()
        consumer = Consumer(TOPIC, "loop", self._handle, **self._of)  # type: ignore[arg-type]
        in_threads = sync.Consumer(TOPIC, "threads", self._handle_in_a_thread, concurrency=4, **self._of)  # type: ignore[arg-type]
        await consumer.start()
        await loop.run_in_executor(None, in_threads.start)
        # Messages published before the channels exist would go only to the first one.
        await eventually(
            lambda: min(len(consumer.nsqd_addresses), len(in_threads.nsqd_addresses)) >= self._nodes,
            "the consumers have found all nsqd",
            PATIENCE_SECONDS,
        )
        producer = Producer(self._to["addresses"], **self._options)  # type: ignore[arg-type]
        of_threads = sync.Producer(self._to["addresses"], **self._options)  # type: ignore[arg-type]
        publishing = asyncio.create_task(self._publish(producer))
        thread = threading.Thread(target=self._publish_from_a_thread, args=(of_threads,))
        thread.start()
        try:
            await fault
        finally:
            self._stop.set()
        await self._ends("the publishing task", publishing)
        await self._ends("the publishing thread", loop.run_in_executor(None, thread.join))
        await self._outcomes()
        await self._ends("close of the producer", producer.close(30), CLOSE_SECONDS)
        await self._ends(
            "close of the producer of threads",
            loop.run_in_executor(None, of_threads.close, 30),
            CLOSE_SECONDS,
        )
        with suppress(AssertionError):  # lost messages are counted later
            await eventually(lambda: self._journal.is_all_handled, "all is handled", PATIENCE_SECONDS)
        await self._ends("close of the consumer", consumer.close(10), CLOSE_SECONDS)
        closing = loop.run_in_executor(None, in_threads.close, 10)
        await self._ends("close of the consumer in threads", closing, CLOSE_SECONDS)

    @property
    def _options(self) -> dict[str, object]:
        return {name: value for name, value in self._to.items() if name != "addresses"}

    async def _ends(self, what: str, work: Awaitable[object], seconds: float = PATIENCE_SECONDS) -> None:
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            self._journal.never_ended.append(f"{what} did not end in {seconds:g} s")
        elif (error := task.exception()) is not None:
            self._journal.never_ended.append(f"{what} ended with {error!r}")

    # --- publishing

    def _next(self) -> tuple[int, bytes]:
        with self._lock:
            self._number += 1
            number, size = self._number, self._rng.choice(self._load.sizes)
        self._journal.submitted[number] = time.monotonic()
        return number, b"%d-" % number + bytes(size)

    def _note(self, number: int, error: BaseException | None) -> None:
        if error is None:
            self._journal.confirmed[number] = time.monotonic()
        else:
            with self._lock:
                self._journal.failed[type(error).__name__] += 1

    async def _publish(self, producer: Producer) -> None:
        while not self._stop.is_set():
            for _ in range(self._load.per_turn):
                number, body = self._next()
                try:
                    if number % 50 == 0:
                        await producer.publish(TOPIC, body, timeout=5)
                        self._note(number, None)
                        continue
                    if number % 20 == 0:
                        answer = await producer.submit_many(TOPIC, [body])
                    else:
                        answer = await producer.submit(TOPIC, body)
                except (OSError, ProtocolError) as error:
                    self._note(number, error)
                    continue
                self._waiting.add(answer)
                answer.add_done_callback(self._waiting.discard)
                answer.add_done_callback(
                    lambda done, number=number: self._note(number, done.exception())  # type: ignore[misc]
                )
            await asyncio.sleep(self._load.pause)

    def _publish_from_a_thread(self, producer: sync.Producer) -> None:
        while not self._stop.is_set():
            for _ in range(self._load.per_turn):
                number, body = self._next()
                try:
                    if number % 50 == 0:
                        producer.publish(TOPIC, body, timeout=5)
                        self._note(number, None)
                        continue
                    outcome = producer.submit(TOPIC, body, timeout=PATIENCE_SECONDS)
                except (OSError, ProtocolError) as error:
                    self._note(number, error)
                    continue
                self._waiting_of_threads.append(outcome)
                outcome.add_done_callback(lambda done, number=number: self._note(number, done.exception()))  # type: ignore[misc]
            time.sleep(self._load.pause)

    async def _outcomes(self) -> None:
        loop_ones = list(self._waiting)
        if loop_ones:
            _, late = await asyncio.wait(loop_ones, timeout=PATIENCE_SECONDS)
            if late:
                self._journal.never_ended.append(f"{len(late)} futures did not end")
        try:
            done = self._waiting_of_threads
            await eventually(lambda: all(one.done() for one in done), "they ended", PATIENCE_SECONDS)
        except AssertionError:
            self._journal.never_ended.append("futures of threads did not end")
        await asyncio.sleep(0)  # lets the last outcomes be noted

    # --- reading

    async def _handle(self, message: Message) -> None:
        if self._rng.random() < 0.2:
            await asyncio.sleep(0)
        self._got("loop", message)

    def _handle_in_a_thread(self, message: Message) -> None:
        self._got("threads", message)

    def _got(self, channel: str, message: Message) -> None:
        number = int(message.body.partition(b"-")[0])
        delivery = Handled(message.nsqd, message.id, time.monotonic())
        with self._lock:
            self._journal.handled[channel][number].append(delivery)
