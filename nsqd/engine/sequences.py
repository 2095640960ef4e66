"""Which sequence numbers may be given to messages, so that none is given twice."""

from nsqd.log.frames import WallNs
from nsqd.log.ids import SEQUENCE_MASK, first_sequence


class Sequences:
    """The numbers of one node: what is reserved on disk, and what was used of it.

    A number at or above ``reserved`` must not be stored: after a crash it could be given again. Each topic
    counts for itself; a new one begins above all that any topic of this node has used, so that a topic that
    is deleted and made again has other numbers. The clock is a floor and no more.
    """

    __slots__ = ("reserved", "used")

    def __init__(self) -> None:
        self.reserved = SEQUENCE_MASK
        self.used = 0

    def first(self, wall_ns: WallNs) -> int:
        """Where the sequence of a new topic begins."""
        return max(self.used, first_sequence(wall_ns))

    def note_used(self, end: int) -> None:
        """Numbers below *end* were given out."""
        self.used = max(self.used, end)
