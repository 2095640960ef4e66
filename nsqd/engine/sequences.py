"""Which sequence numbers may be given to messages, so that none is given twice."""

from nsqd.log.frames import WallNs
from nsqd.log.ids import SEQUENCE_MASK, first_sequence


class Sequences:
    """The numbers of one node: those that are reserved on disk, and those that were used.

    A number at or above ``reserved`` must not be stored: after a crash it could be given again. Each topic
    counts for itself. A new topic begins above all numbers that any topic of this node has used, so that a
    topic that is deleted and made again gets other numbers. The clock is only a lower limit.
    """

    __slots__ = ("reserved", "used")

    def __init__(self) -> None:
        self.reserved = SEQUENCE_MASK
        self.used = 0

    def first(self, wall_ns: WallNs) -> int:
        """The sequence at which a new topic begins."""
        return max(self.used, first_sequence(wall_ns))

    def note_used(self, end: int) -> None:
        """Numbers below *end* were delivered."""
        self.used = max(self.used, end)
