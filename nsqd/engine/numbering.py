"""Numbers that are given once: sequences to messages, generations to channels. Pure.

A generation tells a channel from earlier ones of its name. A channel that is made again, or set to another
position, begins again: what was finished on the one before says nothing about it. Two nsqd that cannot reach
each other may both do this, so a counter is not enough. A channel that is new to a log has the same
generation in all copies of the log, so that the copies merge what was finished on it.
"""

from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log.frames import WallNs
from nsqd.log.ids import SEQUENCE_MASK, first_sequence

# Set in each generation, so that all of them have the same number of digits.
_MIN_GENERATION: Final = 1 << 62


def draw_generation(node_id: int, topic: str, channel: str, next_seq: int, count: int) -> int:
    """A number that no other channel has: 63 bits, always with the same number of digits.

    *next_seq* of the topic is higher after each start than before it; *count* is how many generations the
    topic has drawn since the start.
    """
    drawn_from = f"{node_id} {topic} {channel} {next_seq} {count}"
    return _MIN_GENERATION | xxh3_64_intdigest(drawn_from.encode()) >> 2


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
