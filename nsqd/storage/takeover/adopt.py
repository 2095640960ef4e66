"""Taking over what the original left in the data path: its disk queues go to the end of the topics' logs.

Before anything of a topic is read, a file in its folder says from which sequence on the log is being filled
and from which files. When all messages are on the disk and a checkpoint must deliver them, that file says so;
then the old files that were read get the suffix ``.adopted``. If nsqd ends before that, the next start lets
go of what was taken and begins again; if it ends after that, the next start continues with the renaming. The
old files are kept, so that a return to the original is possible; removing them is left to the operator.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.encoder import Encoder
from nsqd.storage.reservation import Reservation
from nsqd.storage.takeover.diskqueue import DiskQueue, Record, find_queues
from nsqd.storage.topic_log import TopicLog

ADOPTED: Final = ".adopted"
PROGRESS: Final = "adopting"


class Adoption:
    """Takes over the disk queues in one data path."""

    def __init__(
        self, disk: Disk, data_path: Path, reservation: Reservation, warn: Callable[[str], None]
    ) -> None:
        self._disk = disk
        self._data_path = data_path
        self._reservation = reservation
        self._warn = warn

    @staticmethod
    def interrupted(disk: Disk, folder: Path, covered: int) -> int | None:
        """The sequence from which on the log must be filled again; None when nothing was interrupted.

        The checkpoint covers messages below *covered*: when it has those that were taken over, only the
        renaming is left to do. Raises OSError.
        """
        progress = _read(disk, folder / PROGRESS)
        if progress is None or progress["done"]:
            return None
        if covered <= progress["from"]:
            return int(progress["from"])
        disk.replace(folder / PROGRESS, json.dumps(progress | {"done": True}).encode(), durable=True)
        return None

    def run(self, broker: Broker, begun: list[TopicLog]) -> int:
        """Fill the topics of the broker from their disk queues; returns how many messages were taken over.

        *begun* are the stores that an earlier start was filling. Queues of topics and channels that are not
        known are left alone, with a warning. Raises OSError.
        """
        taken = 0
        for store in begun:
            self._finish(store)
        queues = find_queues(self._disk, self._data_path)
        for topic in list(broker.topics.values()):
            source = topic.store
            if not isinstance(source, TopicLog):
                continue
            own = queues.pop(topic.name, None)
            of_channels = {
                name: queues.pop(f"{topic.name}:{name}")
                for name in topic.channels
                if f"{topic.name}:{name}" in queues
            }
            if own is not None or of_channels:
                taken += self._take(broker, topic, source, own, of_channels)
        for name, queue in sorted(queues.items()):
            kind, shown = ("channel", name.replace(":", "/", 1)) if ":" in name else ("topic", name)
            self._warn(
                f"{queue.paths[0].name} and other disk queue files of the original are not taken over: no "
                f"{kind} {shown} is known; create it and start again to have their messages delivered"
            )
        return taken

    def _take(
        self,
        broker: Broker,
        topic: Topic,
        store: TopicLog,
        own: DiskQueue | None,
        of_channels: dict[str, DiskQueue],
    ) -> int:
        files = [path.name for queue in (own, *of_channels.values()) if queue for path in queue.paths]
        if topic.staged_notes():
            # A new topic has no folder yet.
            store.appender.append([], topic.staged_notes(), topic.log.next_seq)
            topic.commit()
        broker.dirty.pop(topic, None)
        self._write(store, {"from": topic.log.next_seq, "files": files, "done": False})
        filling = _Filling(broker, self._reservation, topic, store)
        for name, queue in of_channels.items():
            for record in queue.records(self._disk, self._warn):
                filling.add(record, [topic.channels[name].backlog])
        for record in own.records(self._disk, self._warn) if own is not None else ():
            filling.add(record, topic.backlogs())
        filling.write()
        job = store.appender.begin_sync()
        if job is not None:
            job.run(self._disk)
            store.appender.end_sync(job, None)
        checkpoint = store.checkpoints.start_job(topic, store.checkpoint_position(topic.log.next_seq))
        checkpoint.run(self._disk)
        store.checkpoints.end(checkpoint)
        self._write(store, {"from": 0, "files": files, "done": True})
        self._finish(store)
        return filling.taken

    def _finish(self, store: TopicLog) -> None:
        """Rename the files that were read."""
        progress = _read(self._disk, store.segments.folder / PROGRESS)
        if progress is None or not progress["done"]:
            return
        there = set(self._disk.names(self._data_path))
        for name in progress["files"]:
            if name in there:
                self._disk.rename(self._data_path / name, self._data_path / (name + ADOPTED))
        self._disk.sync_folder(self._data_path)
        self._disk.remove(store.segments.folder / PROGRESS)
        self._disk.sync_folder(store.segments.folder)

    def _write(self, store: TopicLog, progress: dict[str, Any]) -> None:
        self._disk.replace(store.segments.folder / PROGRESS, json.dumps(progress).encode(), durable=True)
        self._disk.sync_folder(store.segments.folder)
        self._disk.sync_folder(self._data_path)


class _Filling:
    """Appends records to the log of one topic."""

    def __init__(self, broker: Broker, reservation: Reservation, topic: Topic, store: TopicLog) -> None:
        self.taken = 0
        self._reservation = reservation
        self._broker = broker
        self._topic = topic
        self._store = store
        self._encoder = Encoder(broker.ids, topic.log.next_seq)

    def add(self, record: Record, backlogs: list[Backlog]) -> None:
        self.taken += 1
        seq = self._encoder.next_seq
        full = self._encoder.put(record.body, record.timestamp_ns)
        for pending in backlogs:
            pending.extend(seq, seq + 1, attempts=record.attempts)
        if full:
            self.write()

    def write(self) -> None:
        block = self._encoder.close()
        if block is None:
            return
        topic = self._topic
        if block.next > self._broker.sequences.reserved:
            self._reservation.extend(block.next)
        self._store.appender.append([block], [], block.first)
        # The messages are in the log, although they were not published.
        topic.log.next_seq = block.next
        topic.skip_to(block.next)
        self._broker.sequences.note_used(block.next)


def _read(disk: Disk, path: Path) -> dict[str, Any] | None:
    try:
        progress: dict[str, Any] = json.loads(disk.read_file(path))
    except FileNotFoundError:
        return None
    return progress
