"""The data path of one nsqd: a folder for each durable topic, and their contents at start."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from nsqclient.wire.names import is_ephemeral, is_valid_name
from nsqd.engine import notes
from nsqd.engine.broker import Broker
from nsqd.engine.numbering import Sequences
from nsqd.engine.state import TopicState
from nsqd.engine.topic import Topic
from nsqd.log.cache import Cache
from nsqd.log.disk import Disk, remove_folders
from nsqd.log.gaps import CannotRead
from nsqd.log.open_files import MAX_OPEN_FILES, OpenFiles
from nsqd.log.ranges import Ranges, within, without
from nsqd.log.segment_files import FoundSegments
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage import restoring
from nsqd.storage.metadata import Metadata, TopicMetadata
from nsqd.storage.reservation import Reservation
from nsqd.storage.spare import Spare
from nsqd.storage.takeover.adopt import PROGRESS, Adoption
from nsqd.storage.topic_log import DELETED_SUFFIX, FOLDER_SUFFIX, TopicLog, store_of, topic_folder


def _is_of(listed: TopicMetadata, found: FoundSegments) -> bool:
    """Whether the metadata is of the topic with this log, and not of one that was deleted before."""
    return not listed.log_id or any(one.header.log_id == listed.log_id for one in found.segments)


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Sizes in bytes."""

    max_segment_bytes: int = 100 << 20
    # How many files may be open for appending.
    open_files: int = MAX_OPEN_FILES


def extents_of(topic: Topic) -> Ranges:
    """Where messages of the topic are that can be read, in order."""
    store = store_of(topic)
    return _kept(topic, None if store is None else store.segments.extents())


def claim(topic: Topic, holes: Ranges | None = None) -> Ranges:
    """Like :func:`extents_of`, for a channel that must deliver it from now on: none of it is removed.

    *holes* are known to have no messages, and are left out.
    """
    store = store_of(topic)
    kept = _kept(topic, None if store is None else store.cleaner.claim())
    return without(kept, holes) if holes else kept


def _kept(topic: Topic, found: Ranges | None) -> Ranges:
    log = topic.log
    return within(log.extents() if found is None else found, log.log_start, log.next_seq)


