"""Sums the statistics of all nsqds, finds problems, and passes each round to its followers."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.members import Member
from nsqadmin.collecting.membership import Membership
from nsqadmin.collecting.views import Round
from nsqadmin.collecting.work import Work
from nsqadmin.options import OptionsNow
from nsqadmin.stats.activity import LastConsumers
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.limits import limited, parse_limit
from nsqadmin.stats.problem_tracker import ProblemTracker, Unjudged
from nsqadmin.stats.problems import (
    FOUND_S,
    NO_CONSUMERS,
    REACH,
    Problem,
    ProblemKey,
    problem_of_missing,
    problem_of_no_nodes,
    problem_of_returned,
    problems_of_lookupds,
    worst_first,
)
from nsqadmin.stats.sums import Share, add_up


class Adder:
    """The totals of the cluster at the last round, and the problems."""

    def __init__(self, options: OptionsNow, work: Work, membership: Membership) -> None:
        self._work = work
        self._membership = membership
        self.sum = ClusterSum({})
        # The problems, the worst first.
        self.problems: tuple[Problem, ...] = ()
        # Called with each round, one after the other.
        self.followers: list[Callable[[Round], Awaitable[None]]] = []
        # Processor time of the last sums.
        self.cost_s = 0.0
        self._last_problems: dict[ProblemKey, Problem] = {}
        # Topics that were changed here, and when.
        self._changed: dict[str, int] = {}
        # Nodes that were dismissed since the current round began.
        self._dismissed: set[str] = set()
        self._tracker = ProblemTracker()
        self._limits = [parse_limit(text) for text in options().alert_limits]

    async def add_up(self) -> None:
        """Sum all statistics once and notify the followers."""
        looks = [
            (member.snapshot, member.tombstoned, member.address)
            for member in self._membership.members.values()
            if member.answers and member.snapshot is not None
        ]
        added = {address: look for look, _, address in looks}
        registered = self._membership.registered_topics
        now = instant()
        began_ns, now_s = now
        self._dismissed.clear()
        # Evaluated before the thread starts: newer answers of nodes belong to the next round, as their sums.
        of_nodes, unjudged = self._node_problems(now), self._unjudged()

        def work() -> tuple[ClusterSum, float]:
            began = time.thread_time()
            shares: dict[str, list[Share]] = {}
            for look, tombstoned, address in looks:
                samples, at_ns, later = look.counts, look.at_ns, look.later_ns
                for name, stats in look.topics.items():
                    if name not in tombstoned:
                        share = stats, samples, later.get(name, at_ns), address
                        shares.setdefault(name, []).append(share)
            topics = {name: add_up(name, found, now_s) for name, found in shares.items()}
            total = ClusterSum(topics, registered - topics.keys())
            # Computed here, so that no reader has to wait for them.
            _ = total.rows, total.problems, total.totals
            return total, time.thread_time() - began

        total, self.cost_s = await self._work.in_thread(work)
        for member in self._membership.members.values():
            member.added = added.get(member.address)
        of_nodes = [one for one in of_nodes if not self._is_dismissed(one)]
        problems = [*of_nodes, *self._of_consumers(total.problems, now)]
        found = limited(total.topics.values(), problems, self._limits)
        self.problems = tuple(worst_first(self._tracker.note(found, now, unjudged=unjudged)))
        total.show(self.problems)
        self.sum = self._with_changed(total, began_ns)
        await self._notify_followers(now)

    def restore(self, problems: Iterable[Problem]) -> None:
        """Restore the *problems* of an earlier run."""
        found = list(problems)
        self._tracker.restore(found, instant())
        self._last_problems = {one.key: one for one in found}

    def _unjudged(self) -> Unjudged:
        """Return a function that names the unreachable nsqd of a problem, if any."""
        membership = self._membership
        owners = membership.owners
        silent = [
            one
            for one in (*membership.members.values(), *membership.unlisted.values())
            if one.snapshot is not None and one.error is not None and not owners.get(one.producer.identity)
        ]

        def unjudged(problem: Problem) -> str:
            if problem.kind in REACH:
                return ""
            for one in silent:
                if (
                    one.holds(problem.topic, problem.channel)
                    if problem.topic
                    else problem.node == one.address
                ):
                    return f"nsqd {one.address} does not answer"
            return ""

        return unjudged

    def changed(self, topic: str) -> None:
        """Show *topic* with the newest statistics of its nodes, because it was just changed."""
        self._changed[topic] = time.monotonic_ns()
        self.sum = self._with_changed(self.sum, 0)

    def dismissed(self, node: str) -> None:
        """Stop showing that *node* is down."""
        self._dismissed.add(node)
        self.problems = tuple(one for one in self.problems if not self._is_dismissed(one))

    def _is_dismissed(self, problem: Problem) -> bool:
        return problem.kind == "down" and problem.node in self._dismissed

    async def _notify_followers(self, now: Instant) -> None:
        """Pass this round on to the followers."""
        known, self._last_problems = self._last_problems, {one.key: one for one in self.problems}
        this = Round(
            now,
            self.sum,
            tuple(self._membership.everyone()),
            self.problems,
            tuple(one for key, one in self._last_problems.items() if key not in known),
            tuple(one for key, one in known.items() if key not in self._last_problems),
        )
        for follow in self.followers:
            await follow(this)

    def _with_changed(self, total: ClusterSum, since_ns: int) -> ClusterSum:
        """Return *total* with newer statistics for the topics that were changed later than *since_ns*."""
        for topic, changed_ns in list(self._changed.items()):
            if changed_ns < since_ns:
                del self._changed[topic]
                continue
            members = self._membership.members.values()
            shares = _shares(members, topic)
            for member in members:
                if member.added is not None and member.snapshot is not None:
                    member.added = member.added.with_topic_of(member.snapshot, topic)
            newer = add_up(topic, shares, time.time()) if shares else None
            now = instant()
            problems = (
                limited([newer], self._of_consumers(newer.problems, now), self._limits) if newer else ()
            )
            found = self._tracker.note(problems, now, topic, self._unjudged())
            if newer is not None:
                newer.show(found)
            self.problems = tuple(
                worst_first([*(one for one in self.problems if one.topic != topic), *found])
            )
            idle = set(total.idle) - {topic}
            if newer is None and topic in self._membership.registered_topics:
                idle.add(topic)
            total = total.changed(topic, newer, idle)
        return total

    def _of_consumers(self, problems: Iterable[Problem], now: Instant) -> list[Problem]:
        """Add the last consumers to *problems*; a returned node has one problem, not one for each channel.

        Problems that were known before the node was back stay.
        """
        found = [one for one in problems if one.kind != NO_CONSUMERS]
        bare = [one for one in problems if one.kind == NO_CONSUMERS]
        if not bare:
            return found
        last: dict[tuple[str, str], LastConsumers] = {}
        unread: dict[tuple[str, str], dict[str, int]] = {}
        for node in self._membership.members.values():
            for key, seen in node.pace.consumers.items():
                if key not in last or seen.at_s > last[key].at_s:
                    last[key] = seen
            if node.added is not None and node.returned and now.since(node.returned) < FOUND_S:
                for key, depth in node.added.without_consumers():
                    unread.setdefault(key, {})[node.address] = depth
        returned: dict[str, list[int]] = {}
        for one in bare:
            depths = unread.get((one.topic, one.channel), {})
            if sum(depths.values()) == one.messages and one.key not in self._last_problems:
                for address, depth in depths.items():
                    returned.setdefault(address, []).append(depth)
            else:
                found.append(replace(one, consumers=last.get((one.topic, one.channel))))
        return [*found, *(problem_of_returned(*one) for one in returned.items())]

    def _node_problems(self, now: Instant) -> list[Problem]:
        """Evaluate all nodes: listed ones, unlisted ones that answer, and down ones."""
        membership = self._membership
        membership.everyone()
        members = membership.members.values()
        found = [problem for member in members for problem in member.problems]
        if not members and not membership.unlisted:
            found.append(problem_of_no_nodes())
        answering = set()
        for member in membership.unlisted.values():
            if member.answers:
                answering.add(member.address)
                found += member.problems
        found += [
            problem_of_missing(one, now) for one in membership.missed(now) if one.address not in answering
        ]
        registers = membership.registers.values()
        silent = [(one.address, one.error.reason) for one in registers if one.error is not None]
        return [*found, *problems_of_lookupds(silent, len(registers))]


def _shares(members: Iterable[Member], topic: str) -> list[Share]:
    return [
        member.snapshot.share(topic, member.address)
        for member in members
        if member.answers
        and member.snapshot
        and topic in member.snapshot.topics
        and topic not in member.tombstoned
    ]
