"""One turn of the event loop: what its commands published is stored, then answered, then delivered.

Connections and HTTP handlers apply commands as they are read and ask for a turn; the loop calls it once
after everything it had to read. So the publishers of a moment share one write per topic, and consumers are
woken once.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nsqcore.service.logs import Log
from nsqd.engine.broker import Broker, Event
from nsqd.engine.topic import Topic
from nsqd.server.delivery import serve
from nsqd.server.health import Health
from nsqd.storage.data_path import DataPath


class NotStored(Exception):
    """A publish could not be stored; the text is the reason."""


class Answerer(Protocol):
    """A connection with replies to send."""

    def not_stored(self, topic: Topic, reason: str) -> None: ...

    def answer(self) -> None: ...

    def hold_answer(self) -> Callable[[str], None] | None:
        """Take the replies that must wait for an fsync; what is returned sends them, or the error given."""


@dataclass(slots=True)
class _Group:
    """Everybody who waits for the same fsync."""

    answers: list[Callable[[str], None]] = field(default_factory=list)


class Turn:
    """Stores, answers and delivers; see the module."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        health: Health,
        log: Log,
        *,
        sync_every: int,
        on_event: Callable[[Event], None],
    ) -> None:
        """With *sync_every* 1 answers wait for the fsync; *on_event* hears what came to be or went."""
        self._broker = broker
        self._data = data
        self._health = health
        self._log = log
        self._sync_every = sync_every
        self._strict = sync_every == 1
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._hurried = False
        self._answering: dict[Answerer, None] = {}
        self._publishes: list[tuple[Topic, Callable[[str], None]]] = []
        self._group = _Group()
        self._sync: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        # The slowest fsync since somebody asked, for the metrics.
        self.sync_count = 0
        self.sync_seconds = 0.0

    # --- asking for a turn ---

    def ask(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def ask_for(self, connection: Answerer, *, waits: bool = False) -> None:
        """Take a turn, in which *connection* has something to say; *waits*: its client waits for that.

        The first in a round of the loop whose client waits is served at once, so that the client goes on
        while the others are read; those share the turn at the end of the round. With few clients that wait
        for each answer, server and clients would else work in turn, never at the same time.
        """
        self._answering[connection] = None
        self.ask()
        if waits and not self._hurried:
            self._hurried = True
            self._take()

    def stored(self, topic: Topic) -> asyncio.Future[None]:
        """Wait until what was just staged at *topic* is stored. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.when_stored(topic, _settler(future))
        return future

    def when_stored(self, topic: Topic, tell: Callable[[str], None]) -> None:
        """Call *tell* when what was just staged at *topic* is stored, or with the reason why it is not."""
        self._broker.dirty[topic] = None
        self._publishes.append((topic, tell))
        self.ask()

    # --- the turn ---

    def run(self) -> None:
        """The turn at the end of a round."""
        self._scheduled = self._hurried = False
        self._take()

    def _take(self) -> None:
        broker = self._broker
        now_ns = time.time_ns()
        if broker.events:
            self._tell()
        failed = self._store() if broker.dirty else None
        if self._answering:
            self._answer(failed)
        if self._publishes:
            self._settle(failed)
        wake = broker.wake
        while wake:
            channel, _ = wake.popitem()
            if not channel.exiting:
                serve(broker, channel, now_ns)
        if broker.events:
            self._tell()
        self._arm(now_ns)

    def _store(self) -> dict[Topic, str]:
        """Write and commit what is staged; returns the topics for which that failed, and why."""
        failed: dict[Topic, str] = {}
        broker = self._broker
        for topic in broker.dirty:
            blocks = topic.staged()
            if not blocks:
                continue
            if not topic.ephemeral:
                store = self._data.store(topic.name)
                try:
                    store.append(blocks)
                except OSError as error:
                    reason = (error.strerror or str(error)).lower()
                    failed[topic] = reason
                    topic.abandon()
                    size = sum(len(block.data) for block in blocks)
                    if self._health.publish_failed(topic.name, reason, size):
                        self._log.error(
                            "TOPIC(%s) failed to write messages to %s - %s", topic.name, store.folder, reason
                        )
                    continue
                self._health.publish_worked(topic.name)
                if store.unsynced >= self._sync_every > 0:
                    self.sync()
            broker.commit(topic)
        broker.dirty.clear()
        return failed

    def _answer(self, failed: dict[Topic, str] | None) -> None:
        answering, self._answering = self._answering, {}
        for connection in answering:
            if failed:
                for topic, reason in failed.items():
                    connection.not_stored(topic, reason)
            if self._strict:
                held = connection.hold_answer()
                if held is not None:
                    self._group.answers.append(held)
                    self.sync()
                    continue
            connection.answer()

    def _settle(self, failed: dict[Topic, str] | None) -> None:
        publishes, self._publishes = self._publishes, []
        for topic, tell in publishes:
            if failed and topic in failed:
                tell(failed[topic])
            elif self._strict and not topic.ephemeral:
                self._group.answers.append(tell)
                self.sync()
            else:
                tell("")

    def _tell(self) -> None:
        events, self._broker.events = self._broker.events, []
        for event in events:
            self._on_event(event)

    # --- time ---

    def _arm(self, now_ns: int) -> None:
        """Have :meth:`_expire` called when the next message times out or becomes due."""
        due_ns = self._broker.next_due_ns()
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(max(0, due_ns - now_ns) / 1e9, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._broker.expire(time.time_ns())
        self.ask()

    # --- fsync ---

    def sync(self) -> None:
        """Make what was appended durable, off the loop; one fsync at a time, others wait for the next."""
        if self._sync is None:
            self._sync = self._loop.create_task(self._sync_until_done(), name="fsync")

    async def synced(self) -> None:
        """Wait until nobody waits for an fsync."""
        self.sync()
        while self._sync is not None:
            await self._sync

    async def _sync_until_done(self) -> None:
        # First run after the turn that asked for it, so that all of that turn's answers are in the group.
        try:
            while True:
                group, self._group = self._group, _Group()
                jobs = self._sync_jobs()
                reason = await self._loop.run_in_executor(None, self._run_jobs, jobs) if jobs else ""
                for answer in group.answers:
                    answer(reason)
                if not self._group.answers:
                    return
        finally:
            self._sync = None

    def _sync_jobs(self) -> list[tuple[str, Callable[[], None]]]:
        jobs = []
        for name, store in self._data.stores.items():
            try:
                job = store.begin_sync()
            except OSError as error:
                job = _raiser(error)
            if job is not None:
                jobs.append((name, job))
        return jobs

    def _run_jobs(self, jobs: list[tuple[str, Callable[[], None]]]) -> str:
        """In a thread: the reason of the first failure, or nothing."""
        began = time.monotonic()
        failure = ""
        for name, job in jobs:
            try:
                job()
            except OSError as error:
                failure = failure or (error.strerror or str(error)).lower()
                self._loop.call_soon_threadsafe(self._sync_failed, name, failure)
        self.sync_count += 1
        self.sync_seconds += time.monotonic() - began
        return failure

    def _sync_failed(self, name: str, reason: str) -> None:
        # After a failed fsync the kernel may have dropped the pages: the file is given up, not retried.
        store = self._data.stores.get(name)
        if store is not None:
            store.seal()
        if self._health.publish_failed(name, reason, 1):
            self._log.error("TOPIC(%s) failed to sync - %s", name, reason)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _settler(future: asyncio.Future[None]) -> Callable[[str], None]:
    def settle(reason: str) -> None:
        if future.done():
            return
        if reason:
            future.set_exception(NotStored(reason))
        else:
            future.set_result(None)

    return settle


def _raiser(error: OSError) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
