"""Not giving out what is owed, for a while: another nsqd that has it may have given it to somebody. Pure.

What is withheld is owed as before. It neither waits nor counts in the depth; what is in flight of it stays
so, and does not wait when it comes back; what is deferred stays deferred, and does not wait when it is due.
No checkpoint knows of it: after a start it is withheld again, or not.
"""

from nsqd.engine.channel import Channel
from nsqd.engine.facts import within_all
from nsqd.engine.owed import Owed
from nsqd.engine.state import line_up
from nsqd.log.ranges import Ranges, merged, without


def withhold(owed: Owed, ranges: Ranges) -> None:
    """Let nothing of *ranges* wait until it is given out again."""
    ranges = merged(ranges)
    owed.withheld = merged([*owed.withheld, *ranges])
    owed.take_out_waiting(ranges)


def give_out(owed: Owed, ranges: Ranges) -> None:
    """Let what was withheld of *ranges* wait again, as far as it is owed."""
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
    """Withhold these, and nothing else any longer."""
    ranges = merged(ranges)
    withhold(owed, ranges)
    give_out(owed, without(owed.withheld, ranges))
