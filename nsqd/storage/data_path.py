"""The data path of one nsqd: a folder per durable topic, and what they hold at start."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nsqcore.wire.names import is_ephemeral, is_valid_name
from nsqd.engine.broker import Broker
from nsqd.engine.ids import first_sequence
from nsqd.engine.log import BlockSource, NoSource
from nsqd.engine.owed import Owed
from nsqd.engine.topic import Topic
from nsqd.storage import checkpoint
from nsqd.storage.adopt import adopt
from nsqd.storage.checkpoint import BadCheckpoint, TopicState
from nsqd.storage.disk import Disk
from nsqd.storage.metadata import TopicMetadata
from nsqd.storage.segment import Entry
from nsqd.storage.topic_store import CHECKPOINT, FOLDER_SUFFIX, TopicStore, topic_folder


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Sizes in bytes."""

    max_segment_bytes: int = 100 << 20


class DataPath:
    """The stores of all durable topics; the source of blocks for the broker."""

    def __init__(
        self, path: Path, options: StorageOptions, warn: Callable[[str], None], disk: Disk | None = None
    ) -> None:
        """*warn* is told in one sentence of everything found damaged."""
        self.path = path
        self.disk = disk or Disk()
        self.stores: dict[str, TopicStore] = {}
        self._options = options
        self._warn = warn

    def source(self, topic_name: str) -> BlockSource:
        """Where the broker reads the topic's older blocks; an ephemeral topic has no disk."""
        return NoSource() if is_ephemeral(topic_name) else self.store(topic_name)

    def store(self, topic_name: str) -> TopicStore:
        store = self.stores.get(topic_name)
        if store is None:
            folder = topic_folder(self.path, topic_name)
            store = TopicStore(self.disk, folder, self._options.max_segment_bytes, self._warn)
            self.stores[topic_name] = store
        return store

    def delete(self, topic_name: str) -> None:
        """Remove a topic's folder. Raises OSError."""
        store = self.stores.pop(topic_name, None)
        if store is not None:
            store.delete()

    def close(self) -> None:
        for store in self.stores.values():
            store.close()

    # --- starting ---

    def restore(self, broker: Broker, metadata: list[TopicMetadata], now_ns: int) -> None:
        """Give the broker the topics that are on disk, and those that only the metadata names.

        The folders are believed before the metadata file: a message is acknowledged when it is in its
        folder, which may be before the file names its topic. Raises OSError.
        """
        taken = adopt(
            self.path,
            self.disk,
            broker.ids,
            metadata,
            now_ns,
            max_segment_bytes=self._options.max_segment_bytes,
            warn=self._warn,
        )
        if taken:
            self._warn(f"took over {taken} messages from disk queues of the original in {self.path}")
        for doomed in self.path.glob(f"*{FOLDER_SUFFIX}.deleted"):
            shutil.rmtree(doomed, ignore_errors=True)
        for folder in sorted(self.path.glob(f"*{FOLDER_SUFFIX}")):
            name = folder.name.removesuffix(FOLDER_SUFFIX)
            if is_valid_name(name) and not is_ephemeral(name):
                self._restore_topic(broker, name, now_ns)
            else:
                self._warn(f"skipping creation of invalid topic {name}")
        for listed in metadata:
            self._add_listed(broker, listed, now_ns)

    def _restore_topic(self, broker: Broker, name: str, now_ns: int) -> None:
        store = self.store(name)
        deferred, cut = store.recover()
        for node_id in store.node_ids():
            broker.ids.recognise(node_id)
        state = self._read_checkpoint(store)
        end = store.next_seq
        if state is not None and state.clean and not cut and end <= state.next_seq:
            # Nothing was lost, so the sequence goes on where it stopped.
            next_seq = state.next_seq
        else:
            next_seq = max(end, state.next_seq if state else 0, first_sequence(now_ns))
        topic = broker.restore_topic(name, next_seq)
        first = next_seq if store.first_seq is None else store.first_seq
        topic.log.kept_from = first if state is None else state.kept_from
        if state is None:
            # Without a checkpoint no channel is known: all there is waits for the first one.
            _owe_stored(topic.backlog, store.extents(), 0, deferred)
            return
        topic.paused = state.paused
        topic.message_count = state.counters.get("messages", 0)
        topic.message_bytes = state.counters.get("bytes", 0)
        for channel_name, owed in state.channels.items():
            channel = topic.add_channel(channel_name)
            channel.paused = owed.paused
            channel.message_count = owed.counters.get("messages", 0)
            channel.requeue_count = owed.counters.get("requeued", 0)
            channel.timeout_count = owed.counters.get("timed_out", 0)
            owed.fill(channel)
        state.backlog.fill(topic.backlog)
        since = [entry for entry in deferred if entry.first >= state.next_seq]
        for owing in topic.owing():
            _owe_stored(owing, store.extents(), state.next_seq, since)
        topic.pump()
        for channel in topic.channels.values():
            broker.reschedule(channel)

    def _read_checkpoint(self, store: TopicStore) -> TopicState | None:
        path = store.folder / CHECKPOINT
        try:
            return checkpoint.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, BadCheckpoint) as error:
            self._warn(f"cannot use {path}, all that is on disk is delivered again: {error}")
            return None

    def _add_listed(self, broker: Broker, listed: TopicMetadata, now_ns: int) -> None:
        if not is_valid_name(listed.name):
            self._warn(f"skipping creation of invalid topic {listed.name}")
            return
        topic = broker.topics.get(listed.name)
        if topic is None:
            topic = broker.restore_topic(listed.name, first_sequence(now_ns))
            topic.paused = listed.paused
        self._add_listed_channels(topic, listed)
        for channel in topic.channels.values():
            broker.reschedule(channel)  # the first one has taken the topic's deferred messages over

    def _add_listed_channels(self, topic: Topic, listed: TopicMetadata) -> None:
        for name, paused in listed.channels:
            if not is_valid_name(name):
                self._warn(f"skipping creation of invalid channel {name}")
            elif name not in topic.channels:
                topic.add_channel(name).paused = paused


def _owe_stored(owed: Owed, extents: list[tuple[int, int]], since: int, deferred: list[Entry]) -> None:
    """Owe what is stored from the sequence *since* on, the deferred ones at their time."""
    due = {entry.first: entry.due_ns for entry in deferred}
    for first, end in extents:
        seq = max(first, since)
        for at in sorted(at for at in due if seq <= at < end):
            if at > seq:
                owed.extend(seq, at)
            owed.defer(at, due[at])
            seq = at + 1
        if end > seq:
            owed.extend(seq, end)