class DataPath:
    """Makes the stores of the topics, and finds those from before the start."""

    def __init__(
        self,
        path: Path,
        options: StorageOptions,
        warn: Callable[[str], None],
        disk: Disk | None = None,
        *,
        node_id: int = 0,
    ) -> None:
        """*warn* is called with a sentence about everything that is found damaged."""
        self.path = path
        self.disk = disk or Disk()
        self.spare = Spare(self.disk, path)
        self.reservation = Reservation(self.disk, path, Sequences())
        # Folders of deleted topics whose new names are not durable yet. A power cut may bring the topics
        # back, so nothing of them may be removed yet.
        self.deleted_unsynced: list[Path] = []
        # Folders of deleted topics that may be removed.
        self.deleted: list[Path] = []
        # Stores that were being filled from the original's files, or whose files still have their old names.
        self._adopting: list[TopicLog] = []
        # What was read of the files of all topics.
        self.cache = Cache()
        self.open_files = OpenFiles(options.open_files)
        self._options = options
        self.warn = warn
        self._node_id = node_id

    def create_log(self, topic_name: str) -> TopicLog | None:
        """The log of a topic that is being created; None for an ephemeral topic, which has no disk."""
        if is_ephemeral(topic_name):
            return None
        return TopicLog(
            self.disk,
            topic_folder(self.path, topic_name),
            self._options.max_segment_bytes,
            self.warn,
            origin=self._node_id,
            cache=self.cache,
            open_files=self.open_files,
        )

    def delete(self, topic: Topic) -> None:
        """Rename the topic's folder, so that it is not found. Raises OSError; then nothing has changed."""
        store = store_of(topic)
        if store is not None and not store.segments.deleted:
            deleted = store.delete()
            if deleted is not None:
                self.deleted_unsynced.append(deleted)

    def remove_deleted(self) -> None:
        """Remove the remains of deleted topics. It is slow. Any thread may call it, one at a time.

        Raises OSError for the first folder that cannot be removed; the next call tries it again.
        """
        remove_folders(self.disk, self.deleted)

    # --- starting ---

    def restore(self, broker: Broker, metadata: Metadata, now_ns: int) -> None:
        """Give the broker the topics that are on disk, and those that only the metadata names.

        *now_ns* is the engine's time. Raises OSError, and NewerVersion.
        """
        self.reservation.sequences = broker.sequences
        reserved, jump = self.reservation.load(self.warn)
        # In a copy of a data path both files name the original, and its deleted topics stay deleted.
        ours = bool(metadata.identity) and metadata.identity == self.reservation.named().hex()
        listed = {one.name: one for one in metadata.topics}
        states: dict[Topic, TopicState | None] = {}
        for name in self.topic_names():
            topic, state = self.restore_topic(broker, name, listed.get(name), now_ns)
            states[topic] = state
        ends = [store.segments.end for topic in states if (store := store_of(topic))]
        checkpointed = [state.checkpoint_position.next for state in states.values() if state]
        clock = broker.sequences.first(broker.wall.time_at(now_ns))
        floor = max([reserved, clock, *ends, *checkpointed]) + jump
        # The reservation is durable before anything new is accepted.
        self.reservation.open(floor)
        for topic in states:
            topic.skip_to(floor)
        for one in metadata.topics:
            self._add_listed(broker, one, ours=ours)
        self._adopt(broker)
        for topic in broker.topics.values():
            self._load_dedup(topic, now_ns)
            topic.awaiting_registration = False
            topic.pump()
            topic.forget_due(now_ns)
            for channel in topic.channels.values():
                broker.reschedule(channel)
            broker.uphold(topic)
        self.spare.make()

    def _load_dedup(self, topic: Topic, now_ns: int) -> None:
        if topic.published is not None:
            try:
                topic.published.load(topic.log, topic.wall, now_ns)
            except CannotRead as error:
                self.warn(f"TOPIC({topic.name}): what was published before may be published again - {error}")

    def topic_names(self) -> list[str]:
        """The topics that have a folder. Raises OSError."""
        found = []
        for name in self.disk.names(self.path):
            if name.endswith(DELETED_SUFFIX) and FOLDER_SUFFIX in name:
                self.deleted.append(self.path / name)
            elif name.endswith(FOLDER_SUFFIX):
                topic_name = name.removesuffix(FOLDER_SUFFIX)
                if is_valid_name(topic_name) and not is_ephemeral(topic_name):
                    found.append(topic_name)
                else:
                    self.warn(f"skipping creation of invalid topic {topic_name}")
        return found

    def restore_topic(
        self, broker: Broker, name: str, listed: TopicMetadata | None, now_ns: int = 0
    ) -> tuple[Topic, TopicState | None]:
        """Give the broker a topic that has a folder, restored from its checkpoint and the log behind that.

        *now_ns* is the engine's time. Raises OSError, and NewerVersion.
        """
        topic = broker.restore_topic(name, 0)
        store = cast("TopicLog", topic.store)
        state = store.checkpoints.load(self.warn, name)
        unusable = state is None and store.checkpoints.damaged
        mark = None if unusable else state.checkpoint_position if state else CheckpointPosition()
        found = store.recover(mark)
        for origin in store.segments.origins():
            broker.ids.recognise(origin)
        topic.log.log_start = (
            store.segments.end if store.segments.first_seq is None else store.segments.first_seq
        )
        if state is not None:
            topic.log.log_start = state.log_start
            restoring.fill(topic, state, now_ns)
        elif listed is not None and not restoring.is_complete(found) and _is_of(listed, found):
            # Every channel must deliver all messages, because it is not known any more which of them were
            # finished.
            topic.paused = listed.paused
            self._add_channels(topic, listed)
        next_seq = state.checkpoint_position.next if state else 0
        until = None
        if PROGRESS in found.names:
            self._adopting.append(store)
            until = Adoption.interrupted(self.disk, store.segments.folder, next_seq)
        stored = restoring.replay_tail(topic, found.tail_records, next_seq, self.warn, until=until)
        topic.log.next_seq = store.segments.end
        restoring.load_stored_ranges(
            topic, state.stored_ranges if state else None, stored, found.damaged, store.segments
        )
        return topic, state

    def _add_listed(self, broker: Broker, listed: TopicMetadata, *, ours: bool) -> None:
        """Take over a topic that the metadata lists, where the folders say nothing about it."""
        if not is_valid_name(listed.name):
            self.warn(f"skipping creation of invalid topic {listed.name}")
            return
        topic = broker.topics.get(listed.name)
        if topic is None:
            if ours:
                # The file was not up to date: the topic was deleted.
                return
            topic = broker.topic(listed.name, 0)
            broker.pause_topic(topic, paused=listed.paused)
        if not ours:
            for name in self._add_channels(topic, listed):
                topic.note(notes.CREATE, name, generation=topic.channels[name].generation)
                if topic.channels[name].paused:
                    topic.note(notes.PAUSE, name)
                broker.dirty[topic] = None

    def _add_channels(self, topic: Topic, listed: TopicMetadata) -> list[str]:
        added = []
        for name, paused in listed.channels:
            if not is_valid_name(name):
                self.warn(f"skipping creation of invalid channel {name}")
            elif name not in topic.channels:
                topic.add_channel(name).paused = paused
                added.append(name)
        return added

    def _adopt(self, broker: Broker) -> None:
        taken = Adoption(self.disk, self.path, self.reservation, self.warn).run(broker, self._adopting)
        if taken:
            self.warn(f"took over {taken} messages from disk queues of the original in {self.path}")
