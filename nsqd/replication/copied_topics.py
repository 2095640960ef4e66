"""The topics of one connection at its keeper: the folder of each, by the number that the home gave it."""

from collections.abc import Iterator

from nsqd.replication.copies import Copies
from nsqd.replication.copy_folder import CopyFolder
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import (
    AnyFrame,
    Appends,
    Begin,
    CopiedTopic,
    CopyState,
    FilePart,
    Remove,
    Rename,
    Seal,
)


class CopiedTopics:
    """See the module. Applying a frame to a copy raises OSError, and `copy_folder.Mismatch`."""

    def __init__(self, copies: Copies, identity: bytes, appointment: int) -> None:
        self.appointment = appointment
        self.names: dict[int, str] = {}
        # The numbers of folders whose copies count, and of those whose copies are whole.
        self.linked: set[int] = set()
        self.filled: set[int] = set()
        self._copies = copies
        self._identity = identity
        self._folders: dict[int, CopyFolder] = {}
        # Numbers that were used on this connection.
        self._used: set[int] = set()

    def __iter__(self) -> Iterator[CopyFolder]:
        return iter(self._folders.values())

    def folder(self, number: int) -> CopyFolder:
        """The folder of that number. Raises BadFrame."""
        folder = self._folders.get(number)
        if folder is None:
            raise BadFrame(f"folder {number} has no topic")
        return folder

    def add(self, frame: CopiedTopic) -> CopyFolder:
        """Add a topic that the home names. Raises BadFrame."""
        if frame.folder in self._used:
            raise BadFrame(f"folder {frame.folder} has a topic already")
        if frame.name in self.names.values():
            raise BadFrame(f"topic {frame.name} has a folder already")
        folder = self._copies.folder(self._identity, self.appointment, frame.name)
        self._used.add(frame.folder)
        self._folders[frame.folder] = folder
        self.names[frame.folder] = frame.name
        return folder

    def delete(self, name: str) -> None:
        """Remove every copy of a topic. Raises OSError."""
        for number in [number for number, found in self.names.items() if found == name]:
            self._folders[number].close()
            del self._folders[number], self.names[number]
            self.linked.discard(number)
            self.filled.discard(number)
        self._copies.delete(self._identity, name)

    def begin(self, begin: Begin) -> None:
        """Go on with the copies of that appointment. Raises OSError."""
        if begin.appointment > self.appointment:
            left = set(begin.left)
            for number, folder in list(self._folders.items()):
                name = self.names[number]
                if number in left:
                    folder.close()
                    moved = self._copies.folder(self._identity, begin.appointment, name)
                    moved.load()
                else:
                    moved = self._copies.move(folder, self._identity, begin.appointment, name)
                    moved.loaded = True
                self._folders[number] = moved
        self._copies.begin(self._identity, begin.appointment)
        self.appointment = begin.appointment

    def write(self, frame: AnyFrame) -> None:
        """Apply a frame to one copy. Raises OSError, BadFrame and Mismatch."""
        if isinstance(frame, Appends):
            self.folder(frame.folder).append(frame.file, frame.offset, frame.data)
        elif isinstance(frame, FilePart):
            self.folder(frame.folder).part(frame.file, frame.offset, frame.check, frame.data)
        elif isinstance(frame, Rename):
            self.folder(frame.folder).rename(frame.file, frame.name)
        elif isinstance(frame, Remove):
            self.folder(frame.folder).remove(frame.file)
        elif isinstance(frame, Seal):
            self.folder(frame.folder).seal(frame.file, frame.size)
        elif isinstance(frame, CopyState):
            self.folder(frame.folder)
            (self.linked if frame.state == CopyState.LINKED else self.filled).add(frame.folder)

    def close(self) -> None:
        """The connection is gone: close the folders."""
        for folder in self._folders.values():
            folder.close()
