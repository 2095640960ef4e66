"""The keepers that a node has appointed in the place of homes that do not come back. No socket, no clock."""

from collections.abc import Callable

from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Fellow


class Successors:
    """The keepers that this node has appointed in the place of homes, noted beside the copies of each."""

    def __init__(self, copies: Copies, warn: Callable[[str], None]) -> None:
        self._copies = copies
        self._warn = warn
        self._files: dict[bytes, AppointmentsFile] = {}

    def file(self, identity: bytes) -> AppointmentsFile:
        """The file of one home, read if it was not yet. Raises OSError."""
        found = self._files.get(identity)
        if found is None:
            folder = self._copies.folder_of(identity)
            found = AppointmentsFile(self._copies.disk, folder, identity, self._warn)
            found.load()
            self._files[identity] = found
        return found

    def numbers(self, identity: bytes) -> set[int]:
        """The numbers of the keepers in the place of one home; none before its file was read.

        Former ones count if they ever answered: the others of those were appointed by the home.
        """
        found = self._files.get(identity)
        if found is None:
            return set()
        known = found.appointments
        return {one.number for one in (*known.current, *(one for one in known.former if one.identity))}

    def forget(self, identity: bytes) -> None:
        """Forget the file of a home: its folder is another node's, or was removed."""
        self._files.pop(identity, None)

    def of(self, identity: bytes) -> tuple[Fellow, ...]:
        """Keepers that may have copies: a home that comes back visits them. Raises OSError."""
        return self.file(identity).fellows()
