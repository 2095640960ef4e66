"""A data path as the next start of nsqd would find it, read with the code of the start."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.engine.state import TopicState
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk, error_text
from nsqd.log.ids import MessageIds
from nsqd.log.layout import NewerVersion
from nsqd.log.ranges import Ranges
from nsqd.log.segment_files import PLACES_DAMAGED
from nsqd.storage import metadata
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.lock import DataPathLocked, lock_data_path
from nsqd.storage.metadata import BadMetadata
from nsqd.storage.takeover.adopt import PROGRESS
from nsqd.storage.topic_log import FOLDER_SUFFIX, TopicLog, store_of

# The name of a topic's own backlog, as opposed to those of its channels.
BACKLOG: Final = ""


class DataPathRefused(Exception):
    """The command cannot do its work; the text is the reason."""


@dataclass(slots=True)
class OpenedTopic:
    """A topic's folder after recovery, and the warnings of recovery."""

    topic: Topic
    store: TopicLog
    state: TopicState | None
    warnings: list[str] = field(default_factory=list)
    # Whether disk queues of the original were being taken over when nsqd ended.
    adopting: bool = False

    def backlogs(self) -> dict[str, Backlog]:
        """The backlogs of the channels, and that of the topic for messages that no channel has yet."""
        channels = {name: channel.backlog for name, channel in self.topic.channels.items()}
        return {BACKLOG: self.topic.backlog, **channels}

    def pending_ranges(self) -> dict[str, Ranges]:
        return {name: backlog.unfinished(0, backlog.end) for name, backlog in self.backlogs().items()}


class OpenedDataPath:
    """The topics of a data path on *disk*: the real one, or a rehearsal on which nothing is changed."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Raises DataPathRefused."""
        self.path = path
        self.disk = disk
        # Warnings about the data path itself.
        self.warnings: list[str] = []
        self.data = DataPath(path, StorageOptions(), self._warn, disk)
        # The clock of this engine is the wall clock, so its times are those of the wall clock.
        self.broker = Broker(MessageIds(0), Limits(), self.data.create_log)
        self._current = self.warnings
        try:
            listed = metadata.load(disk, path, self._warn)
        except BadMetadata as error:
            self.warnings.append(f"{error}; nsqd does not start with it")
            listed = metadata.Metadata()
        self.listed = {one.name: one for one in listed.topics}
        try:
            self.names = self.data.topic_names()
        except OSError as error:
            raise DataPathRefused(f"cannot read {path}: {error_text(error)}") from error

    def _warn(self, sentence: str) -> None:
        # `examine` names each of these places.
        if not sentence.endswith(PLACES_DAMAGED):
            self._current.append(sentence)

    def choose(self, topic: str) -> list[str]:
        """The topics to read: *topic*, or all when it is empty. Raises DataPathRefused."""
        if not topic:
            return self.names
        if topic not in self.names:
            raise DataPathRefused(f"there is no topic {topic} in {self.path}")
        return [topic]

    def topic(self, name: str) -> OpenedTopic:
        """One topic after recovery. Raises DataPathRefused."""
        warnings: list[str] = []
        self._current = warnings
        try:
            topic, state = self.data.restore_topic(self.broker, name, self.listed.get(name))
            adopting = PROGRESS in self.disk.names(self.path / (name + FOLDER_SUFFIX))
        except NewerVersion as error:
            raise DataPathRefused(f"TOPIC({name}): {error}") from error
        except OSError as error:
            raise DataPathRefused(f"TOPIC({name}): cannot be read: {error_text(error)}") from error
        finally:
            self._current = self.warnings
        store = topic.store
        if not isinstance(store, TopicLog):
            raise TypeError(f"{name} has a folder and no store")
        return OpenedTopic(topic, store, state, warnings, adopting)

    def release(self, name: str) -> None:
        """Close the files of a topic that was read, and free its memory."""
        store = store_of(self.broker.topics.pop(name))
        if store is not None:
            store.appender.close()

    def close(self) -> None:
        """Release all topics."""
        for name in list(self.broker.topics):
            self.release(name)


def is_in_use(path: Path) -> bool:
    """Whether an nsqd runs on the data path. Raises DataPathRefused when there is no such folder."""
    try:
        lock = lock_data_path(path)
    except DataPathLocked as error:
        if not path.is_dir():
            raise DataPathRefused(str(error)) from error
        return True
    Disk().close(lock)
    return False
