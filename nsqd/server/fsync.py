"""Making appended messages durable: a job for each store, and an answer for each publisher that waits.

Stores are synced in parallel, by threads that do nothing else. The folder of the data path, which has the
names of new topics, is synced once for all that wait for it. After a failed fsync its topic accepts no
publishes until a restart; the other topics continue. If only a file could not be opened, the publishers that
wait get an error, and the next fsync includes the file.
"""

import asyncio
import errno
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from nsqcore.process.logs import Log
from nsqd.engine.topic import Topic
from nsqd.log.disk import error_text
from nsqd.log.segment_writer import SyncJob
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.health import Health, syncing_of
from nsqd.storage.data_path import DataPath
from nsqd.storage.topic_log import TopicLog

# How many of the last fsyncs the percentiles are computed from.
LATENCY_SAMPLES: Final = 1000
# A disk syncs several files in little more time than one.
THREADS: Final = 8
# At most so many threads sync new topics: these take longer, may be thousands, and must not delay others.
MAX_NEW_TOPIC_THREADS: Final = 5
# The time between the starts of two fsyncs that --sync-every asks for. Without a pause, the fsyncs and
# handing them to threads took a fifth of the processor time of publishing.
SYNC_PAUSE_NS: Final = 20_000_000
# If the disk syncs in less time than this, handing an fsync to a thread costs more than syncing in the loop.
FAST_S: Final = 0.0005
# At most so many bytes are synced in the loop: more may take longer than the recent fsyncs did.
SMALL: Final = 64 << 10
# How fast a slow fsync is forgotten: one of 5 ms after some twenty fast ones.
_FORGET: Final = 0.9

# Called with "" when something is durable, or with the reason why it is not.
Callback = Callable[[str], None]


class _Run:
    """One job, and the callbacks that get its result."""

    __slots__ = ("callbacks", "ended", "error", "job", "seconds", "store", "topic")

    def __init__(self, topic: Topic, store: TopicLog, job: SyncJob, callbacks: list[Callback]) -> None:
        self.topic = topic
        self.store = store
        self.job = job
        self.callbacks = callbacks
        self.error: OSError | None = None
        self.ended = asyncio.Event()
        self.seconds = 0.0


