"""The log of one topic on disk: its segments, what writes and cleans them, and its checkpoints.

A topic owns its log. A topic that is deleted and created again has another log, in its own folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from nsqd.engine.topic import Topic
from nsqd.log.appender import Appender
from nsqd.log.cache import Cache
from nsqd.log.cleaner import Cleaner
from nsqd.log.disk import Disk
from nsqd.log.open_files import OpenFiles
from nsqd.log.segment_files import FoundSegments, find_segments
from nsqd.log.segments import Segments
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.slots import CheckpointSlots

FOLDER_SUFFIX: Final = ".topic"
DELETED_SUFFIX: Final = ".deleted"


def topic_folder(data_path: Path, topic_name: str) -> Path:
    # The suffix keeps a topic called ".." inside the data path.
    return data_path / (topic_name + FOLDER_SUFFIX)


class TopicLog:
    """See the module. Not thread-safe, except for the jobs that its parts hand out.

    The log of a copy is read-only: its files are the origin's. Messages that this nsqd finishes are in the
    checkpoints in its folder.
    """

    __slots__ = ("appender", "checkpoints", "cleaner", "known_durable", "segments")

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        max_segment_bytes: int,
        warn: Callable[[str], None],
        *,
        origin: int = 0,
        cache: Cache | None = None,
        open_files: OpenFiles | None = None,
        read_only: bool = False,
    ) -> None:
        """*warn* is called with a sentence about each damage; sizes are in bytes; *origin* is a node id.

        *cache* and *open_files* are those of the node.
        """
        self.segments = Segments(disk, folder, warn, cache or Cache(), read_only=read_only)
        files = OpenFiles() if open_files is None else open_files
        self.appender = Appender(self.segments, max_segment_bytes, files, origin)
        self.cleaner = Cleaner(self.segments, self.appender, max_segment_bytes)
        self.checkpoints = CheckpointSlots(disk, folder)
        # What the checkpoint of the last start says. What it calls durable and is missing was removed.
        self.known_durable = CheckpointPosition()

    def recover(self, mark: CheckpointPosition | None) -> FoundSegments:
        """Find the segments that are on disk, as a stop, a crash or a power cut left them.

        *mark* is what the checkpoint says; None when there is one that cannot be used. Raises OSError when
        something cannot be read or repaired.
        """
        segments = self.segments
        found = find_segments(segments.disk, segments.folder, mark, segments.warn)
        self.known_durable = mark or CheckpointPosition()
        segments.load(found.segments)
        segments.notes = max([self.known_durable.notes, *(one.last_note for one in segments)])
        segments.end = max([self.known_durable.end, *(one.next for one in segments)])
        self.appender.resume(found.next_number)
        return found

    def checkpoint_position(self, next_seq: int) -> CheckpointPosition:
        """What a checkpoint made now, which covers messages below *next_seq*, must say of the log."""
        segments = self.segments
        return CheckpointPosition(
            next_seq, segments.notes, segments.synced, segments.end, segments.synced_notes
        )

    def restart_if_removed(self) -> None:
        """If the folder was removed, begin the log and its checkpoints again. Raises OSError."""
        if not (self.segments.read_only or self.appender.check_folder()):
            self.checkpoints = CheckpointSlots(self.segments.disk, self.segments.folder)

    def move_to(self, folder: Path) -> None:
        """The folder of a copy was renamed."""
        self.segments.folder = folder
        for segment in self.segments:
            segment.move_to(folder)
        self.checkpoints.move_to(folder)

    def delete(self) -> Path | None:
        """Rename the topic's folder, so that its name is free; see `Appender.move_away`."""
        moved = self.appender.move_away(f"{self.segments.folder.name}.{uuid4().hex[:12]}{DELETED_SUFFIX}")
        # The changes to be added refer to the channels, and these to the log. Without this call only a
        # garbage collection would free that cycle.
        self.checkpoints.restart_chains()
        return moved


def store_of(topic: Topic) -> TopicLog | None:
    """The topic's log on disk; None for an ephemeral topic, which has no disk."""
    return topic.store if isinstance(topic.store, TopicLog) else None
