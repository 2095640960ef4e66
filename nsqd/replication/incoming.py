"""One log that a primary streams to this node: frames in, effects on the copy, frames out.

Frames are applied in the order of their topic. Everything that waits for the disk is a job for any thread:
finding the files of an earlier copy, making folders, names and fsyncs. No socket, no clock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Final

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.segment import Segment
from nsqd.replication.copies import Copies
from nsqd.replication.copy_file import CopyFile, Mismatch, measured
from nsqd.replication.copy_folder import CopyFolder, FileFrame, FolderSync
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import (
    AnyFrame,
    Appends,
    DeleteTopic,
    FilePart,
    Have,
    Log,
    Ready,
    Snapshot,
    Sync,
    Topic,
)
from nsqd.replication.framing import MAX_APPEND, MAX_FRAME
from nsqd.replication.job import StartJob
from nsqd.replication.local_copy import LocalCopy

# A primary disconnects a replica that leaves so much unacknowledged; a frame more may be under way.
MAX_WAITING_BYTES: Final = 2 * MAX_APPEND + MAX_FRAME
# So many topics get their folders and waiting frames in one job, because clients wait during it.
_MADE_AT_ONCE: Final = 200


class IncomingState(IntEnum):
    """The state of the log."""

    NEGOTIATING = 0
    # The copy is being made, or the stream is entering an earlier one.
    BEGINNING = 1
    STREAMING = 2
    CLOSED = 3


class JobKind(IntEnum):
    """The kind of a job. Of each kind one runs at a time; the first three run alone."""

    NEGOTIATE = 0
    BEGIN = 1
    DELETE = 2
    MAKE = 3
    SYNC = 4
    INDEX = 5


@dataclass(slots=True, eq=False)
class IncomingTopic:
    """One topic of the log: its folder, and frames that wait for the folder."""

    number: int
    name: str
    # None until it is known in which copy it is.
    folder: CopyFolder | None = None
    # The folder exists, so frames are applied immediately.
    is_ready: bool = False
    waiting: list[FileFrame] = field(default_factory=list)


class IncomingLog:
    """See the module."""

    def __init__(
        self,
        log: Log,
        owner: bytes,
        copies: Copies,
        candidate: LocalCopy | None,
        start: StartJob,
        origin_node_id: int = 0,
        deletions: Iterable[DeleteTopic] = (),
    ) -> None:
        """*owner* is the identity of the primary; *candidate* an earlier copy that the stream may enter.

        *deletions* are those that came before the log, and may not have been done.
        """
        self.log = log
        self.owner = owner
        self.candidate = candidate
        self.state = IncomingState.NEGOTIATING
        # Another node, or this one, has numbered the checkpoints of the earlier copy.
        self._restart_serials = candidate is not None and (candidate.opened or candidate.owner != owner)
        # The copy into which the log is streamed, once `Snapshot` has come.
        self.copy: LocalCopy | None = None
        # Frames for the primary.
        self.out: list[AnyFrame] = []
        self._copies = copies
        self._start_job = start
        self._origin_node_id = origin_node_id
        self._deletions = tuple(deletions)
        self._topics: dict[int, IncomingTopic] = {}
        self._names: dict[str, IncomingTopic] = {}
        # The primary has named all topics; the replica has answered.
        self._is_answered = False
        self._is_ready = False
        # Topics whose folders are to be made; names of deleted topics, each with the position of its frame.
        self._to_make: dict[IncomingTopic, None] = {}
        self._deleted: dict[tuple[str, int], None] = {}
        # Folders with something for the next sync, and with files whose index is to be written.
        self._changed: dict[CopyFolder, None] = {}
        self._to_index: dict[CopyFolder, None] = {}
        self._running: set[JobKind] = set()
        self._waiting_bytes = 0
        # Frames that wait for a job, with the position of the first one, in this order.
        self._unwritten: dict[object, int] = {}
        self._sync_wanted = False
        self._unsynced_from: int | None = None
        self._syncing_from: int | None = None

    # --- for the connection ---

    @property
    def unwritten_from(self) -> int | None:
        """The position of the first frame that is not written yet; None when everything taken is."""
        return next(iter(self._unwritten.values()), None)

    @property
    def unsynced_from(self) -> int | None:
        """The position of the first frame that may not be durable yet; None when everything taken is."""
        return self._unsynced_from if self._syncing_from is None else self._syncing_from

    def sync(self) -> None:
        """Have everything taken so far made durable by a job."""
        if self._unsynced_from is not None:
            self._sync_wanted = True

    def close(self) -> None:
        """The connection is gone, or the log is streamed no more."""
        self.state = IncomingState.CLOSED
        self._unwritten.clear()
        if self.copy is not None:
            for topic in self._topics.values():
                if topic.folder is not None:
                    topic.folder.close()

    # --- frames ---

    def take(self, frame: AnyFrame, position: int) -> None:
        """Take a frame that begins at this position of the connection. Raises BadFrame, Mismatch, OSError."""
        if self.state is IncomingState.CLOSED:
            return
        if isinstance(frame, FileFrame):
            self._take_file_frame(frame, position)
        elif isinstance(frame, Topic):
            self._take_topic(frame)
        elif isinstance(frame, DeleteTopic):
            self._take_deletion(frame.name, position)
        elif isinstance(frame, Sync):
            self.sync()
        elif isinstance(frame, Ready):
            if self.state is not IncomingState.NEGOTIATING or self._is_answered:
                raise BadFrame("the topics were named already")
            self._is_answered = True
            if self.candidate is None:
                self._answer(has_copy=False)
        elif isinstance(frame, Snapshot):
            self._take_snapshot(frame, position)
        else:
            raise BadFrame(f"{type(frame).__name__} is not part of a stream")

    def _take_topic(self, frame: Topic) -> None:
        if frame.topic in self._topics:
            raise BadFrame(f"topic {frame.topic} has a name already")
        if frame.name in self._names:
            raise BadFrame(f"topic {frame.name} has a number already")
        if self.state is IncomingState.NEGOTIATING and self._is_answered:
            raise BadFrame("all topics were named already")
        topic = IncomingTopic(frame.topic, frame.name)
        self._topics[topic.number] = self._names[topic.name] = topic
        if self.copy is not None:
            self._to_make[topic] = None

    def _take_snapshot(self, frame: Snapshot, position: int) -> None:
        """Begin the stream, in the earlier copy or in a new one."""
        if self.state is not IncomingState.NEGOTIATING or not self._is_ready:
            raise BadFrame("the stream cannot begin now")
        if not frame.resume:
            # Topics that were deleted since are in no new copy.
            self._deleted.clear()
            self._unwritten.clear()
            copy = self._copies.new(self.log.origin, self.owner, origin_node_id=self._origin_node_id)
        elif self.candidate is None:
            raise BadFrame("there is no earlier copy")
        else:
            copy = self.candidate
            copy.owner, copy.opened = self.owner, False
        self.copy = copy
        copy.epoch, copy.index = self.log.epoch, self.log.index
        copy.seen = max(copy.seen, self.log.epoch)
        copy.holders |= {one.identity: one.address for one in self.log.holders}
        self.state = IncomingState.BEGINNING
        self._unwritten[copy] = self._unsynced_from = position
        for topic in self._topics.values():
            if not frame.resume or topic.folder is None or not topic.folder.is_made:
                topic.folder = None
                self._to_make[topic] = None

    def _take_file_frame(self, frame: FileFrame, position: int) -> None:
        topic = self._topics.get(frame.topic)
        if topic is None:
            raise BadFrame(f"there is no topic {frame.topic}")
        if self.copy is None:
            raise BadFrame(f"{type(frame).__name__} came before the stream")
        if self._unsynced_from is None:
            self._unsynced_from = position
        if topic.folder is not None and topic.is_ready:
            self._changed[topic.folder] = None
            topic.folder.apply(frame)
            return
        self._waiting_bytes += _size_of(frame)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise BadFrame("more came than a replica has to take before its folders are made")
        topic.waiting.append(frame)
        self._unwritten.setdefault(topic, position)

    def _take_deletion(self, name: str, position: int) -> None:
        """Remove a topic from the copy; in the order of the stream, a later topic of the same name stays."""
        topic = self._names.pop(name, None)
        if topic is not None:
            del self._topics[topic.number]
            self._to_make.pop(topic, None)
            self._unwritten.pop(topic, None)
            self._waiting_bytes -= sum(map(_size_of, topic.waiting))
            if topic.folder is not None:
                topic.folder.is_gone = True
                self._changed.pop(topic.folder, None)
                self._to_index.pop(topic.folder, None)
                if self.copy is not None:
                    topic.folder.close()
        if self.copy is None and self.candidate is None:
            return
        self._deleted[name, position] = None
        self._unwritten[name, position] = position
        if self._unsynced_from is None:
            self._unsynced_from = position

    def _answer(self, *, has_copy: bool, others: int = 0) -> None:
        self._is_ready = True
        self.out += [
            Have(topic.number, () if topic.folder is None else topic.folder.report())
            for topic in self._topics.values()
        ]
        self.out.append(Ready(self.log.number, has_copy, others))

    # --- jobs ---

    def begin_jobs(self) -> None:
        """Begin the jobs that can run now."""
        copy = self.copy or self.candidate
        if self.state is IncomingState.CLOSED or copy is None:
            return
        if not self._running and copy.running_jobs:
            # Those of the connection before have not ended.
            return
        if any(kind < JobKind.MAKE for kind in self._running):
            return
        if self.state is IncomingState.STREAMING and not self._deleted:
            self._make_folders(copy)
            self._sync_changed(copy)
            self._write_index(copy)
        elif self._running:
            # The next jobs run alone.
            return
        elif self.state is IncomingState.STREAMING:
            self._delete(copy)
        elif self.state is IncomingState.BEGINNING:
            self._begin(copy)
        elif self._is_answered and not self._is_ready:
            self._negotiate(copy)

    def _start(
        self,
        kind: JobKind,
        copy: LocalCopy,
        run: Callable[[Disk], None],
        then: Callable[[], None],
        note: Callable[[Exception | None], None] = lambda _error: None,
    ) -> None:
        """Begin a job. *then* follows if it ends well while the stream lasts, *note* in any case."""

        def ended(error: Exception | None, _now_ns: int) -> None:
            self._running.remove(kind)
            copy.running_jobs -= 1
            note(error)
            if self.state is IncomingState.CLOSED:
                return
            if error is not None:
                raise error
            then()

        self._running.add(kind)
        copy.running_jobs += 1
        self._start_job(run, ended)

    def _negotiate(self, candidate: LocalCopy) -> None:
        """Find the files of the earlier copy."""
        topics: list[str] = []
        folders: dict[IncomingTopic, CopyFolder] = {}
        named = list(self._topics.values())

        def run(_disk: Disk) -> None:
            for one in self._deletions:
                self._copies.delete_topic(candidate, one.name, one.below)
            for topic in named:
                folder = folders[topic] = self._copies.folder(candidate, topic.name)
                folder.close()
                # Topics that were recovered here may have other files since.
                if self._restart_serials or not folder.is_loaded:
                    folder.load()
            topics.extend(self._copies.topics(candidate))

        def then() -> None:
            others = len(set(topics) - self._names.keys() - {name for name, _ in self._deleted})
            for topic, folder in folders.items():
                topic.folder = folder
            self._answer(has_copy=not any(one.problem for one in folders.values()), others=others)

        self._start(JobKind.NEGOTIATE, candidate, run, then)

    def _begin(self, copy: LocalCopy) -> None:
        """Make the new copy, or enter the earlier one."""
        resumed = [one.folder for one in self._topics.values() if one.folder is not None]

        def run(_disk: Disk) -> None:
            if self._restart_serials:
                # Before the copy says that the owner has numbered them.
                for folder in resumed:
                    folder.restart_serials()
            if copy.is_stored:
                self._copies.enter(copy)
            else:
                self._copies.create(copy)
            for folder in resumed:
                folder.cut_damage()

        def then() -> None:
            self.state = IncomingState.STREAMING
            self._unwritten.pop(copy, None)
            for topic in list(self._topics.values()):
                if topic.folder is not None and topic.folder in resumed:
                    topic.folder.entered()
                    self._changed[topic.folder] = None
                    self._set_ready(topic)

        self._start(JobKind.BEGIN, copy, run, then)

    def _delete(self, copy: LocalCopy) -> None:
        """Rename the folders of deleted topics, before a later topic of the same name gets one."""
        deleted, self._deleted = self._deleted, {}

        def run(_disk: Disk) -> None:
            for name, _ in deleted:
                self._copies.delete_topic(copy, name)

        def then() -> None:
            for key in deleted:
                self._unwritten.pop(key, None)

        self._start(JobKind.DELETE, copy, run, then)

    def _make_folders(self, copy: LocalCopy) -> None:
        """Make the folders of some topics that are new in the copy, with one sync of the folder above."""
        if not self._to_make or JobKind.MAKE in self._running:
            return
        topics = list(islice(self._to_make, _MADE_AT_ONCE))
        for topic in topics:
            del self._to_make[topic]
        folders = {topic: self._copies.new_folder(copy, topic.name) for topic in topics}
        occupied: list[str] = []

        def run(disk: Disk) -> None:
            for folder in folders.values():
                try:
                    disk.make_folder(folder.path)
                except FileExistsError:
                    if disk.names(folder.path):
                        occupied.append(folder.topic)
            disk.sync_folder(copy.path)

        def then() -> None:
            for topic, folder in folders.items():
                if self._names.get(topic.name) is not topic:
                    # It was deleted before its folder was made.
                    continue
                if topic.name in occupied:
                    raise Mismatch(f"the copy has files of topic {topic.name} already")
                topic.folder = folder
                folder.is_made = folder.is_loaded = True
                self._set_ready(topic)

        self._start(JobKind.MAKE, copy, run, then)

    def _set_ready(self, topic: IncomingTopic) -> None:
        """The folder of a topic exists: apply the frames that wait for it."""
        folder = topic.folder
        if folder is None:
            raise AssertionError(f"topic {topic.name} has no folder")
        topic.is_ready = True
        waiting, topic.waiting = topic.waiting, []
        for frame in waiting:
            self._waiting_bytes -= _size_of(frame)
            self._changed[folder] = None
            folder.apply(frame)
        self._unwritten.pop(topic, None)

    def _sync_changed(self, copy: LocalCopy) -> None:
        """Make durable everything that was written until now."""
        if not self._sync_wanted or JobKind.SYNC in self._running:
            return
        self._sync_wanted = False
        self._syncing_from, self._unsynced_from = self._unsynced_from, self.unwritten_from
        changed, self._changed = self._changed, {}
        syncs = list(map(FolderSync, changed))

        def run(disk: Disk) -> None:
            for one in syncs:
                one.run(disk)

        def note(error: Exception | None) -> None:
            for one in syncs:
                one.end(error)

        def then() -> None:
            self._syncing_from = None
            for folder in changed:
                if folder.is_gone:
                    continue
                if folder.has_work:
                    self._changed[folder] = None
                if folder.unindexed:
                    self._to_index[folder] = None

        self._start(JobKind.SYNC, copy, run, then, note)

    def _write_index(self, copy: LocalCopy) -> None:
        """Write the index of one complete file."""
        folder = next(iter(self._to_index), None)
        if folder is None or JobKind.INDEX in self._running:
            return
        # Bytes that are not durable yet wait for the next sync.
        files = [one for one in folder.unindexed if one.name not in folder.dirty]
        if len(files) < 2:
            del self._to_index[folder]
        if files:
            del folder.unindexed[files[0]]
            self._index(copy, folder, files[0])

    def _index(self, copy: LocalCopy, folder: CopyFolder, file: CopyFile) -> None:
        found: list[Segment] = []

        def run(disk: Disk) -> None:
            try:
                segment = file.segment or measured(disk, folder.path / file.name)
            except FileNotFoundError:
                # The primary has removed it.
                return
            if segment is not None:
                segment_index.write(disk, segment)
                found.append(segment)

        def then() -> None:
            if found and folder.files.get(file.name) is file:
                file.segment, file.is_indexed = found[0], True
            elif found:
                self._copies.disk.remove(found[0].index_path)

        self._start(JobKind.INDEX, copy, run, then)


def _size_of(frame: FileFrame) -> int:
    """How many bytes of memory a frame takes, about."""
    data = frame.data if isinstance(frame, Appends | FilePart) else b""
    return len(data) + 256
