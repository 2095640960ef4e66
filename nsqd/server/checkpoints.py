"""Noting once a second what topics and channels still owe, and letting go of what nobody does."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final
from weakref import WeakKeyDictionary

from nsqcore.service.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.server.health import Health, checkpoint_of
from nsqd.storage import checkpoint
from nsqd.storage.compaction import Ranges, owed_by
from nsqd.storage.data_path import DataPath
from nsqd.storage.topic_store import TopicStore

INTERVAL_S: Final = 1.0
COMPACT_INTERVAL_S: Final = 10.0
# The disk syncs several files in little more time than one.
WRITERS: Final = 8
# A round that took long, because much is owed or the disk is slow, is followed by a longer rest.
_REST_RATIO: Final = 10


class Checkpoints:
    """Writes the checkpoints of the topics that changed; one task."""

    def __init__(self, broker: Broker, data: DataPath, health: Health, log: Log) -> None:
        self._broker = broker
        self._data = data
        self._health = health
        self._log = log
        # Topics whose checkpoint is being written; True when that one is outdated already.
        self._writing: dict[Topic, bool] = {}
        self._at_once = asyncio.Semaphore(WRITERS)
        self._compacted_at: WeakKeyDictionary[Topic, float] = WeakKeyDictionary()

    async def run(self) -> None:
        """Go round until cancelled."""
        rest = INTERVAL_S
        while True:
            await asyncio.sleep(rest)
            began = time.monotonic()
            changed = []
            for topic in list(self._broker.topics.values()):
                if topic.ephemeral:
                    topic.trim()
                elif topic.take_changed():
                    changed.append(topic)
            await asyncio.gather(*map(self._write, changed))
            for name, size in list(self._health.refused.items()):
                await self._look_for_space(name, size)
            rest = max(INTERVAL_S, _REST_RATIO * (time.monotonic() - began))

    def remember(self, topic: Topic) -> None:
        """Note at once which channels a topic has: what is published from now on is owed by them.

        Without an fsync, so that it costs a subscriber little; the next checkpoint is a durable one.
        """
        if topic.ephemeral:
            return
        if topic in self._writing:
            # The one being written is older and would take this one's place.
            self._writing[topic] = True
        store = self._data.store(topic.name)
        try:
            store.begin_checkpoint(checkpoint.encode(topic, clean=False), durable=False)()
        except OSError as error:
            topic.changed = True
            self._failed(topic, store, error)

    async def _write(self, topic: Topic) -> None:
        async with self._at_once:
            if not topic.exiting:
                await self._write_now(topic)

    async def _write_now(self, topic: Topic) -> None:
        store = self._data.store(topic.name)
        low_water = topic.low_water()
        if store.can_drop_below(low_water):
            # Before it is so, for the checkpoint has to know.
            topic.log.kept_from = max(topic.log.kept_from, low_water)
        self._writing[topic] = False
        # What is owed now, as the checkpoint says: less of it may be kept, but not less than that.
        owed = owed_by(topic) if self._wants_compaction(topic, store) else None
        try:
            write = store.begin_checkpoint(checkpoint.encode(topic, clean=False))
            await _finished(asyncio.to_thread(write))
            # Only now: a checkpoint that still owes what is gone would count it as lost.
            if not topic.exiting and not store.drop_below(low_water) and owed is not None:
                await self._compact(topic, store, owed)
        except OSError as error:
            topic.changed = True
            self._failed(topic, store, error)
        else:
            self._health.worked(checkpoint_of(topic.name))
        finally:
            outdated = self._writing.pop(topic)
        if outdated and not topic.exiting:
            self.remember(topic)

    def _wants_compaction(self, topic: Topic, store: TopicStore) -> bool:
        rested = time.monotonic() - self._compacted_at.get(topic, 0) >= COMPACT_INTERVAL_S
        return rested and store.has_sealed_segments

    async def _compact(self, topic: Topic, store: TopicStore, owed: Callable[[], Ranges]) -> None:
        """Let a few messages that are held back for long pin no more than themselves."""
        job = store.begin_compaction(owed)
        if job is not None:
            self._compacted_at[topic] = time.monotonic()
            await _finished(asyncio.to_thread(job))
            saved = store.end_compaction()
            if saved:
                self._log.info("TOPIC(%s): compaction saved %d bytes", topic.name, saved)

    async def _look_for_space(self, topic_name: str, size: int) -> None:
        """Be healthy again when there is room for what was refused, though nobody publishes.

        Whoever sends publishers away from an unhealthy node waits for this.
        """
        try:
            await asyncio.to_thread(self._data.disk.find_space, self._data.path, size)
        except OSError:
            return
        self._health.publish_worked(topic_name)

    async def write_last(self) -> None:
        """The checkpoints of a clean stop: after a start from them nothing is delivered twice."""
        durable = [topic for topic in self._broker.topics.values() if not topic.ephemeral]
        for topic in durable:
            store = self._data.store(topic.name)
            try:
                store.begin_checkpoint(checkpoint.encode(topic, clean=True), durable=False)()
            except OSError as error:
                self._failed(topic, store, error)
        # One sync for all: two for each of thousands of topics would outlast any patience.
        await asyncio.to_thread(self._data.disk.sync_all)

    def _failed(self, topic: Topic, store: TopicStore, error: OSError) -> None:
        reason = (error.strerror or str(error)).lower()
        if topic.exiting:
            return
        if self._health.failed(checkpoint_of(topic.name), reason):
            self._log.error(
                "TOPIC(%s) failed to write its checkpoint to %s - %s", topic.name, store.folder, reason
            )


async def _finished(job: Coroutine[Any, Any, None]) -> None:
    """Wait for a job in a thread even when cancelled: it would replace what is written after it."""
    task = asyncio.ensure_future(job)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
