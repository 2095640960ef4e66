"""Suspending pending messages for a while, because another nsqd that has them may have given them out. Pure.

Suspended messages are pending as before, but neither wait nor count in the depth. Those in flight stay in
flight and do not wait when they come back; deferred ones stay deferred and do not wait when they are due. No
checkpoint has them: after a start they are suspended again, or not.
"""

from nsqd.engine.backlog import Backlog
from nsqd.engine.facts import within_all
from nsqd.log.ranges import Ranges, merged, without


def suspend(backlog: Backlog, ranges: Ranges) -> None:
    """Take messages in *ranges* out of the waiting ones until they are delivered again."""
    ranges = merged(ranges)
    backlog.suspended = merged([*backlog.suspended, *ranges])
    backlog.pending.remove(ranges)


def resume(backlog: Backlog, ranges: Ranges) -> None:
    """Let messages in *ranges* that were suspended and are pending wait again."""
    freed = within_all(backlog.suspended, merged(ranges))
    if not freed:
        return
    backlog.suspended = without(backlog.suspended, freed)
    elsewhere = [(start, end) for _, start, end in backlog.deferred.runs()]
    elsewhere += backlog.in_flight.ranges() + backlog.dead_letter_queue.ranges()
    unfinished = [part for start, end in freed for part in backlog.unfinished(start, end)]
    backlog.enqueue(without(unfinished, merged(elsewhere)))


def suspend_only(backlog: Backlog, ranges: Ranges) -> None:
    """Withhold *ranges* and nothing else."""
    ranges = merged(ranges)
    suspend(backlog, ranges)
    resume(backlog, without(backlog.suspended, ranges))
