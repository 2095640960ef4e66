"""One topic of a log that is streamed to this node: its folder, and frames that wait for the folder."""

from typing import TypeAlias

from nsqd.replication.copy_folder import CopyFolder
from nsqd.replication.frames import Appends, FilePart, Remove, Rename, Seal

FileFrame: TypeAlias = Appends | FilePart | Rename | Remove | Seal


class IncomingTopic:
    """See the module."""

    __slots__ = ("folder", "is_ready", "name", "number", "waiting")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        # None until it is known in which copy it is.
        self.folder: CopyFolder | None = None
        # The folder exists, so frames are applied immediately.
        self.is_ready = False
        self.waiting: list[FileFrame] = []

    def apply(self, frame: FileFrame) -> None:
        """Apply a frame to the files. Raises OSError and Mismatch."""
        folder = self.folder
        if folder is None:
            raise AssertionError(f"topic {self.name} has no folder")
        if isinstance(frame, Appends):
            folder.append(frame.file, frame.offset, frame.data)
        elif isinstance(frame, FilePart):
            folder.part(frame.file, frame.offset, frame.check, frame.data)
        elif isinstance(frame, Rename):
            folder.rename(frame.file, frame.name)
        elif isinstance(frame, Remove):
            folder.remove(frame.file)
        else:
            folder.seal(frame.file, frame.size)

    def take_waiting(self) -> list[FileFrame]:
        """The frames that have waited for the folder, in order."""
        waiting, self.waiting = self.waiting, []
        return waiting


def size_of(frame: FileFrame) -> int:
    """How many bytes of memory a frame takes, about."""
    data = frame.data if isinstance(frame, Appends | FilePart) else b""
    return len(data) + 256
