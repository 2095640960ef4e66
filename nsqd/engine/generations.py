"""What tells a channel from another one of its name, on this nsqd and on all others. Pure.

A channel that is made again, or set to another place, begins again: what was finished on the one before says
nothing of it. Two nsqd that cannot talk may both make a channel, so a counter would not do.
"""

from typing import Final

from xxhash import xxh3_64_intdigest

# Of a channel that was made by a version that did not draw one: all of them are taken for the same.
BEFORE: Final = 0
# Such a version counted from 1 in each life; that is no number to know a channel by.
_LEAST: Final = 1 << 62


def draw(node_id: int, topic: str, channel: str, next_seq: int, count: int) -> int:
    """A number that no other channel has: 63 bits, and always as many digits.

    A topic's *next_seq* is higher in each life than in all before, and *count* is how many it has drawn in
    this one.
    """
    drawn_from = f"{node_id} {topic} {channel} {next_seq} {count}"
    return _LEAST | xxh3_64_intdigest(drawn_from.encode()) >> 2


def lasting(noted: int) -> int:
    """The generation of a channel by what a checkpoint or a note says."""
    return noted if noted >= _LEAST else BEFORE
