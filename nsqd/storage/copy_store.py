"""The store of a copy of another nsqd's log: its log files are read and never written to.

What this nsqd finishes of the log is in the checkpoints beside them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.log.cache import Cache
from nsqd.log.disk import Disk
from nsqd.log.frames import Block
from nsqd.log.gaps import Gap
from nsqd.log.open_files import OpenFiles
from nsqd.storage.topic_store import TopicStore

# Nothing is appended, so no segment grows.
_NO_SEGMENT: Final = 1 << 62


class CopyStore(TopicStore):
    """See the module."""

    __slots__ = ()

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        warn: Callable[[str], None],
        cache: Cache | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """*warn* is called with a sentence about each damage that was found."""
        super().__init__(disk, folder, _NO_SEGMENT, warn, cache=cache, open_files=open_files)

    def move_to(self, folder: Path) -> None:
        """The folder of the topic was renamed."""
        self.folder = folder
        for segment in self.segments:
            segment.folder = folder
        self.checkpoints.move_to(folder)

    def make_folder(self) -> None:
        """Do nothing: a copy has a folder."""

    def append(self, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:  # noqa: ARG002
        """Always raises OSError: nothing is written to the log of another nsqd."""
        raise OSError(30, "the log of another nsqd is not written to", str(self.folder))

    def begin_again_if_gone(self) -> None:
        """Do nothing: the log of another nsqd is not begun again here."""

    def _lost(self, gap: Gap) -> Gap:
        """Messages missing in a copy are no loss here: the origin has them, or reports the loss."""
        return gap
