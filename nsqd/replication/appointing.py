"""The file in which a home notes its appointments, before a keeper hears of them.

So no number is given twice, whatever the home forgets: of two copies of one log, the later appointment is the
higher everywhere.
"""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.replication.choosing import Appointed, Appointments
from nsqd.replication.frames import Fellow

FILE_NAME: Final = "appointments.json"


class AppointmentsFile:
    """The file of one data path, whose identity it names: a copied data path has appointed nobody yet."""

    def __init__(self, disk: Disk, data_path: Path, identity: bytes, warn: Callable[[str], None]) -> None:
        self.appointments = Appointments()
        self._disk = disk
        self._path = data_path / FILE_NAME
        self._identity = identity.hex()
        self._warn = warn

    def load(self) -> None:
        """Read the file. Raises OSError. Warns of a damaged one: keepers then say which numbers they know."""
        try:
            content = self._disk.read_file(self._path)
        except FileNotFoundError:
            return
        try:
            value = json.loads(content)
            if isinstance(value, dict) and value.get("identity") != self._identity:
                return
            self.appointments = Appointments.from_json(value)
        except ValueError as error:
            self._warn(f"cannot use {self._path}, keepers are appointed anew: {error}")

    def save(self) -> None:
        """Write the file, durably. Raises OSError."""
        value = {"identity": self._identity, **self.appointments.to_json()}
        self._disk.replace(self._path, json.dumps(value, indent=1).encode() + b"\n", durable=True)
        self._disk.sync_folder(self._path.parent)

    @contextmanager
    def change(self) -> Iterator[Appointments]:
        """Change the appointments, durably. Raises OSError, and then nothing has changed.

        Otherwise the next caller would take for durable what is only in memory.
        """
        known = self.appointments
        before = copy.deepcopy(known)
        try:
            yield known
            if known != before:
                self.save()
        except BaseException:
            known.last, known.current, known.former = before.last, before.current, before.former
            raise

    def fellows(self) -> tuple[Fellow, ...]:
        """All present and former keepers, which may have copies."""
        known = self.appointments
        return tuple(Fellow(one.number, one.address) for one in (*known.current, *known.former))

    def again(self, old: Appointed, above: int) -> Appointed:
        """The next number, made durable, for a keeper whose copy stays as it is. Raises OSError."""
        with self.change() as known:
            return known.again(old, above)
