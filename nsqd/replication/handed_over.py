"""The note of a home that its log was handed over: from then on another nsqd has the log permanently.

The note is in the folder of that log: the data path, or the folder of another home's copies here. It is
written when the taker has the whole log on its disk, and before the taker hears of it. So there is no moment
in which both give the log out, and none in which nobody would: a taker that has not heard gives it out as a
keeper does whose home is gone.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.replication import appointing, for_good
from nsqd.storage.topic_store import DELETED_SUFFIX, FOLDER_SUFFIX

FILE_NAME: Final = "handed-over.json"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Which data path's log was handed over, to whom, and whether the taker has said that it has it."""

    identity: str
    to: str
    taker: str
    appointment: int
    confirmed: bool = False


class DamagedHandOver(Exception):
    """The note cannot be read; the text is one sentence."""


def load(disk: Disk, folder: Path) -> HandedOver | None:
    """The note in a folder; None when there is none. Raises OSError and DamagedHandOver."""
    path = folder / FILE_NAME
    try:
        value = json.loads(disk.read_file(path))
        return HandedOver(
            str(value["identity"]),
            str(value["to"]),
            str(value["taker"]),
            int(value["appointment"]),
            bool(value["confirmed"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedHandOver(
            f"{path} is damaged, so it is not known whose the messages are: {error}"
        ) from error


def save(disk: Disk, folder: Path, note: HandedOver) -> None:
    """Write the note, durably. Raises OSError."""
    value = {
        "identity": note.identity,
        "to": note.to,
        "taker": note.taker,
        "appointment": note.appointment,
        "confirmed": note.confirmed,
    }
    disk.replace(folder / FILE_NAME, json.dumps(value, indent=1).encode() + b"\n", durable=True)
    disk.sync_folder(folder)


def remove(disk: Disk, folder: Path) -> None:
    """Remove the note, durably. Raises OSError."""
    disk.remove(folder / FILE_NAME)
    disk.sync_folder(folder)


def forget_copies(disk: Disk, folder: Path) -> None:
    """Remove what tells of the hand-over from the folder of another's copies. Raises OSError.

    The note itself is removed last: until then a start finds that the copies are another's.
    """
    for name in (for_good.FILE_NAME, appointing.FILE_NAME):
        disk.remove(folder / name)
    disk.sync_folder(folder)
    remove(disk, folder)


def put_aside(disk: Disk, data_path: Path, warn: Callable[[str], None]) -> int:
    """Rename the folders of topics that were handed over, like those of deleted ones: no start finds them.

    Returns how many. Raises OSError.
    """
    names = disk.names(data_path)
    count = 0
    for name in names:
        if not name.endswith(FOLDER_SUFFIX):
            continue
        number = 0
        while f"{name}.{number}{DELETED_SUFFIX}" in names:
            number += 1
        disk.rename(data_path / name, data_path / f"{name}.{number}{DELETED_SUFFIX}")
        count += 1
    if count:
        disk.sync_folder(data_path)
        warn(f"{count} topics of {data_path} were handed over to another nsqd, and are removed here")
    return count
