"""Withholding owed messages for a while, because another nsqd that has them may have given them out. Pure.

Withheld messages are owed as before, but neither wait nor count in the depth. Those in flight stay in flight
and do not wait when they come back; deferred ones stay deferred and do not wait when they are due. No
checkpoint has them: after a start they are withheld again, or not.
"""

from nsqd.engine.channel import Channel
from nsqd.engine.facts import within_all
from nsqd.engine.owed import Owed
from nsqd.engine.state import line_up
from nsqd.log.ranges import Ranges, merged, without


def withhold(owed: Owed, ranges: Ranges) -> None:
    """Take messages in *ranges* out of the waiting ones until they are given out again."""
    ranges = merged(ranges)
    owed.withheld = merged([*owed.withheld, *ranges])
    owed.take_out_waiting(ranges)


def give_out(owed: Owed, ranges: Ranges) -> None:
    """Let messages in *ranges* that were withheld and are owed wait again."""
    freed = within_all(owed.withheld, merged(ranges))
    if not freed:
        return
    owed.withheld = without(owed.withheld, freed)
    elsewhere = [(start, end) for _, start, end in owed.deferred.runs()]
    if isinstance(owed, Channel):
        elsewhere += owed.in_flight.ranges() + owed.dying.ranges()
    back = without([part for start, end in freed for part in owed.owed(start, end)], merged(elsewhere))
    line_up(owed, back)


def withhold_only(owed: Owed, ranges: Ranges) -> None:
    """Withhold *ranges* and nothing else."""
    ranges = merged(ranges)
    withhold(owed, ranges)
    give_out(owed, without(owed.withheld, ranges))
