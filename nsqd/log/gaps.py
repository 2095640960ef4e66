"""What a log answers where it has no messages to give."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

# The *end* for a reader that wants everything there is.
EVERYTHING: Final = 1 << 64


class Why(Enum):
    """Why there is nothing between two sequences."""

    # The bytes on disk are not those that were written.
    DAMAGED = "damaged"
    # The file was removed.
    REMOVED = "removed"
    # Everybody had finished them, and compaction left them out.
    COMPACTED = "compacted"
    # The numbers were never given to messages.
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Gap:
    """There is nothing to read in ``start <= seq < end``, and never will be."""

    start: int
    end: int
    why: Why

    @property
    def is_loss(self) -> bool:
        """Whether messages that a channel may have to deliver are lost."""
        return self.why in {Why.DAMAGED, Why.REMOVED}

    def __str__(self) -> str:
        return f"{self.start:x}..{self.end:x} {self.why.value}"


class CannotRead(Exception):
    """Stored messages cannot be read just now; the text is the reason. They are not lost: try again later."""
