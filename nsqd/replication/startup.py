"""A data path before it is loaded: copies of a development version, transferred logs, a copied data path."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.replication.copies import Copies
from nsqd.replication.records import FILE_NAME, NodeRecord, NodeRecordFile
from nsqd.storage.reservation import Reservation
from nsqd.storage.topic_log import DELETED_SUFFIX, FOLDER_SUFFIX

# Files of a development version that had other copies, and its folder of copies.
_OLD_FILES: Final = ("appointments.json", "for-good.json", "handed-over.json")
_OLD_FOLDER: Final = "carried"


class OldCopies(Exception):
    """The data path has copies of a development version; the text is one sentence."""


def refuse_old_copies(disk: Disk, data_path: Path) -> None:
    """Refuse a data path with copies of a development version. Raises OldCopies and OSError."""
    names = disk.names(data_path)
    if _OLD_FOLDER in names and disk.names(data_path / _OLD_FOLDER):
        raise OldCopies(
            f"copies of an earlier development version are in {_OLD_FOLDER}/: start that version,"
            " let /carried become empty, or remove the folder"
        )
    found = [name for name in _OLD_FILES if name in names]
    if found:
        raise OldCopies(
            f"copies of an earlier development version are named in {', '.join(found)}: start that version,"
            f" let /carried become empty, or remove the file{'s' * (len(found) > 1)}"
        )


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
