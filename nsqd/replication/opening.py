"""Making a topic of a copy's files, and closing it again; both may be done in any thread."""

from pathlib import Path

from nsqd.engine.broker import Broker
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.happened import Mark
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion, NotALog, decode_file_header
from nsqd.replication.copy_record import CopyRecord
from nsqd.storage import restoring
from nsqd.storage.copy_store import CopyStore
from nsqd.storage.data_path import DataPath
from nsqd.storage.topic_store import store_of


def open_topic(data: DataPath, broker: Broker, folder: Path, name: str, record: CopyRecord) -> ReplicaTopic:
    """The topic in *folder*, a part of a copy, as its owner would find it after a crash.

    Nobody may write into the folder from now on. Raises OSError, and NewerVersion.
    """
    store = CopyStore(data.disk, folder, data.warn, data.cache, data.open_files)
    state = store.checkpoints.load(data.warn, name)
    unusable = state is None and store.checkpoints.damaged
    found = store.recover(None if unusable else state.mark if state else Mark())
    ids = MessageIds(node_id_of(data.disk, folder) or record.origin_node_id)
    for origin in store.origins():
        ids.recognise(origin)
    topic = ReplicaTopic(name, record.origin.hex(), ids, store, broker.wall, broker.settings_of)
    topic.log.kept_from = store.end if store.first_seq is None else store.first_seq
    if state is not None:
        topic.log.kept_from = state.kept_from
        restoring.fill(topic, state)
        topic.tombstoned = state.tombstoned
        topic.finished_elsewhere = state.finished_elsewhere
    next_seq = state.mark.next if state else 0
    stored = restoring.relive(topic, found.happenings, next_seq, data.warn)
    topic.log.next_seq = store.end
    restoring.recall_had(topic, state.had if state else None, stored, found.damaged, store)
    topic.held = False
    topic.pump()
    return topic


def close_topic(disk: Disk, topic: Topic, *, keep: bool) -> None:
    """Close the topic's files, after its last checkpoint if it is to be kept. Raises OSError."""
    store = store_of(topic)
    if store is None:
        return
    try:
        if keep:
            job = store.checkpoints.begin(topic, store.mark(topic.log.next_seq))
            job.run(disk)
            store.checkpoints.end(job)
    finally:
        store.close()


def node_id_of(disk: Disk, folder: Path) -> int:
    """The id of the node that wrote the newest file of a copy; 0 when there is none. Raises OSError."""
    for name in sorted((name for name in disk.names(folder) if name.endswith(".log")), reverse=True):
        fd = disk.open_read(folder / name)
        try:
            return decode_file_header(disk.read(fd, FILE_HEADER_BYTES, 0)).origin
        except (NotALog, NewerVersion):
            continue
        finally:
            disk.close(fd)
    return 0
