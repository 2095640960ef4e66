"""What a log answers where it has no messages to give."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

# The end of what a reader wants that goes on for as long as there is anything.
EVERYTHING: Final = 1 << 64


class Why(Enum):
    """Why there is nothing between two sequences."""

    # The bytes on disk are not those that were written.
    DAMAGED = "damaged"
    # The file is gone.
    REMOVED = "removed"
    # Everybody had finished them: a sparse file was made smaller.
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
        """Whether messages that somebody may be owed are gone."""
        return self.why in {Why.DAMAGED, Why.REMOVED}

    def __str__(self) -> str:
        return f"{self.start:x}..{self.end:x} {self.why.value}"


class CannotRead(Exception):
    """What is stored cannot be read just now; the text is the reason. It is not lost: try again later."""
