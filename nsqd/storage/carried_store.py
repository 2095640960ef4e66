"""The store of a carried log: files of another nsqd, which are read and never written to.

What this nsqd knows beyond these files, which is what it has finished of the log, is in its own checkpoints
in a folder beside them.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.log.cache import Cache
from nsqd.log.disk import Disk
from nsqd.log.frames import Block
from nsqd.log.gaps import Gap
from nsqd.log.open_files import OpenFiles
from nsqd.storage.slots import CheckpointSlots
from nsqd.storage.topic_store import TopicStore

# The folder of those checkpoints, in the folder of the topic.
HERE: Final = "here"
# Nothing is appended, so no segment grows.
_NO_SEGMENT: Final = 1 << 62


class CarriedStore(TopicStore):
    """See the module."""

    __slots__ = ("_has_here",)

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
        self.checkpoints = CheckpointSlots(disk, folder / HERE)
        self._has_here = False

    def make_folder(self) -> None:
        """Make the folder of this nsqd's own checkpoints. Raises OSError."""
        if not self._has_here:
            with contextlib.suppress(FileExistsError):
                self._disk.make_folder(self.folder / HERE)
            self._disk.sync_folder(self.folder)
            self._has_here = True

    def append(self, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:  # noqa: ARG002
        """Always raises OSError: nothing is written to the log of another nsqd."""
        raise OSError(30, "the log of another nsqd is not written to", str(self.folder))

    def begin_again_if_gone(self) -> None:
        """Do nothing: the log of another nsqd is not begun again here."""

    def _lost(self, gap: Gap) -> Gap:
        """Messages missing in a copy are no loss here: the home has them, or reports the loss."""
        return gap
