"""The order of those who hold one log, and what each of them gives out. Pure.

A log has a home, and keepers that the home appointed one after the other. The home is above its keepers, and
a later appointment is above an earlier one. The order is the same everywhere, so of all holders that reach
each other exactly one is the highest. Holders that do not reach each other each give out what they have:
twice rather than never.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from nsqd.log.ranges import Ranges, merged, without

# The number of an appointment, or HOME, which is above all.
Rank: TypeAlias = int
HOME: Final[Rank] = (1 << 64) - 1


def given_out(rank: Rank, held: Ranges, others: Iterable[tuple[Rank, Ranges]]) -> Ranges:
    """The part of *held* that a holder gives out: all that no higher one of the *others* has.

    *others* are the holders that it can reach, with what can be read there now. What they once had does not
    count: a lost end, or a damaged place, is among their numbers but not in their files.
    """
    higher = [pair for other, ranges in others if other > rank for pair in ranges]
    return without(held, merged(higher))
