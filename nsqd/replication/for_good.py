"""The note of a keeper that a log was handed over to it: its home is gone permanently.

From then on this node gives out the copies of that data path, at once and after each start. A home that comes
back anyway, as a backup of its data path may, is refused. The note is durable before the home hears that it
was written, and it outlasts the copies: a log that was handed over is not served by its home again, whatever
became of it here.

The log may have been handed over by a keeper, for a home that was away. That home does not know of it: when
it comes, it gets its log back, and the note is removed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.replication.durable import make_folders

FILE_NAME: Final = "for-good.json"


@dataclass(frozen=True, slots=True)
class ForGood:
    """Which copy was taken, from which address, and when by the wall clock."""

    appointment: int
    home: str = ""
    taken_ns: int = 0
    # The home was away, and one of its keepers has handed the log over.
    by_keeper: bool = False


def load(disk: Disk, folder: Path) -> ForGood | None:
    """The note in the folder of a home's copies; None when there is none. Raises OSError.

    A damaged note also means that the log was handed over, because it is written for nothing else.
    """
    try:
        content = disk.read_file(folder / FILE_NAME)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(content)
        return ForGood(
            int(value["appointment"]),
            str(value["home"]),
            int(value["taken_ns"]),
            bool(value.get("by_keeper")),
        )
    except (ValueError, TypeError, KeyError):
        return ForGood(0)


def save(disk: Disk, folder: Path, note: ForGood) -> None:
    """Write the note, durably. Raises OSError."""
    make_folders(disk, folder)
    value = {
        "appointment": note.appointment,
        "home": note.home,
        "taken_ns": note.taken_ns,
        "by_keeper": note.by_keeper,
    }
    disk.replace(folder / FILE_NAME, json.dumps(value).encode() + b"\n", durable=True)
    disk.sync_folder(folder)


def remove(disk: Disk, folder: Path) -> None:
    """Remove the note, durably. Raises OSError."""
    disk.remove(folder / FILE_NAME)
    disk.sync_folder(folder)
