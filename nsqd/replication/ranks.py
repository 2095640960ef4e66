"""Who stands above whom of those who hold one log, and what each of them gives out. Pure.

A log has a home, and keepers that the home appointed one after the other. The home is above its keepers, and
a later appointment above an earlier one. The order is the same wherever it is looked at, so of any who reach
each other one is the highest. Where they cannot, each gives out what it has: twice rather than never.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from nsqd.log.ranges import Ranges, merged, without

# An appointment's number, or that of the home, which is above all.
Rank: TypeAlias = int
HOME: Final[Rank] = (1 << 64) - 1
FIRST_APPOINTMENT: Final[Rank] = 1


def given_out(rank: Rank, held: Ranges, others: Iterable[tuple[Rank, Ranges]]) -> Ranges:
    """What a holder gives out of what it *held*: what no higher one of the *others* has, which it can reach.

    *others* are said with what can be read there now. What they once had is no reason to keep silent: a lost
    tail, or a damaged place, is in their numbers, and not in their files.
    """
    higher = [pair for other, ranges in others if other > rank for pair in ranges]
    return without(held, merged(higher))


def kept_back(rank: Rank, held: Ranges, others: Iterable[tuple[Rank, Ranges]]) -> Ranges:
    """What of *held* is left to others: neither given out here, nor said to be finished."""
    return without(held, given_out(rank, held, others))


def may_go(owed: Ranges, held_by_home: Ranges, held_by_keeper: Ranges) -> bool:
    """Whether an older copy may be removed: all that its channels owe the home has, and today's keeper.

    Asked when it has met both and learned from both what is finished. That today's keeper has all of the
    home's is not enough: what the home has lost may be in the older copy alone.
    """
    return not without(owed, held_by_home) and not without(owed, held_by_keeper)
