"""Gaps: results of a read where the log has no messages."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

# The *end* of a read without an upper bound.
EVERYTHING: Final = 1 << 64


class Why(Enum):
    """The reason for a gap between two sequences."""

    # The bytes on disk are not those that were written.
    DAMAGED = "damaged"
    # The file was removed.
    REMOVED = "removed"
    # All channels had finished them, and compaction removed them.
    COMPACTED = "compacted"
    # The numbers were never given to messages.
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Gap:
    """No message of ``start <= seq < end`` can be read, now or later."""

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
