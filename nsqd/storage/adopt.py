"""Taking over the data path of the original: its disk queues become topic logs.

A topic is built in a folder of its own, synced, and put in its place by one rename; then the old files get
the suffix ``.adopted``. Interrupted at any point, the next start does what is left to do. The old files are
kept, so that one can go back; removing them is the operator's business.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqcore.wire.names import is_ephemeral, is_valid_name
from nsqd.engine.block import Encoder
from nsqd.engine.channel import Channel
from nsqd.engine.ids import MessageIds, first_sequence
from nsqd.engine.owed import Owed
from nsqd.engine.topic import Topic
from nsqd.storage import checkpoint
from nsqd.storage.disk import Disk
from nsqd.storage.diskqueue import DiskQueue, Record, find_queues
from nsqd.storage.metadata import TopicMetadata
from nsqd.storage.topic_store import FOLDER_SUFFIX, TopicStore, topic_folder

ADOPTING: Final = ".adopting"
ADOPTED: Final = ".adopted"
# In the folder of a topic whose messages are taken over and whose old files may still have their names.
MARKER: Final = "adopting"


def adopt(
    data_path: Path,
    disk: Disk,
    ids: MessageIds,
    listed: list[TopicMetadata],
    now_ns: int,
    *,
    max_segment_bytes: int,
    warn: Callable[[str], None],
) -> int:
    """Take over the disk queues of the topics in *listed*; returns how many messages that were.

    Raises OSError.
    """
    for unfinished in data_path.glob(f"*{FOLDER_SUFFIX}{ADOPTING}"):
        shutil.rmtree(unfinished)
    found = find_queues(data_path)
    taken = 0
    for metadata in listed:
        if not is_valid_name(metadata.name) or is_ephemeral(metadata.name):
            continue
        channel_names = [
            name for name, _ in metadata.channels if is_valid_name(name) and not is_ephemeral(name)
        ]
        queue = found.get(metadata.name)
        queues = {
            name: found[f"{metadata.name}:{name}"]
            for name in channel_names
            if f"{metadata.name}:{name}" in found
        }
        old_files = [path for one in (queue, *queues.values()) if one is not None for path in one.paths]
        if not old_files:
            continue
        folder = topic_folder(data_path, metadata.name)
        marker = folder / MARKER
        if folder.exists():
            if not marker.exists():
                raise OSError(
                    f"topic {metadata.name} has a log in {folder} and also disk queue files of the original "
                    f"({old_files[0].name}); move one of the two out of the data path"
                )
        else:
            staging = folder.with_name(folder.name + ADOPTING)
            store = TopicStore(disk, staging, max_segment_bytes, warn)
            taken += _Adoption(metadata, ids, store, now_ns).run(queue, queues, warn)
            (staging / MARKER).touch()
            disk.sync_folder(staging)
            disk.rename(staging, folder)
            disk.sync_folder(data_path)
        for path in old_files:
            disk.rename(path, path.with_name(path.name + ADOPTED))
        disk.sync_folder(data_path)
        disk.remove(marker)
    return taken


class _Adoption:
    """Builds the log and the checkpoint of one topic."""

    def __init__(self, metadata: TopicMetadata, ids: MessageIds, store: TopicStore, now_ns: int) -> None:
        first = first_sequence(now_ns)
        self._topic = Topic(metadata.name, ids, store, first, memory_limit=0)
        for name, paused in metadata.channels:
            if is_valid_name(name):
                self._topic.add_channel(name).paused = paused
        self._topic.paused = metadata.paused
        self._encoder = Encoder(ids, first)
        self._store = store

    def run(self, queue: DiskQueue | None, queues: dict[str, DiskQueue], warn: Callable[[str], None]) -> int:
        taken = 0
        topic = self._topic
        for name, channel_queue in queues.items():
            for record in channel_queue.records(warn):
                taken += 1
                self._take(record, [topic.channels[name]])
        for record in queue.records(warn) if queue is not None else ():
            taken += 1
            self._take(record, topic.owing())
        self._write()
        sync = self._store.begin_sync()
        if sync is not None:
            sync()
        topic.skip_to(self._encoder.next_seq)
        topic.log.next_seq = self._encoder.next_seq
        self._store.begin_checkpoint(checkpoint.encode(topic, clean=True))()
        self._store.close()
        return taken

    def _take(self, record: Record, owing: list[Owed]) -> None:
        seq = self._encoder.next_seq
        full = self._encoder.put(record.body, record.timestamp_ns)
        for owed in owing:
            if record.attempts:
                owed.attempts[seq] = record.attempts
                owed.put_back(seq, seq + 1)
            else:
                owed.extend(seq, seq + 1)
            if isinstance(owed, Channel):
                owed.message_count += 1
        if full:
            self._write()

    def _write(self) -> None:
        block = self._encoder.close()
        if block is not None:
            self._store.append([block])
