"""One log that a primary streams to this node: frames in, effects on the copy, frames out.

Frames are applied in the order of their topic. Everything that waits for the disk is a job for any thread:
finding the files of an earlier copy, making folders, names and fsyncs. No socket, no clock.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from nsqd.replication.copies import Copies
from nsqd.replication.copy_file import Mismatch
from nsqd.replication.copy_folder import CopyFolder
from nsqd.replication.copy_jobs import (
    BeginCopy,
    CopyJob,
    CopySync,
    DeleteFolder,
    Deletion,
    FileFrame,
    IncomingTopic,
    ListTopics,
    LoadFolders,
    MakeFolders,
    ReplicaJob,
    size_of,
)
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import AnyFrame, DeleteTopic, Have, Log, Ready, Snapshot, Sync, Topic
from nsqd.replication.framing import MAX_APPEND, MAX_FRAME
from nsqd.replication.records import CopyRecord

# A primary disconnects a replica that leaves so much unacknowledged; a frame more may be under way.
MAX_WAITING_BYTES: Final = 2 * MAX_APPEND + MAX_FRAME
# One job finds the files of so many topics.
_LOADED_AT_ONCE: Final = 100


class IncomingState(IntEnum):
    """The state of the log."""

    NEGOTIATING = 0
    # The copy is being made, or the stream is entering an earlier one.
    BEGINNING = 1
    STREAMING = 2
    CLOSED = 3


class IncomingLog:
    """See the module."""

    def __init__(
        self,
        log: Log,
        owner: bytes,
        copies: Copies,
        candidate: CopyRecord | None,
        origin_node_id: int = 0,
    ) -> None:
        """*owner* is the identity of the primary; *candidate* an earlier copy that the stream may enter."""
        self.log = log
        self.owner = owner
        self.candidate = candidate
        self.state = IncomingState.NEGOTIATING
        # Another node, or this one, has numbered the checkpoints of the earlier copy.
        self._restart_serials = candidate is not None and (candidate.opened or candidate.owner != owner)
        # The copy into which the log is streamed, once `Snapshot` has come.
        self.record: CopyRecord | None = None
        # Frames for the primary.
        self.out: list[AnyFrame] = []
        self._copies = copies
        self._origin_node_id = origin_node_id
        self._topics: dict[int, IncomingTopic] = {}
        self._names: dict[str, IncomingTopic] = {}
        # Topics whose files are to be found, and whose folders are to be made.
        self._to_load: dict[int, IncomingTopic] = {}
        self._to_make: dict[IncomingTopic, None] = {}
        # The primary has named all topics; the replica has answered.
        self._is_asked = False
        self._is_ready = False
        self._to_delete: list[Deletion] = []
        self._deleted: dict[str, int] = {}
        # Folders with steps for a job, and with something that may not be durable.
        self._with_steps: dict[CopyFolder, None] = {}
        self._changed: dict[CopyFolder, None] = {}
        self._running: set[ReplicaJob] = set()
        self._waiting_bytes = 0
        # What waits for a job, with the position of its first frame, in this order.
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
        found = [at for at in (self._unsynced_from, self._syncing_from) if at is not None]
        return min(found, default=None)

    def sync(self) -> None:
        """Have everything taken so far made durable by a job."""
        if self._unsynced_from is not None:
            self._sync_wanted = True

    def close(self) -> None:
        """The connection is gone, or the log is streamed no more."""
        self.state = IncomingState.CLOSED
        self._unwritten.clear()
        for deletion in self._to_delete:
            # The primary sends it again.
            deletion.folder.awaits_removal = False
        if self.record is not None:
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
            self._take_deletion(frame, position)
        elif isinstance(frame, Sync):
            self.sync()
        elif isinstance(frame, Ready):
            if self.state is not IncomingState.NEGOTIATING or self._is_asked:
                raise BadFrame("the topics were named already")
            self._is_asked = True
            self._answer()
        elif isinstance(frame, Snapshot):
            self._begin(frame, position)
        else:
            raise BadFrame(f"{type(frame).__name__} is not part of a stream")

    def _take_topic(self, frame: Topic) -> None:
        if frame.topic in self._topics:
            raise BadFrame(f"topic {frame.topic} has a name already")
        if frame.name in self._names:
            raise BadFrame(f"topic {frame.name} has a number already")
        if self.state is IncomingState.NEGOTIATING and self._is_asked:
            raise BadFrame("all topics were named already")
        topic = IncomingTopic(frame.topic, frame.name)
        self._topics[topic.number] = self._names[topic.name] = topic
        if self.record is not None:
            topic.folder = self._copies.folder(self.record, topic.name)
            self._to_make[topic] = None
        elif self.candidate is None:
            self.out.append(Have(topic.number, ()))
        else:
            self._to_load[topic.number] = topic

    def _begin(self, frame: Snapshot, position: int) -> None:
        """Begin the stream, in the earlier copy or in a new one."""
        if self.state is not IncomingState.NEGOTIATING or not self._is_ready:
            raise BadFrame("the stream cannot begin now")
        if not frame.resume:
            self.record = record = self._copies.new(
                self.log.origin, self.owner, origin_node_id=self._origin_node_id
            )
        elif self.candidate is None:
            raise BadFrame("there is no earlier copy")
        else:
            self.record = record = self.candidate
            record.owner, record.opened = self.owner, False
        record.epoch, record.index = self.log.epoch, self.log.index
        record.seen = max(record.seen, self.log.epoch)
        record.holders |= {one.identity: one.address for one in self.log.holders}
        self.state = IncomingState.BEGINNING
        self._unwritten[record] = self._unsynced_from = position
        for topic in self._topics.values():
            if not frame.resume:
                if self.candidate is not None and topic.folder is not None:
                    self._copies.forget(self.candidate, topic.folder)
                topic.folder = self._copies.folder(record, topic.name)
            if topic.folder is not None and not topic.folder.is_made:
                self._to_make[topic] = None

    def _take_file_frame(self, frame: FileFrame, position: int) -> None:
        topic = self._topics.get(frame.topic)
        if topic is None:
            raise BadFrame(f"there is no topic {frame.topic}")
        if self.record is None:
            raise BadFrame(f"{type(frame).__name__} came before the stream")
        if self._unsynced_from is None:
            self._unsynced_from = position
        if topic.is_ready:
            self._apply(topic, frame)
            return
        self._waiting_bytes += size_of(frame)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise BadFrame("more came than a replica has to take before its folders are made")
        topic.waiting.append(frame)
        self._unwritten.setdefault(topic, position)

    def _apply(self, topic: IncomingTopic, frame: FileFrame) -> None:
        topic.apply(frame)
        folder = topic.folder
        if folder is not None:
            self._changed[folder] = None
            if folder.has_steps:
                self._with_steps[folder] = None

    # --- negotiation ---

    def _answer(self) -> None:
        """Answer when the files of all topics are known."""
        if not self._is_asked or self._is_ready or self.state is not IncomingState.NEGOTIATING:
            return
        if self.candidate is None:
            self._is_ready = True
            self.out.append(Ready(self.log.number, has_copy=False, others=0))

    def _listed(self, job: ListTopics) -> None:
        self._is_ready = True
        others = len(set(job.found) - self._names.keys())
        self.out.append(Ready(self.log.number, has_copy=True, others=others))

    # --- deleted topics ---

    def _take_deletion(self, frame: DeleteTopic, position: int) -> None:
        """Remove a topic from the copy, once: a later topic of the same name stays."""
        name = frame.name
        if frame.below and frame.below == self._deleted.get(name):
            return
        self._deleted[name] = frame.below
        topic = self._names.pop(name, None)
        record = self.record or self.candidate
        if topic is not None:
            del self._topics[topic.number]
            self._to_load.pop(topic.number, None)
            self._to_make.pop(topic, None)
            self._unwritten.pop(topic, None)
            self._waiting_bytes -= sum(map(size_of, topic.take_waiting()))
        if record is None:
            return
        folder = self._copies.folder(record, name)
        if not folder.is_at_work or self.record is not None:
            folder.close()
        self._with_steps.pop(folder, None)
        self._changed.pop(folder, None)
        folder.awaits_removal = True
        # In the order of the stream, everything in the folder is of the deleted topic.
        streams = self.record is not None
        folder.is_gone = streams
        deletion = Deletion(record, folder, None if streams else frame.below)
        self._to_delete.append(deletion)
        self._unwritten[deletion] = position
        if self._unsynced_from is None:
            self._unsynced_from = position

    # --- jobs ---

    def owns(self, job: object) -> bool:
        """Whether the job came from here and has not ended."""
        return job in self._running

    def jobs(self) -> list[ReplicaJob]:
        """Jobs that are to be run now, in any thread."""
        if self.state is IncomingState.CLOSED:
            return []
        found: list[ReplicaJob] = []
        for job in self._next_jobs():
            # Whether the next one may run depends on those before it.
            self._running.add(job)
            found.append(job)
        return found

    def _next_jobs(self) -> Iterable[ReplicaJob]:
        if self.state is IncomingState.BEGINNING:
            # The folder of the copy may be renamed, so no other job runs.
            yield from self._beginning()
            return
        yield from self._deletions()
        if self.state is IncomingState.NEGOTIATING:
            yield from self._negotiation()
        else:
            yield from self._streaming()

    def _deletions(self) -> Iterable[ReplicaJob]:
        for one in list(self._to_delete):
            if not (one.folder.is_at_work or one.folder.syncs):
                self._to_delete.remove(one)
                yield DeleteFolder(self._copies, one)

    def _negotiation(self) -> Iterable[ReplicaJob]:
        candidate = self.candidate
        if candidate is None or self._running:
            return
        batch = {}
        for topic in list(self._to_load.values())[:_LOADED_AT_ONCE]:
            folder = topic.folder = self._copies.folder(candidate, topic.name)
            # Nothing is looked at while a job of an earlier connection may change it.
            if not folder.is_in_use:
                folder.close()
                # Topics that were recovered here may have other files since.
                folder.is_loaded = folder.is_loaded and not self._restart_serials
                batch[topic.number] = folder
                del self._to_load[topic.number]
        if batch:
            yield LoadFolders(batch)
        elif self._is_asked and not (self._is_ready or self._to_load or self._to_delete):
            yield ListTopics(self._copies, candidate)

    def _beginning(self) -> Iterable[ReplicaJob]:
        record = self.record
        if record is not None and not self._running:
            folders = [one.folder for one in self._topics.values() if one.folder is not None]
            resumed = [folder for folder in folders if folder.is_made]
            yield BeginCopy(
                *(self._copies, record, self._take_to_make(), resumed), restart_serials=self._restart_serials
            )

    def _streaming(self) -> Iterable[ReplicaJob]:
        if self._to_make and not any(isinstance(job, MakeFolders) for job in self._running):
            folders = self._take_to_make()
            if folders:
                yield MakeFolders(folders)
        for folder in list(self._with_steps):
            steps = folder.begin()
            if not folder.has_steps:
                del self._with_steps[folder]
            if steps:
                yield CopyJob(folder, steps)
        yield from self._syncs()

    def _syncs(self) -> Iterable[ReplicaJob]:
        # A load removes files without final names, so a sync waits for them.
        renaming = any(isinstance(job, CopyJob) and job.renames for job in self._running)
        renaming = renaming or any(folder.has_renames for folder in self._with_steps)
        if self._sync_wanted and self._syncing_from is None and not renaming:
            self._sync_wanted = False
            self._syncing_from, self._unsynced_from = self._unsynced_from, self.unwritten_from
            changed, self._changed = self._changed, {}
            yield CopySync(list(changed))

    def _take_to_make(self) -> list[CopyFolder]:
        """The folders that can be made now."""
        folders = []
        for topic in list(self._to_make):
            if topic.folder is not None and not topic.folder.is_busy:
                folders.append(topic.folder)
                del self._to_make[topic]
        return folders

    def ended(self, job: ReplicaJob, error: OSError | None) -> None:
        """A job has run, or failed. Raises BadFrame, Mismatch and OSError, as `take` does."""
        self._running.discard(job)
        job.end(error)
        if self.state is IncomingState.CLOSED:
            return
        if error is not None and not job.is_harmless(error):
            raise error
        if isinstance(job, CopySync):
            self._synced(job)
        elif isinstance(job, CopyJob):
            if job.folder.has_steps:
                self._with_steps[job.folder] = None
        elif isinstance(job, LoadFolders):
            for number, folder in job.by_number.items():
                topic = self._topics.get(number)
                if topic is not None and folder.is_loaded and not folder.is_gone:
                    self.out.append(Have(number, folder.report()))
                elif topic is not None:
                    self._to_load[number] = topic
        elif isinstance(job, ListTopics):
            self._listed(job)
        elif isinstance(job, BeginCopy):
            self._began(job)
        elif isinstance(job, MakeFolders):
            self._made(job)
        else:
            self._unwritten.pop(job.deletion, None)

    def _synced(self, job: CopySync) -> None:
        """A sync has ended: look what it has left."""
        since, self._syncing_from = self._syncing_from, None
        for folder in job.folders:
            if not folder.is_gone and (folder.dirty or folder.new_names):
                self._changed[folder] = None
        if job.is_incomplete and since is not None:
            self._unsynced_from = since
            self._sync_wanted = True

    def _began(self, job: BeginCopy) -> None:
        """The copy exists: apply the frames that wait for it."""
        self.state = IncomingState.STREAMING
        self._unwritten.pop(job.record, None)
        resumed = set(job.resumed)
        for topic in list(self._topics.values()):
            folder = topic.folder
            if folder is not None and folder in resumed:
                folder.entered()
                self._changed[folder] = None
                self._set_ready(topic)
        self._made(job)

    def _made(self, job: MakeFolders) -> None:
        for folder in job.folders:
            topic = self._names.get(folder.topic)
            if topic is None or topic.folder is not folder:
                # It was deleted before its folder was made.
                continue
            if folder.topic in job.occupied:
                raise Mismatch(f"the copy has files of topic {folder.topic} already")
            self._set_ready(topic)

    def _set_ready(self, topic: IncomingTopic) -> None:
        topic.is_ready = True
        for frame in topic.take_waiting():
            self._waiting_bytes -= size_of(frame)
            self._apply(topic, frame)
        self._unwritten.pop(topic, None)
