"""The start of a node on a copy of another node's data path: the copied log becomes a promoted copy.

The node gets an identity of its own when the data path is loaded. The node that was copied may be alive. Then
the two agree as any owners of one log do.
"""

from pathlib import Path

from nsqd.log.disk import Disk
from nsqd.replication.copies import Copies
from nsqd.replication.node_record import FILE_NAME, NodeRecord, NodeRecordFile
from nsqd.storage.reservation import Reservation
from nsqd.storage.topic_store import FOLDER_SUFFIX


def promote_copied_log(disk: Disk, data_path: Path, reservation: Reservation) -> int:
    """Move the topics of a copied data path into a promoted copy; returns how many there were.

    To be called before the data path is loaded. After a crash between two steps the next start moves the
    other topics into one more copy. Raises OSError, DamagedRecord and NewerVersion.
    """
    origin = reservation.copied_from()
    if not origin:
        return 0
    names = [name for name in disk.names(data_path) if name.endswith(FOLDER_SUFFIX)]
    if names:
        before = NodeRecordFile.load(disk, data_path, origin).record
        _move(Copies(disk, data_path), before, names)
    # Its incarnations, replicas and deletions are those of the other node.
    disk.remove(data_path / FILE_NAME)
    disk.sync_folder(data_path)
    return len(names)


def _move(copies: Copies, before: NodeRecord, names: list[str]) -> None:
    disk, data_path = copies.disk, copies.data_path
    copies.scan()
    record = copies.new(before.identity, before.identity)
    record.epoch, record.seen = before.epoch, before.highest_epoch
    record.holders = {one.identity: one.address for one in before.holders} | {before.identity: ""}
    copies.create(record)
    copies.promote(record, before.epoch)
    for name in names:
        disk.rename(data_path / name, record.path / name)
    disk.sync_folder(record.path)
    disk.sync_folder(data_path)
