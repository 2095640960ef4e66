"""What tells a channel from another one of its name, on this nsqd and on all others.

A channel that is made again, or set to another place, begins again: what was finished on the one before says
nothing of it. Two nsqd that cannot talk may both make a channel, so the number is drawn, not counted.
"""

import random
from typing import Final

# Of a channel that was made by a version that did not draw one: all of them are taken for the same.
BEFORE: Final = 0
# Such a version counted from 1 in each life; that is no number to know a channel by.
_LEAST: Final = 1 << 62
_drawing: Final = random.SystemRandom()


def draw() -> int:
    """A number that no other channel has: 63 bits, and always as many digits."""
    return _LEAST | _drawing.getrandbits(62)


def lasting(noted: int) -> int:
    """The generation of a channel by what a checkpoint or a note says."""
    return noted if noted >= _LEAST else BEFORE
