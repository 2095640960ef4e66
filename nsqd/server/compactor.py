"""Freeing the disk of messages that no channel wants: files are removed, sparse segments are compacted.

A topic that changed is checked until no work is left, also when it is not used any more. Several topics are
processed at a time, each in its own thread. Together they read and write at most `BYTES_PER_SECOND`.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from nsqcore.http.pace import Pace
from nsqcore.process.logs import Log
from nsqd.engine.state import wanted_of
from nsqd.engine.topic import Topic
from nsqd.log.compaction import Compaction
from nsqd.storage.topic_log import TopicLog, store_of

# Topics that are worked on at a time, each by a thread.
WORKERS: Final = 3
BYTES_PER_SECOND: Final = 96 << 20
# How many topics a worker checks in one go, if there is nothing to do for them: a millisecond.
_TOPICS_PER_TURN: Final = 100
# A thread that has worked for so long rests this many times as long, if other threads of the process have
# used more than this share of the time.
_MIN_WORK_S: Final = 0.002
_PAUSE_FOR_WORK: Final = 3
_BUSY: Final = 0.1
# A compaction that saves nothing is followed by a rest of this many times its length, but at most so long.
_PAUSE_FACTOR: Final = 10
_MAX_PAUSE_S: Final = 10.0


class _Work(threading.local):
    """The clock and the processor times of process and thread at a thread's last rest, in seconds.

    A thread that has not rested yet counts from when it is first seen here.
    """

    def __init__(self) -> None:
        self.wall = time.monotonic()
        self.process = time.process_time()
        self.own = time.thread_time()


class Rate:
    """Limits all threads together to a number of bytes a second; a second's worth may be saved up.

    A thread that spends bytes also rests while other threads want the processor: of two threads of an
    interpreter, one waits for the other at each system call.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # When all spent bytes are paid for.
        self._paid_at = 0.0
        self._work = _Work()

    def spend(self, size: int) -> None:
        """Spend *size* bytes, and wait if more was spent than the rate allows; see the class."""
        with self._lock:
            now = time.monotonic()
            self._paid_at = max(self._paid_at, now - 1.0) + size / self._per_second
            ahead = max(self._paid_at - now, self._pause(now))
        if ahead > 0:
            self._ended.wait(ahead)

    def _pause(self, now: float) -> float:
        """How long the thread should rest for the others, in seconds: 0 if they have little to do."""
        work = self._work
        own = time.thread_time()
        worked = own - work.own
        if worked < _MIN_WORK_S:
            return 0.0
        process = time.process_time()
        others = process - work.process - worked
        wall = now - work.wall
        work.wall, work.process, work.own = now, process, own
        return _PAUSE_FOR_WORK * worked if others > _BUSY * wall else 0.0

    def end(self) -> None:
        """End all waiting, now and later."""
        self._ended.set()


class Threads(Protocol):
    """Runs work on a topic's files in threads, and knows which topics must not be worked on."""

    async def in_thread(self, topic: Topic, work: Callable[[], None]) -> None: ...

    def may_work(self, topic: Topic) -> bool: ...


class Compactor:
    """Frees disk space; see the module."""

    def __init__(self, threads: Threads, log: Log) -> None:
        self._threads = threads
        self._log = log
        # Topics that may have something to remove, and the time before which they are not checked again.
        self._to_check: dict[Topic, float] = {}
        # Topics that wait for a worker; True: the topic did not change since the last round.
        self._waiting: dict[Topic, bool] = {}
        self._working: set[Topic] = set()
        # Topics that changed while a worker was at them.
        self._changed_again: set[Topic] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._compacting: set[Compaction] = set()
        # Topics with files that cannot be removed, for which a warning was logged.
        self._logged: set[Topic] = set()
        self._rate = Rate(BYTES_PER_SECOND)

    def changed(self, topic: Topic) -> None:
        """Note that more of the topic may be finished than at the last check."""
        self._to_check.setdefault(topic, 0.0)
        if topic in self._working:
            self._changed_again.add(topic)

    def start(self, changed: set[Topic]) -> None:
        """Start workers for the topics to check; those *changed* since the last call are in use."""
        now = time.monotonic()
        for topic, not_before in list(self._to_check.items()):
            if topic.deleted:
                del self._to_check[topic]
                self._logged.discard(topic)
            elif topic not in self._working and now >= not_before:
                self._waiting[topic] = topic not in changed
        for _ in range(min(WORKERS - len(self._workers), len(self._waiting))):
            worker = asyncio.create_task(self._work(), name="space")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        """Stop soon; compactions that are not finished are given up."""
        self._waiting.clear()
        self._rate.end()
        for compaction in self._compacting:
            compaction.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        pace = Pace(_TOPICS_PER_TURN)
        while self._waiting:
            await pace.done()
            if not self._waiting:
                break
            topic = next(iter(self._waiting))
            idle = self._waiting.pop(topic)
            store = store_of(topic)
            if store is None or not self._threads.may_work(topic):
                continue
            self._working.add(topic)
            try:
                await self._make_room(topic, store, idle=idle)
            finally:
                self._working.discard(topic)
                self._changed_again.discard(topic)

    async def _make_room(self, topic: Topic, store: TopicLog, *, idle: bool) -> None:
        await self._remove(topic, store)
        while self._threads.may_work(topic):
            low_water, notes = topic.unwanted_below(), store.checkpoints.covered_notes
            if not store.cleaner.needs_compaction(notes, low_water, resting=idle):
                break
            began = time.monotonic()
            compaction = store.cleaner.begin_compaction(
                wanted_of(topic), notes, low_water, resting=idle, spend=self._rate.spend
            )
            try:
                saved = await self._compact(topic, store, compaction)
            except OSError as error:
                self._log.warning("TOPIC(%s): compaction failed - %s", topic.name, error)
                self._to_check[topic] = time.monotonic() + _MAX_PAUSE_S
                return
            if not saved:
                ended = time.monotonic()
                self._to_check[topic] = ended + min(_PAUSE_FACTOR * (ended - began), _MAX_PAUSE_S)
                break
            self._log.debug("TOPIC(%s): compaction saved %d bytes", topic.name, saved)
            await self._remove(topic, store)
        if idle:
            self._forget(topic, store)

    def _forget(self, topic: Topic, store: TopicLog) -> None:
        """Stop checking the topic until it changes, if nothing is left to do."""
        low_water = topic.unwanted_below()
        if store.cleaner.waits_for_notes(store.checkpoints.covered_notes, low_water):
            # The next checkpoint covers these notes.
            topic.changed = True
        elif not (
            topic in self._changed_again
            or store.cleaner.has_removable
            or store.cleaner.waits_for_sync(low_water)
        ):
            self._to_check.pop(topic, None)

    async def _compact(self, topic: Topic, store: TopicLog, compaction: Compaction) -> int:
        self._compacting.add(compaction)
        try:
            await self._threads.in_thread(topic, compaction.run)
        finally:
            self._compacting.discard(compaction)
        return store.cleaner.end_compaction(compaction)

    async def _remove(self, topic: Topic, store: TopicLog) -> None:
        if not store.cleaner.has_removable:
            return
        try:
            await self._threads.in_thread(topic, store.cleaner.remove_files)
            self._logged.discard(topic)
        except OSError as error:
            if topic not in self._logged:
                self._log.warning(
                    "TOPIC(%s): failed to remove what is finished, will try again - %s", topic.name, error
                )
                self._logged.add(topic)
