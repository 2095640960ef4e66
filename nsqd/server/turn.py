"""One turn of the event loop: what its commands published is stored, then answered, then delivered.

Connections and HTTP handlers apply commands as they are read and ask for a turn; the loop calls it once
after everything it had to read. So the publishers of a moment share one write per topic, and consumers are
woken once.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from nsqcore.service.logs import Log
from nsqd.engine.block import Block
from nsqd.engine.broker import Broker, Event
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.server.busy_poll import BusyPoll
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.delivery import serve
from nsqd.server.health import Health, reading_of
from nsqd.storage.data_path import DataPath
from nsqd.storage.spare import NO_SPACE
from nsqd.storage.topic_store import SyncJob, TopicStore, store_of

# Between the beginnings of two fsyncs that --sync-every asks for: one after the other without a pause, with
# the hand-over to their thread, took a fifth of the processor time of publishing.
SYNC_PAUSE_NS: Final = 20_000_000


class NotStored(Exception):
    """A publish could not be stored; the text is the reason."""


class Answerer(Protocol):
    """A connection with replies to send."""

    def not_stored(self, topic: Topic, reason: str) -> None: ...

    def answer(self) -> None: ...

    def hold_answer(self) -> Callable[[str], None] | None:
        """Take the replies that must wait for an fsync; what is returned sends them, or the error given."""


# Told "" when something is stored, or the reason why it is not.
Tell = Callable[[str], None]


@dataclass(slots=True)
class _Group:
    """Everybody who waits for the same fsync."""

    answers: list[Tell] = field(default_factory=list)


@dataclass(slots=True)
class _Jobs:
    """What one fsync covers, and what became of it."""

    stores: list[SyncJob]
    # Folders that were renamed because their topics were deleted.
    leaving: list[Path]
    left: bool = False
    errors: dict[TopicStore, OSError] = field(default_factory=dict)
    reason: str = ""


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
        busy_poll_ns: int = 0,
        on_event: Callable[[Event], None],
    ) -> None:
        """With *sync_every* 1 answers wait for the fsync; *on_event* hears what was created or deleted.

        For *busy_poll_ns* the next request is looked for behind an answer; see `busy_poll`.
        """
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
        # Somebody is answered in this turn who waits for it.
        self._awaited = False
        # An answer that waits for an fsync comes too late for it.
        self._busy_poll = BusyPoll(0 if self._strict else busy_poll_ns, self._loop.call_soon, clock_ns)
        self._answering: dict[Answerer, None] = {}
        # Who waits until a topic's messages are stored; True: until they are durable, in any mode.
        self._publishes: list[tuple[Topic, Tell, bool]] = []
        # Stores with something to be synced, and the names of their topics.
        self._unsynced: dict[TopicStore, str] = {}
        # Topics of which something could not be read, as it was told last.
        self._unreadable: dict[str, str] = {}
        self._group = _Group()
        self._sync: asyncio.Task[None] | None = None
        self._syncing: dict[TopicStore, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._sync_began_ns = 0
        self._pause: asyncio.TimerHandle | None = None
        # How many fsyncs there were, and how long they took, for the metrics.
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
        if waits:
            self._awaited = True
            self._busy_poll.heard(clock_ns())
            if not self._hurried:
                self._hurried = True
                self._take()

    def stored(self, topic: Topic) -> asyncio.Future[None]:
        """Wait until what was just staged at *topic* is stored. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.when_stored(topic, _settler(future))
        return future

    def when_stored(self, topic: Topic, tell: Tell) -> None:
        """Call *tell* when what was just staged at *topic* is stored, or with the reason why it is not."""
        self._broker.dirty[topic] = None
        self._publishes.append((topic, tell, False))
        self.ask()

    def durable(self, topic: Topic) -> asyncio.Future[None]:
        """Wait until what was just staged at *topic* is on the disk for sure. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._broker.dirty[topic] = None
        self._publishes.append((topic, _settler(future), True))
        self.ask()
        return future

    def names_durable(self) -> asyncio.Future[None]:
        """Wait until the folders of deleted topics are gone for sure. Raises NotStored."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._group.answers.append(_settler(future))
        self.ask()
        self.sync()
        return future

    # --- the turn ---

    def run(self) -> None:
        """The turn at the end of a round."""
        self._scheduled = self._hurried = False
        self._take()

    def _take(self) -> None:
        broker = self._broker
        now_ns = clock_ns()
        if broker.events:
            self._tell()
        failed = self._store(now_ns) if broker.dirty else None
        if self._answering:
            self._answer(failed)
        if self._publishes:
            self._settle(failed)
        if broker.wake:
            self._serve(now_ns)
        if broker.stalled or self._unreadable:
            self._tell_unreadable()
        if broker.events:
            self._tell()
        self._arm(now_ns)
        if self._awaited:
            self._awaited = False
            self._busy_poll.answered(clock_ns())
        if broker.dirty:
            # An event of this turn has left a note.
            self.ask()

    def _serve(self, now_ns: int) -> None:
        wake = self._broker.wake
        later: list[Channel] = []
        while wake:
            channel, _ = wake.popitem()
            if not channel.exiting and serve(self._broker, channel, now_ns):
                later.append(channel)
        for channel in later:
            wake[channel] = None
            self.ask()

    def _store(self, now_ns: int) -> dict[Topic, str]:
        """Write and commit what is staged; returns the topics for which that failed, and why."""
        failed: dict[Topic, str] = {}
        broker = self._broker
        reserved = broker.sequences.reserved
        for topic in broker.dirty:
            blocks = topic.staged()
            notes = topic.staged_notes()
            if not (blocks or notes):
                continue
            try:
                if blocks and blocks[-1].next > reserved:
                    reserved = self._reserve(blocks[-1].next)
                store = store_of(topic)
                if store is not None:
                    self._append(store, blocks, notes, topic.log.next_seq)
            except OSError as error:
                failed[topic] = self._not_stored(topic, blocks, error)
                continue
            broker.commit(topic)
            if store is not None:
                self._health.publish_worked(topic.name)
                self._unsynced[store] = topic.name
                if store.unsynced >= self._sync_every > 0:
                    self._sync_when_due(now_ns)
        broker.dirty.clear()
        return failed

    def _append(self, store: TopicStore, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:
        try:
            store.append(blocks, notes, next_seq)
        except OSError as error:
            # What empties or deletes is how a full disk is freed: the space kept aside is for this.
            if blocks or error.errno not in NO_SPACE or not self._data.spare.give_up():
                raise
            store.append(blocks, notes, next_seq)

    def _reserve(self, end: int) -> int:
        """Reserve what is below *end*, and more. Raises OSError."""
        self._data.reservation.extend(end)
        return self._broker.sequences.reserved

    def _not_stored(self, topic: Topic, blocks: list[Block], error: OSError) -> str:
        reason = (error.strerror or str(error)).lower()
        topic.abandon()
        # Notes that could not be written are in the next checkpoint.
        topic.changed = True
        size = max(1, sum(len(block.data) for block in blocks))
        if self._health.publish_failed(topic.name, reason, size):
            self._log.error(
                "TOPIC(%s) failed to write messages to %s - %s", topic.name, self._data.path, reason
            )
        return reason

    def _answer(self, failed: dict[Topic, str] | None) -> None:
        answering, self._answering = self._answering, {}
        for connection in answering:
            try:
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
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
                self._answer_failed(error)

    def _settle(self, failed: dict[Topic, str] | None) -> None:
        publishes, self._publishes = self._publishes, []
        for topic, tell, durable in publishes:
            if failed and topic in failed:
                self._say(tell, failed[topic])
            elif (self._strict or durable) and not topic.ephemeral:
                self._group.answers.append(tell)
                self.sync()
            else:
                self._say(tell, "")

    def _say(self, tell: Tell, reason: str) -> None:
        try:
            tell(reason)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
            self._answer_failed(error)

    def _answer_failed(self, error: Exception) -> None:
        """One client whose answer fails does not cost the others theirs."""
        self._loop.call_exception_handler({"message": "an answer failed", "exception": error})

    def _tell_unreadable(self) -> None:
        """Say which topics have messages that cannot be read just now, and which have none any more."""
        stalled = self._broker.stalled
        for channel in [one for one in stalled if one.exiting or not (one.stalled and one.depth)]:
            del stalled[channel]
        reasons = {channel.topic_name: channel.stalled for channel in stalled}
        for name, reason in reasons.items():
            if self._health.failed(reading_of(name), reason):
                self._log.error("TOPIC(%s) failed to read its messages, will try again - %s", name, reason)
        for name in self._unreadable.keys() - reasons:
            self._health.worked(reading_of(name))
            self._log.info("TOPIC(%s) can be read again", name)
        self._unreadable = reasons

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
        self._broker.expire(clock_ns())
        self.ask()

    # --- fsync ---

    def sync(self) -> None:
        """Make what was appended durable, off the loop; one fsync at a time, others wait for the next."""
        if self._sync is None:
            self._sync_began_ns = clock_ns()
            self._sync = self._loop.create_task(self._sync_until_done(), name="fsync")

    def _sync_when_due(self, now_ns: int) -> None:
        """As many messages as --sync-every says are not durable yet."""
        wait_ns = self._sync_began_ns + SYNC_PAUSE_NS - now_ns
        if self._strict or (wait_ns <= 0 and self._sync is None):
            self.sync()
        elif self._pause is None:
            # One that is running may have begun before the last append.
            self._pause = self._loop.call_later(max(wait_ns, 0) / 1e9, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        if self._sync is None:
            self.sync()
        else:
            self._pause = self._loop.call_later(SYNC_PAUSE_NS / 1e9, self._end_pause)

    async def synced(self) -> None:
        """Wait until all that is appended by now is durable, or failed to be.

        Whoever is cancelled here leaves the fsync to the others.
        """
        if self._sync is not None:
            # It may have begun before the last append.
            await asyncio.shield(self._sync)
        self.sync()
        while self._sync is not None:
            await asyncio.shield(self._sync)

    async def _sync_until_done(self) -> None:
        # First run after the turn that asked for it, so that all of that turn's answers are in the group.
        try:
            while True:
                group, self._group = self._group, _Group()
                jobs = self._sync_jobs()
                if jobs.stores or jobs.leaving:
                    await self._loop.run_in_executor(None, self._run_jobs, jobs)
                    self._end_jobs(jobs)
                for answer in group.answers:
                    self._say(answer, jobs.reason)
                if not self._group.answers:
                    return
        finally:
            self._sync = None

    def _sync_jobs(self) -> _Jobs:
        stores, self._unsynced = self._unsynced, {}
        jobs = _Jobs([job for store in stores if (job := store.begin_sync())], self._data.leaving)
        self._data.leaving = []
        self._syncing = stores
        return jobs

    def _run_jobs(self, jobs: _Jobs) -> None:
        """In a thread."""
        began = time.monotonic()
        disk = self._data.disk
        for job in jobs.stores:
            try:
                job.run(disk)
            except OSError as error:
                jobs.errors[job.store] = error
        if jobs.leaving:
            try:
                disk.sync_folder(self._data.path)
                jobs.left = True
            except OSError as error:
                jobs.reason = (error.strerror or str(error)).lower()
        self.sync_count += 1
        self.sync_seconds += time.monotonic() - began

    def _end_jobs(self, jobs: _Jobs) -> None:
        if jobs.left:
            self._data.doomed += jobs.leaving
        else:
            self._data.leaving = jobs.leaving + self._data.leaving
        for job in jobs.stores:
            error = jobs.errors.get(job.store)
            job.store.end_sync(job, error)
            if error is None or job.store.retired:
                continue
            reason = (error.strerror or str(error)).lower()
            jobs.reason = jobs.reason or reason
            name = self._syncing[job.store]
            if self._health.publish_failed(name, reason, 1):
                self._log.error("TOPIC(%s) failed to sync - %s", name, reason)

    def close(self) -> None:
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        self._timer = self._pause = None


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
