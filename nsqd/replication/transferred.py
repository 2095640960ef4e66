"""The start of a node whose logs were transferred to other nodes: no message here is delivered again."""

from dataclasses import replace
from pathlib import Path

from nsqd.log.disk import Disk
from nsqd.replication.node_record import NodeRecordFile
from nsqd.storage.topic_store import DELETED_SUFFIX, FOLDER_SUFFIX


def remove_transferred(disk: Disk, data_path: Path, identity: bytes) -> int:
    """Rename the folders of transferred topics, so that they are removed; returns how many there were.

    Call it before the data path is loaded. The next start completes what a crash has interrupted.

    Raises OSError and DamagedRecord.
    """
    file = NodeRecordFile.load(disk, data_path, identity)
    if not file.record.is_transferred:
        return 0
    names = [name for name in disk.names(data_path) if name.endswith(FOLDER_SUFFIX)]
    before = set(disk.names(data_path))
    for name in names:
        number = 0
        while (deleted := f"{name}.{number}.transferred{DELETED_SUFFIX}") in before:
            # An earlier one is not removed yet.
            number += 1
        disk.rename(data_path / name, data_path / deleted)
    disk.sync_folder(data_path)
    file.save(replace(file.record, is_transferred=False))
    return len(names)
