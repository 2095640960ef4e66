"""Writing checkpoints of the pending messages of topics and channels once a second, and freeing what no
channel must deliver.
"""

import asyncio
import contextlib
import errno
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from nsqcore.http.pace import Pace
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.disk import error_text
from nsqd.server.clock import follow_clock, now_ns
from nsqd.server.compactor import Compactor
from nsqd.server.health import Health, checkpoint_of
from nsqd.storage.data_path import DataPath
from nsqd.storage.retention import apply_retention
from nsqd.storage.slots import STEP_NS, CheckpointJob
from nsqd.storage.spare import NO_SPACE
from nsqd.storage.topic_log import TopicLog, store_of

INTERVAL_S: Final = 1.0
# A file that was not appended to for one to two of these is closed.
IDLE_S: Final = 5.0
# A disk syncs several files in little more time than one.
WRITERS: Final = 8
# How many topics are checked in one go: a millisecond.
_TOPICS_PER_TURN: Final = 200


@dataclass(slots=True)
class _TopicCheckpoints:
    """The state of one topic between two rounds."""

    # When the oldest change that no checkpoint has yet was noticed, on the monotonic clock.
    changed_at: float | None = None
    # The jobs of threads on the topic's files, and how many callers want no new ones; see `quiesced`.
    jobs: set[asyncio.Future[None]] = field(default_factory=set)
    quiesced: int = 0


