"""``nsqd-data forget-node`` and ``new-identity``: correct the nodes that a stopped data path knows."""

from dataclasses import replace
from pathlib import Path

from nsqd.data.opened import DataPathRefused
from nsqd.engine.numbering import Sequences
from nsqd.log.disk import Disk
from nsqd.log.layout import NewerVersion
from nsqd.replication.copies import Copies
from nsqd.replication.records import DamagedRecord, NodeRecord, NodeRecordFile
from nsqd.storage import reservation
from nsqd.storage.lock import lock_data_path


def forget_node(path: Path, identity: bytes) -> list[str]:
    """Forget a node that does not come back; returns where it was known, in words.

    No log waits for it any more. If it comes back, it is known again. Raises DataPathRefused, and
    DataPathLocked.
    """
    disk = Disk()
    lock = lock_data_path(path)
    try:
        return _forget(disk, path, identity)
    except (OSError, DamagedRecord, NewerVersion) as error:
        raise DataPathRefused(str(error)) from error
    finally:
        disk.close(lock)


def _forget(disk: Disk, path: Path, identity: bytes) -> list[str]:
    """Raises OSError, DamagedRecord and NewerVersion."""
    found = []
    named = reservation.Reservation(disk, path, Sequences()).named()
    file = NodeRecordFile.load(disk, path, named)
    record = _without(file.record, identity)
    if record != file.record:
        file.save(record)
        found.append("the own log")
    copies = Copies(disk, path)
    for copy in copies.scan():
        if copy.holders.pop(identity, None) is not None:
            copies.save(copy)
            found.append(f"copy {copy.number} of {copy.origin.hex()}")
    return found


def _without(record: NodeRecord, identity: bytes) -> NodeRecord:
    replicas = tuple(one for one in record.replicas if one.identity != identity)
    return replace(record.without_holder(identity), replicas=replicas)


def new_identity(path: Path) -> None:
    """Let the next start draw a new identity, as for a copy of a data path.

    It is for the second of two snapshots of one disk. Messages here become a promoted copy of the old
    identity's log. Raises DataPathRefused, and DataPathLocked.
    """
    disk = Disk()
    lock = lock_data_path(path)
    file = path / reservation.FILE_NAME
    try:
        # The file says its inode: in another file the same content is that of a copied data path.
        disk.replace(file, disk.read_file(file), durable=True)
        disk.sync_folder(path)
    except FileNotFoundError as error:
        raise DataPathRefused(f"{path} has no identity yet: no nsqd has started there") from error
    except OSError as error:
        raise DataPathRefused(f"{file}: {error}") from error
    finally:
        disk.close(lock)
