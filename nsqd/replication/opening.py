"""Making a topic of a copy's files, and putting it away again; both may be done in any thread."""

from pathlib import Path

from nsqd.engine.broker import Broker
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.log.disk import Disk
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion, NotALog, decode_file_header
from nsqd.log.ranges import Ranges
from nsqd.storage.carried import open_carried
from nsqd.storage.data_path import DataPath, extents_of
from nsqd.storage.topic_store import store_of


def origin_of(disk: Disk, folder: Path) -> int:
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


class CopyOpener:
    """Opens the copies of one node."""

    def __init__(self, data: DataPath, broker: Broker) -> None:
        self._data = data
        self._broker = broker

    def open(self, name: str, home: bytes, folder: Path, now_ns: int) -> CarriedTopic:  # noqa: ARG002 - for tests
        """Raises OSError and NewerVersion."""
        origin = origin_of(self._data.disk, folder)
        return open_carried(self._data, self._broker, folder, name, home.hex(), origin)

    def close(self, topic: CarriedTopic) -> None:
        """Raises OSError."""
        store = store_of(topic)
        if store is None:
            return
        try:
            job = store.checkpoints.begin(topic, store.mark(topic.log.next_seq))
            store.make_folder()
            job.run(self._data.disk)
            store.checkpoints.end(job)
        finally:
            store.close()

    def drop(self, topic: CarriedTopic) -> None:
        """Raises OSError."""
        store = store_of(topic)
        if store is not None:
            store.close()

    def held(self, topic: CarriedTopic) -> Ranges:
        return extents_of(topic)