class Checkpointer:
    """Writes the checkpoints of the topics that changed; one task."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        health: Health,
        log: Log,
        written: Callable[[Topic, TopicLog, CheckpointJob], None],
    ) -> None:
        """*written* is called for each checkpoint that was written."""
        self._broker = broker
        self._data = data
        self._health = health
        self._log = log
        self._states: dict[Topic, _TopicCheckpoints] = {}
        self._compactor = Compactor(self, log)
        self._closed_idle_at = time.monotonic()
        # Of the wall clock, by which the checkpoints say when deferred messages are due.
        self._offset_ns = broker.wall.offset_ns
        self._removing: asyncio.Task[None] | None = None
        self._written = written

    @property
    def lag_s(self) -> float:
        """The age of the oldest change that is in no checkpoint, in seconds.

        After a crash, messages finished within this time could be delivered again.
        """
        live = [care for topic, care in self._states.items() if not topic.deleted]
        oldest = min((care.changed_at for care in live if care.changed_at is not None), default=None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    async def run(self) -> None:
        """Run rounds until cancelled; one begins a second after the previous one began, or when that ends."""
        try:
            while True:
                began = time.monotonic()
                await self._round(began)
                await asyncio.sleep(max(0.0, began + INTERVAL_S - time.monotonic()))
        finally:
            # Otherwise a thread that is still at work could write after later writes.
            await self._compactor.close()
            if self._removing is not None:
                await self._removing

    async def _round(self, now: float) -> None:
        self._check_clock()
        self._forget_deleted()
        changed: deque[Topic] = deque()
        pace = Pace(_TOPICS_PER_TURN)
        for topic in list(self._broker.topics.values()):
            await pace.done()
            for copy in topic.promoted:
                self._check_copy(copy, now, changed)
            self._broker.sequences.note_used(topic.sequence_end)
            topic.forget_due(now_ns())
            if topic.settings.retains:
                apply_retention(topic, time.time_ns())
            if not topic.take_changed():
                continue  # there is nothing to trim either: thousands of idle topics cost next to nothing
            while topic.trim():
                await pace.done(_TOPICS_PER_TURN)
            if topic.ephemeral or topic.deleted:
                continue
            care = self._state_of(topic)
            if care.changed_at is None:
                care.changed_at = now
            changed.append(topic)
            self._compactor.changed(topic)
        busy = set(changed)
        if self._data.reservation.wants_more:
            await self._reserve()
        await self._write_all(changed)
        self.remove_deleted()
        self._compactor.start(busy)
        if now - self._closed_idle_at >= IDLE_S:
            self._closed_idle_at = now
            self._data.open_files.close_idle()
        await self._check_space()

    def _check_clock(self) -> None:
        """Note the wall clock; when it was set, write all checkpoints again, because they have its times."""
        wall = self._broker.wall
        follow_clock(wall)
        if abs(wall.offset_ns - self._offset_ns) > STEP_NS:
            self._offset_ns = wall.offset_ns
            for topic in self._broker.topics.values():
                for one in (topic, *topic.promoted):
                    one.changed = True

    def _check_copy(self, copy: Topic, now: float, changed: deque[Topic]) -> None:
        """Note a changed promoted copy for a checkpoint; its files are not removed or compacted here."""
        if copy.take_changed() and not copy.deleted:
            care = self._state_of(copy)
            if care.changed_at is None:
                care.changed_at = now
            changed.append(copy)

    async def write_now(self, topic: Topic) -> bool:
        """Write a durable checkpoint of a topic, own or of a copy, now; False if that failed.

        It is for changes that a crash must not undo, such as the deletion of a channel of a copy.
        """
        store = store_of(topic)
        if store is None:
            return False
        async with self.quiesced(topic):
            topic.take_changed()
            try:
                return await self._write_now(topic, store)
            finally:
                # Another round has skipped the topic.
                topic.changed = True

    def _state_of(self, topic: Topic) -> _TopicCheckpoints:
        return self._states.setdefault(topic, _TopicCheckpoints())

    def _forget_deleted(self) -> None:
        cares = self._states
        for topic in [one for one, care in cares.items() if one.deleted and not (care.jobs or care.quiesced)]:
            self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        self._states.pop(topic, None)
        if topic.origin:
            # The copy was dropped. An own topic that was deleted may have a successor of its name.
            self._health.worked(_what(topic))

    async def _reserve(self) -> None:
        """Reserve sequences before they are needed, so that no publish waits for the disk."""
        try:
            await asyncio.to_thread(self._data.reservation.extend, self._broker.sequences.used)
        except OSError as error:
            # The publish that needs them tries again, and reports a failure.
            self._log.warning("failed to reserve message ids - %s", error)

    async def _write_all(self, topics: deque[Topic]) -> None:
        writers = [asyncio.create_task(self._write_each(topics)) for _ in range(min(WRITERS, len(topics)))]
        try:
            await asyncio.gather(*writers)
        except asyncio.CancelledError:
            # gather() raises when the first writer has ended; the threads of the others are still at work.
            await asyncio.gather(*writers, return_exceptions=True)
            raise

    async def _write_each(self, topics: deque[Topic]) -> None:
        """Write checkpoints as one of `WRITERS` tasks: a task for each of thousands of topics is a stall."""
        while topics:
            topic = topics.popleft()
            store = store_of(topic)
            if store is not None and self.may_work(topic):
                await self._write_now(topic, store)

    async def _write_now(self, topic: Topic, store: TopicLog) -> bool:
        """Write a checkpoint; returns whether it was written, even if the topic changed during that."""
        # The files of a copy are removed when the copy is dropped.
        low_water = 0 if store.segments.read_only else topic.unwanted_below()
        notes = store.segments.notes
        log_start = store.cleaner.log_start_after_drop(low_water, notes)
        if log_start is not None:
            # Set before the files are dropped, because the checkpoint must contain it.
            topic.log.log_start = max(topic.log.log_start, log_start)
            # Files are removed when both checkpoints agree: the next round writes the other one.
            topic.changed = True
        began = time.monotonic()
        # This checkpoint already includes the notes that are not written yet.
        job = store.checkpoints.start_job(topic, store.checkpoint_position(topic.log.next_seq))
        try:
            store.appender.reopen_if_removed()
            store.appender.make_folder()
            await self.in_thread(topic, lambda: job.run(self._data.disk))
            store.checkpoints.end(job)
            if not topic.deleted:
                self._written(topic, store, job)
            self._health.worked(_what(topic))
            care = self._state_of(topic)
            if care.changed_at is not None and care.changed_at <= began:
                care.changed_at = None
            if topic.deleted or care.quiesced or store.segments.read_only:
                return True
            covered = store.checkpoints
            # A channel created during that may need messages that no channel needed when the
            # checkpoint began.
            low_water = min(covered.covered_low_water, topic.unwanted_below())
            store.cleaner.drop_below(low_water, covered.covered_notes)
        except OSError as error:
            topic.changed = True
            if not topic.deleted:
                self._failed(topic, store, error, low_water)
                if error.errno == errno.ENOENT and not self._state_of(topic).jobs:
                    with contextlib.suppress(OSError):
                        # If the folder cannot be read at the moment, the next round tries again.
                        store.restart_if_removed()
            return False
        return True

    @contextlib.asynccontextmanager
    async def quiesced(self, topic: Topic) -> AsyncIterator[None]:
        """Keep threads off the topic's files, because another topic may soon have their names."""
        care = self._state_of(topic)
        care.quiesced += 1
        try:
            while care.jobs:
                await asyncio.wait(care.jobs)
            yield
        finally:
            care.quiesced -= 1
            if topic.deleted and not (care.jobs or care.quiesced):
                # Forgetting the topic also frees its messages in memory.
                self._forget(topic)

    def may_work(self, topic: Topic) -> bool:
        """Whether new work on the topic's files may begin."""
        return not topic.deleted and not self._state_of(topic).quiesced

    async def in_thread(self, topic: Topic, work: Callable[[], None]) -> None:
        """Run *work* in a thread, and wait for it even when cancelled: it could write after later writes."""
        job = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, work))
        jobs = self._state_of(topic).jobs
        jobs.add(job)
        job.add_done_callback(jobs.discard)
        try:
            await asyncio.shield(job)
        except asyncio.CancelledError:
            # If the work fails as well, that must not take the place of the cancellation.
            await asyncio.gather(job, return_exceptions=True)
            raise

    def remove_deleted(self) -> None:
        """Remove the files of deleted topics, in a thread."""
        if self._data.deleted and self._removing is None:
            self._removing = asyncio.create_task(self._remove_deleted(), name="removal of deleted topics")

    async def _remove_deleted(self) -> None:
        try:
            await asyncio.to_thread(self._data.remove_deleted)
        except OSError as error:
            self._log.warning("failed to remove a deleted topic, will try again - %s", error)
        finally:
            self._removing = None

    async def _check_space(self) -> None:
        """Make the node healthy again when there is room for the refused messages, even without publishes.

        Publishers are sent away from an unhealthy node, so no publish would find the room.
        """
        spare = self._data.spare
        if not spare.there:
            await asyncio.to_thread(spare.refill)
        for name, size in list(self._health.refused.items()):
            if spare.there and await asyncio.to_thread(spare.is_room_for, size):
                self._health.publish_worked(name)

    async def write_last(self) -> None:
        """Write the checkpoints of a clean stop: after a start from them nothing is delivered twice."""
        for topic in [one for own in self._broker.topics.values() for one in (own, *own.promoted)]:
            store = store_of(topic)
            if store is None:
                continue
            for _ in range(2):
                job = store.checkpoints.start_job(
                    topic, store.checkpoint_position(topic.log.next_seq), durable=False
                )
                try:
                    store.appender.make_folder()
                    job.run(self._data.disk)
                except OSError as error:
                    self._failed(topic, store, error, 0)
                    continue
                self._written(topic, store, job)
                break
        # One sync covers all topics: two syncs for each of thousands of topics would take too long.
        await asyncio.to_thread(self._data.disk.sync_all)

    def _failed(self, topic: Topic, store: TopicLog, error: OSError, low_water: int) -> None:
        reason = error_text(error)
        if self._health.failed(_what(topic), reason):
            self._log.error(
                "TOPIC(%s) failed to write its checkpoint to %s - %s",
                topic.name,
                store.segments.folder,
                reason,
            )
        if error.errno not in NO_SPACE or self._data.spare.release():
            return
        # The spare space was not enough either, so finished messages go before a checkpoint notes it.
        # After a crash before the next checkpoint they are reported as lost, which they are not. Notes stay
        # until a checkpoint has them.
        if not store.segments.read_only:
            store.cleaner.drop_below(min(low_water, topic.unwanted_below()), store.checkpoints.covered_notes)


def _what(topic: Topic) -> str:
    """The name under which failures of the checkpoint are noted; a promoted copy shares its topic's name."""
    return checkpoint_of(topic.name, topic.origin)
