"""The store of one topic: its log, and the checkpoints of what is pending of it.

A topic owns its store. A topic that is deleted and created again has another store, in its own folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from nsqd.engine.topic import Topic
from nsqd.log.cache import Cache
from nsqd.log.compaction import WORTH_BYTES
from nsqd.log.disk import Disk
from nsqd.log.open_files import OpenFiles
from nsqd.log.writer import LogWriter
from nsqd.storage.slots import CheckpointSlots

FOLDER_SUFFIX: Final = ".topic"
DELETED_SUFFIX: Final = ".deleted"


def topic_folder(data_path: Path, topic_name: str) -> Path:
    # The suffix keeps a topic called ".." inside the data path.
    return data_path / (topic_name + FOLDER_SUFFIX)


class TopicStore(LogWriter):
    """See the module."""

    __slots__ = ("checkpoints",)

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        max_segment_bytes: int,
        warn: Callable[[str], None],
        *,
        origin: int = 0,
        worth_compacting: int = WORTH_BYTES,
        cache: Cache | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """Takes the arguments of `LogWriter`."""
        super().__init__(
            disk,
            folder,
            max_segment_bytes,
            warn,
            origin=origin,
            worth_compacting=worth_compacting,
            cache=cache,
            open_files=open_files,
        )
        self.checkpoints = CheckpointSlots(disk, folder)

    def begin_again_if_gone(self) -> None:
        """If somebody has removed the folder, begin the log and its checkpoints again. Raises OSError."""
        if not self.look_for_folder():
            self.checkpoints = CheckpointSlots(self._disk, self.folder)

    def delete(self) -> Path | None:
        """Rename the topic's folder, so that its name is free; see :meth:`LogWriter.move_away`."""
        moved = self.move_away(f"{self.folder.name}.{uuid4().hex[:12]}{DELETED_SUFFIX}")
        # The changes to be added refer to the channels, and these to the log. Without this call only a
        # garbage collection would free that cycle.
        self.checkpoints.begin_anew()
        return moved


def store_of(topic: Topic) -> TopicStore | None:
    """The topic's own store; None for an ephemeral topic, which has no disk."""
    return topic.source if isinstance(topic.source, TopicStore) else None
