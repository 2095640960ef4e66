"""Generations: numbers that tell a channel from all others of its name, on this nsqd and elsewhere. Pure.

A channel that is made again, or set to another position, begins again: what was finished on the one before
says nothing about it. Two nsqd that cannot reach each other may both make a channel, so a counter is not
enough.
"""

from typing import Final

from xxhash import xxh3_64_intdigest

# The generation of channels that were made by a version that did not draw one: all of them count as the same.
BEFORE: Final = 0
# That version counted from 1 in each life; such a number does not identify a channel.
_LEAST: Final = 1 << 62


def draw(node_id: int, topic: str, channel: str, next_seq: int, count: int) -> int:
    """A number that no other channel has: 63 bits, always with the same number of digits.

    *next_seq* of the topic is higher in each life than in all earlier ones; *count* is how many generations
    the topic has drawn in this life.
    """
    drawn_from = f"{node_id} {topic} {channel} {next_seq} {count}"
    return _LEAST | xxh3_64_intdigest(drawn_from.encode()) >> 2


def lasting(noted: int) -> int:
    """The generation that a checkpoint or a note states; BEFORE if it was not drawn."""
    return noted if noted >= _LEAST else BEFORE