class Fsync:
    """See the module. All methods except `_sync_files` are called in the event loop."""

    def __init__(
        self,
        data: DataPath,
        health: Health,
        log: Log,
        *,
        sync_every: int,
        threads: Executor,
        fast_s: float = FAST_S,
    ) -> None:
        """With *sync_every* 1 (strict mode) every publisher waits for the fsync.

        *threads* has `THREADS` threads and one more, for the folder of the data path.
        """
        self.strict = sync_every == 1
        # How many fsyncs there were, and how long they took together, for the metrics.
        self.count = 0
        self.seconds = 0.0
        # How long the last fsyncs took.
        self._took: deque[float] = deque(maxlen=LATENCY_SAMPLES)
        self._data = data
        self._health = health
        self._log = log
        self._sync_every = sync_every
        self._fast_s = fast_s
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        # Stores with appends since their last job began, and the callbacks for the end of the next one.
        self._unsynced: dict[TopicLog, Topic] = {}
        self._callbacks: dict[TopicLog, list[Callback]] = {}
        # Stores that wait for a thread, in order; new stores wait separately.
        self._waiting: dict[TopicLog, None] = {}
        self._waiting_new: dict[TopicLog, None] = {}
        self._running: dict[TopicLog, _Run] = {}
        # Stores to be synced after their job or when they are no longer quiesced; and by how many they are.
        self._again: dict[TopicLog, None] = {}
        self._quiesced: dict[TopicLog, int] = {}
        # How many threads are busy, and how many of them sync new stores.
        self._busy = 0
        self._busy_new = 0
        self._launching = False
        # Waiting for a sync of the data path's folder: jobs whose files are synced, and other callbacks.
        self._for_path: list[_Run] = []
        self._names: list[Callback] = []
        self._path_busy = False
        # The recent maximum of how long fsyncs took; it decays.
        self._recent_s = fast_s
        self._due: dict[TopicLog, None] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._paused_ns = 0

    # --- appends, and waiting for them ---

    def appended(self, topic: Topic, store: TopicLog, now_ns: int) -> None:
        """Note that *store* was appended to, and sync it soon if --sync-every is reached."""
        self._unsynced[store] = topic
        if store.appender.unsynced >= self._sync_every > 1:
            self._due[store] = None
            if self._pause is None:
                wait_ns = max(0, self._paused_ns + SYNC_PAUSE_NS - now_ns)
                self._pause = self._loop.call_later(wait_ns / 1e9, self._sync_due)

    def waits_for(self, store: TopicLog | None) -> bool:
        """Whether publishers must wait until the messages in *store* are durable, which they are not yet."""
        return store is not None and self.strict and self.has_unsynced(store)

    def has_unsynced(self, store: TopicLog) -> bool:
        """Whether *store* has messages that are not durable yet."""
        return store.appender.unsynced > 0 or store in self._running

    def when_durable(self, topic: Topic, store: TopicLog, callback: Callback) -> None:
        """Call *callback* when everything appended by now is durable, or with the reason why it is not."""
        if store.appender.failed:
            self._loop.call_soon(self._notify, [callback], store.appender.failed)
            return
        self._unsynced.setdefault(store, topic)
        self._callbacks.setdefault(store, []).append(callback)
        self.sync(store)

    def when_names_durable(self, callback: Callback) -> None:
        """Call *callback* when the names of topics' folders are durable, or with the reason why not."""
        self._names.append(callback)
        self._launch_soon()

    async def synced(self) -> bool:
        """Wait for the fsync of everything appended by now; returns whether all of it is durable.

        If the caller is cancelled, the fsync continues.
        """
        topics = {store: run.topic for store, run in self._running.items()} | self._unsynced
        left = len(topics)
        done: asyncio.Future[None] = self._loop.create_future()

        durable = True

        def callback(reason: str) -> None:
            nonlocal left, durable
            left -= 1
            durable = durable and not reason
            if not left and not done.done():
                done.set_result(None)

        for store, topic in topics.items():
            self.when_durable(topic, store, callback)
        if topics:
            await done
        return durable and not self._health.failed_fsyncs

    # --- syncing in the event loop, where that is fastest ---

    def percentile_s(self, share: float) -> float:
        """The longest time of that share of the last fsyncs, in seconds; 0 if there was none."""
        took = sorted(self._took)
        return took[min(len(took) - 1, int(len(took) * share))] if took else 0.0

    def is_fast(self, count: int, size: int) -> bool:
        """Whether *count* stores with *size* new bytes are synced faster in the loop than by a thread."""
        return not self._running and size <= SMALL and count * self._recent_s < self._fast_s

    def sync_now(self, topic: Topic, store: TopicLog) -> str:
        """Sync a store now; returns the reason why that failed, or "". Only while no job runs."""
        if store.appender.is_new or store in self._waiting or store in self._quiesced:
            # It is synced later by a thread; callbacks that wait for it are called then.
            return ""
        job = store.appender.begin_sync()
        if job is None:
            return ""
        del self._unsynced[store]
        run = _Run(topic, store, job, self._callbacks.pop(store, []))
        self._sync_files(run)
        self._note(run)
        return self._end(run)

    # --- in threads ---

    def sync(self, store: TopicLog) -> None:
        """Begin a job soon; a job that already runs may not include the last appends."""
        if store in self._running or store in self._quiesced:
            self._again[store] = None
        elif store not in self._waiting and store not in self._waiting_new:
            # A store becomes new while it waits if its folder is removed.
            queue = self._waiting_new if store.appender.is_new else self._waiting
            queue[store] = None
            self._launch_soon()

    def _launch_soon(self) -> None:
        # After the write batch that requested it, so that one job covers all appends of that batch.
        if not self._launching:
            self._launching = True
            self._loop.call_soon(self._launch)

    def _launch(self) -> None:
        self._launching = False
        while self._waiting and self._busy < THREADS:
            self._begin(_first(self._waiting))
        while self._waiting_new and self._busy < THREADS and self._busy_new < MAX_NEW_TOPIC_THREADS:
            self._begin(_first(self._waiting_new))
        if (self._for_path or self._names) and not self._path_busy:
            self._sync_path()

    def _begin(self, store: TopicLog) -> None:
        topic = self._unsynced.pop(store)
        callbacks = self._callbacks.pop(store, [])
        job = store.appender.begin_sync()
        if job is None:
            if store.segments.deleted:
                # Until the deletion is durable, a power cut may bring the topic back without these messages.
                self._names += callbacks
            else:
                self._notify(callbacks, "")
            return
        run = self._running[store] = _Run(topic, store, job, callbacks)
        self._busy += 1
        self._busy_new += job.new_folder
        future = self._in_thread(self._sync_files, run)
        future.add_done_callback(lambda done: self._files_synced(run, done))

    def _in_thread(self, work: Callable[..., None], argument: object) -> asyncio.Future[None]:
        """Run ``work(argument)`` in a thread; without a thread the future fails."""
        try:
            return self._loop.run_in_executor(self._threads, work, argument)
        except RuntimeError as error:
            refused: asyncio.Future[None] = self._loop.create_future()
            refused.set_exception(error)
            return refused

    def _sync_files(self, run: _Run) -> None:
        """Run the job, in a thread or in the loop."""
        began = time.monotonic()
        try:
            run.job.sync_files(self._data.disk)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is durable
            run.error = _as_os_error(error)
        run.seconds = time.monotonic() - began

    def _files_synced(self, run: _Run, done: asyncio.Future[None]) -> None:
        failure = done.exception()
        if failure is not None:
            run.error = _as_os_error(failure)
        self._busy -= 1
        self._busy_new -= run.job.new_folder
        self._note(run)
        if run.error is None and run.job.new_folder:
            self._for_path.append(run)
        else:
            self._end(run)
        self._launch()

    def _note(self, run: _Run) -> None:
        self.count += 1
        self.seconds += run.seconds
        self._took.append(run.seconds)
        if not (run.job.new_names or run.error):
            self._recent_s = max(run.seconds, self._recent_s * _FORGET)

    def _sync_path(self) -> None:
        """Sync the folder of the data path once, for all that wait for it now."""
        runs, self._for_path = self._for_path, []
        names, self._names = self._names, []
        folders, self._data.deleted_unsynced = self._data.deleted_unsynced, []
        self._path_busy = True
        future = self._in_thread(self._data.disk.sync_folder, self._data.path)
        future.add_done_callback(lambda done: self._path_synced(done, runs, names, folders))

    def _path_synced(
        self, done: asyncio.Future[None], runs: list[_Run], names: list[Callback], folders: list[Path]
    ) -> None:
        self._path_busy = False
        failure = done.exception()
        error = None if failure is None else _as_os_error(failure)
        reason = ""
        if error is not None:
            reason = error_text(error)
            # Their files are removed after the next sync of the data path, or by the next start.
            self._data.deleted_unsynced = folders + self._data.deleted_unsynced
        else:
            self._data.deleted += folders
        for run in runs:
            run.error = error
            self._end(run)
        self._notify(names, reason)
        self._launch()

    # --- the end of a job ---

    def _end(self, run: _Run) -> str:
        store, topic, error = run.store, run.topic, run.error
        self._running.pop(store, None)
        try:
            store.appender.end_sync(run.job, error)
        except Exception as unexpected:  # noqa: BLE001 - publishers get an error, and other jobs end
            self._loop.call_exception_handler({"message": "a sync did not end", "exception": unexpected})
            error = _as_os_error(unexpected)
            store.appender.fail(error)
        reason = "" if error is None else error_text(error)
        if error is None:
            self._health.worked(syncing_of(topic.name))
        elif store.segments.deleted:
            reason = ""
        elif store.appender.failed:
            self._failed(store, topic, reason)
        else:
            # Something could not be opened; the next fsync includes it.
            self._unsynced.setdefault(store, topic)
            if self._health.failed(syncing_of(topic.name), reason):
                self._log.error("TOPIC(%s) failed to sync, will try again - %s", topic.name, reason)
        self._notify(run.callbacks, reason)
        run.ended.set()
        self._sync_again(store)
        return reason

    def _sync_again(self, store: TopicLog) -> None:
        """Sync a store if that was requested during its job, or while it was quiesced."""
        if store in self._again and store not in self._quiesced:
            del self._again[store]
            self.sync(store)

    def _notify(self, callbacks: list[Callback], reason: str) -> None:
        for callback in callbacks:
            try:
                callback(reason)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
                context = {"message": "an answer failed", "exception": error}
                self._loop.call_exception_handler(context)

    def _failed(self, store: TopicLog, topic: Topic, reason: str) -> None:
        """A sync has failed: the topic accepts no publishes until a restart."""
        for stores in (self._unsynced, self._again, self._due):
            stores.pop(store, None)
        # The next checkpoint includes the content of the notes.
        topic.changed = True
        self._health.fsync_failed(topic.name, store.appender.failed)
        self._log.error("TOPIC(%s): %s", topic.name, store.appender.failed)
        self._notify(self._callbacks.pop(store, []), reason)

    # --- time ---

    def _sync_due(self) -> None:
        """Sync the stores with as many messages that are not durable as --sync-every says."""
        self._pause = None
        self._paused_ns = clock_ns()
        due, self._due = self._due, {}
        for store in due:
            if store in self._unsynced:
                self.sync(store)

    def quiesced(self, store: TopicLog | None) -> "Quiesced":
        """Keep threads off the store's files within an ``async with`` block.

        What is requested during that is synced afterwards.
        """
        return Quiesced(self, store)

    async def quiesce(self, store: TopicLog) -> None:
        """Wait until no thread works on the store's files, and let none begin before :meth:`resume`."""
        self._quiesced[store] = self._quiesced.get(store, 0) + 1
        for queue in (self._waiting, self._waiting_new):
            if store in queue:
                del queue[store]
                self._again[store] = None
        try:
            while store in self._running:
                await self._running[store].ended.wait()
        except BaseException:
            self.resume(store)
            raise

    def resume(self, store: TopicLog) -> None:
        """End what :meth:`quiesce` began."""
        self._quiesced[store] -= 1
        if not self._quiesced[store]:
            del self._quiesced[store]
            self._sync_again(store)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._threads.shutdown(wait=False)


class Quiesced:
    """The block of :meth:`Fsync.quiesced`; the compiler has no async generators."""

    def __init__(self, fsync: Fsync, store: TopicLog | None) -> None:
        self._fsync = fsync
        self._store = store

    async def __aenter__(self) -> None:
        if self._store is not None:
            await self._fsync.quiesce(self._store)

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if self._store is not None:
            self._fsync.resume(self._store)


def _first(queue: dict[TopicLog, None]) -> TopicLog:
    store = next(iter(queue))
    del queue[store]
    return store


def _as_os_error(error: BaseException) -> OSError:
    return error if isinstance(error, OSError) else OSError(errno.EIO, str(error) or type(error).__name__)
