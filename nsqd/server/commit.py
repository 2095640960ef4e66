"""The commit of what a write batch has staged: one append for each topic.

If the append fails, its publishes are abandoned. If replicas are missing, publishes are refused and notes are
written.
"""

from collections.abc import Callable

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.disk import error_text
from nsqd.log.frames import Block
from nsqd.server.fsync import Fsync
from nsqd.server.health import Health
from nsqd.server.replication.service import Replication
from nsqd.storage.data_path import DataPath
from nsqd.storage.spare import NO_SPACE
from nsqd.storage.topic_log import TopicLog, store_of


class Failures:
    """Topics with the reason why something staged in this turn was not stored."""

    __slots__ = ("notes", "publishes")

    def __init__(self) -> None:
        self.publishes: dict[Topic, str] = {}
        # Their publishes failed too.
        self.notes: dict[Topic, str] = {}

    def refused(self, topic: Topic, reason: str) -> None:
        """The publishes to *topic* failed; its notes are stored."""
        self.publishes[topic] = reason

    def failed(self, topic: Topic, reason: str) -> None:
        """Neither publishes nor notes of *topic* are stored."""
        self.publishes[topic] = self.notes[topic] = reason


class Commit:
    """See the module."""

    def __init__(
        self, broker: Broker, data: DataPath, health: Health, log: Log, fsync: Fsync, replication: Replication
    ) -> None:
        self._broker = broker
        self._data = data
        self._health = health
        self._log = log
        self._fsync = fsync
        self._replication = replication

    def store(self, now_ns: int, few_wait: Callable[[], bool]) -> Failures:
        """Write and commit what is staged; returns what failed.

        *few_wait* says whether few publishers wait.
        """
        replication = self._replication
        failures = Failures()
        stored: dict[Topic, TopicLog] = {}
        size = 0
        broker = self._broker
        reserved = broker.sequences.reserved
        for topic in broker.dirty:
            store = store_of(topic)
            if store is not None and store.appender.failed:
                failures.failed(topic, store.appender.failed)
                topic.abandon()
                continue
            blocks = topic.staged()
            notes = topic.staged_notes()
            if not (blocks or notes):
                continue
            if blocks and store is not None:
                reason = replication.primary.lacks(store)
                if reason:
                    failures.refused(topic, reason)
                    topic.refuse()
                    blocks, notes = topic.staged(), topic.staged_notes()
                    if not notes:
                        continue
            try:
                if blocks and blocks[-1].next > reserved:
                    reserved = self._reserve(blocks[-1].next)
                if store is not None:
                    self._append(store, blocks, notes, topic.log.next_seq)
            except OSError as error:
                failures.failed(topic, self._not_stored(topic, blocks, error))
                continue
            broker.commit(topic)
            if blocks and store is not None:
                # A replica may have been disconnected at this append, because it did not keep up.
                reason = replication.primary.lacks(store)
                if reason:
                    failures.refused(topic, reason)
            if store is not None:
                self._health.publish_worked(topic.name)
                self._fsync.appended(topic, store, now_ns)
                if self._fsync.strict:
                    stored[topic] = store
                    size += sum(len(block.data) for block in blocks)
        broker.dirty.clear()
        replication.flush()
        if stored:
            self._sync(stored, size, failures, few_wait)
        return failures

    def _sync(
        self,
        stored: dict[Topic, TopicLog],
        size: int,
        failures: Failures,
        few_wait: Callable[[], bool],
    ) -> None:
        """Make the stored appends durable: in the loop where that is fastest, or by a thread."""
        fsync = self._fsync
        if fsync.is_fast(len(stored), size) and few_wait():
            for topic, store in stored.items():
                reason = fsync.sync_now(topic, store)
                if reason:
                    failures.failed(topic, reason)
        for store in stored.values():
            if fsync.has_unsynced(store):
                fsync.sync(store)

    def _append(self, store: TopicLog, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:
        try:
            store.appender.append(blocks, notes, next_seq)
        except OSError as error:
            # Emptying and deleting free a full disk, so their notes may use the spare space.
            if blocks or error.errno not in NO_SPACE or not self._data.spare.release():
                raise
            store.appender.append(blocks, notes, next_seq)

    def _reserve(self, end: int) -> int:
        """Reserve the sequences below *end*, and more; returns how far. Raises OSError."""
        self._data.reservation.extend(end)
        return self._broker.sequences.reserved

    def _not_stored(self, topic: Topic, blocks: list[Block], error: OSError) -> str:
        reason = error_text(error)
        topic.abandon()
        size = max(1, sum(len(block.data) for block in blocks))
        if self._health.publish_failed(topic.name, reason, size):
            self._log.error(
                "TOPIC(%s) failed to write messages to %s - %s", topic.name, self._data.path, reason
            )
        return reason
