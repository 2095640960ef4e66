"""Adds up the figures of all nsqds, judges them, and passes each round on to its followers."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.members import Member
from nsqadmin.collecting.membership import Membership
from nsqadmin.collecting.views import Round
from nsqadmin.collecting.work import Work
from nsqadmin.figures.activity import LastConsumers
from nsqadmin.figures.attention import (
    FOUND_S,
    NO_CONSUMERS,
    REACH,
    Concern,
    ConcernKey,
    of_lookupds,
    of_missing,
    of_no_nodes,
    of_returned,
    worst_first,
)
from nsqadmin.figures.cluster_sum import ClusterSum
from nsqadmin.figures.instant import Instant
from nsqadmin.figures.limits import limited, parse_limit
from nsqadmin.figures.sums import Share, add_up
from nsqadmin.figures.troubles import TroubleBook, Unjudged
from nsqadmin.options import OptionsNow


class Adder:
    """The cluster added up as it was a moment ago, and the troubles that need attention."""

    def __init__(self, options: OptionsNow, work: Work, membership: Membership) -> None:
        self._work = work
        self._membership = membership
        self.sum = ClusterSum({})
        # Troubles that need attention, the worst first.
        self.troubles: tuple[Concern, ...] = ()
        # Called with each round, one after the other.
        self.followers: list[Callable[[Round], Awaitable[None]]] = []
        # Processor time of the last adding up.
        self.cost_s = 0.0
        self._told: dict[ConcernKey, Concern] = {}
        # Topics that were changed here, and when.
        self._changed: dict[str, int] = {}
        self._book = TroubleBook()
        self._limits = [parse_limit(text) for text in options().alert_limits]

    async def add_up(self) -> None:
        """Add up all figures once and tell the followers."""
        looks = [
            (member.look, member.tombstoned, member.address)
            for member in self._membership.members.values()
            if member.answers and member.look is not None
        ]
        added = {address: look for look, _, address in looks}
        registered = self._membership.registered_topics
        now = instant()
        began_ns, now_s = now
        # Judged before the thread works: a newer answer of a node belongs to the next round, as its sums do.
        of_nodes, unjudged = self._node_concerns(now), self._unjudged()

        def work() -> tuple[ClusterSum, float]:
            began = time.thread_time()
            shares: dict[str, list[Share]] = {}
            for look, tombstoned, address in looks:
                marks, at_ns, later = look.marks, look.at_ns, look.later_ns
                for name, stats in look.topics.items():
                    if name not in tombstoned:
                        share = stats, marks, later.get(name, at_ns), address
                        shares.setdefault(name, []).append(share)
            topics = {name: add_up(name, found, now_s) for name, found in shares.items()}
            total = ClusterSum(topics, registered - topics.keys())
            # Computed here, so that no reader has to wait for them.
            _ = total.rows, total.concerns, total.totals
            return total, time.thread_time() - began

        total, self.cost_s = await self._work.in_thread(work)
        for member in self._membership.members.values():
            member.added = added.get(member.address)
        concerns = [*of_nodes, *self._of_consumers(total.concerns, now)]
        found = limited(total.topics.values(), concerns, self._limits)
        self.troubles = tuple(worst_first(self._book.note(found, now, unjudged=unjudged)))
        total.show(self.troubles)
        self.sum = self._with_changed(total, began_ns)
        await self._tell(now)

    def restore(self, troubles: Iterable[Concern]) -> None:
        """Go on with the *troubles* of an earlier run."""
        found = list(troubles)
        self._book.restore(found, instant())
        self._told = {one.key: one for one in found}

    def _unjudged(self) -> Unjudged:
        """Return what tells whether a trouble concerns an nsqd that does not answer, and names it."""
        membership = self._membership
        owners = membership.owners
        silent = [
            one
            for one in (*membership.members.values(), *membership.unlisted.values())
            if one.look is not None and one.error is not None and not owners.get(one.producer.identity)
        ]

        def unjudged(concern: Concern) -> str:
            if concern.mark in REACH:
                return ""
            for one in silent:
                if (
                    one.holds(concern.topic, concern.channel)
                    if concern.topic
                    else concern.node == one.address
                ):
                    return f"nsqd {one.address} does not answer"
            return ""

        return unjudged

    def changed(self, topic: str) -> None:
        """Show *topic* with the newest figures of its nodes, because it was just changed."""
        self._changed[topic] = time.monotonic_ns()
        self.sum = self._with_changed(self.sum, 0)

    def dismissed(self, node: str) -> None:
        """Stop showing that *node* left."""
        self.troubles = tuple(one for one in self.troubles if (one.mark, one.node) != ("down", node))

    async def _tell(self, now: Instant) -> None:
        """Pass this round on to the followers."""
        known, self._told = self._told, {one.key: one for one in self.troubles}
        this = Round(
            now,
            self.sum,
            tuple(self._membership.everyone()),
            self.troubles,
            tuple(one for key, one in self._told.items() if key not in known),
            tuple(one for key, one in known.items() if key not in self._told),
        )
        for follow in self.followers:
            await follow(this)

    def _with_changed(self, total: ClusterSum, since_ns: int) -> ClusterSum:
        """Return *total* with newer figures for the topics that were changed later than *since_ns*."""
        for topic, changed_ns in list(self._changed.items()):
            if changed_ns < since_ns:
                del self._changed[topic]
                continue
            members = self._membership.members.values()
            shares = _shares(members, topic)
            for member in members:
                if member.added is not None and member.look is not None:
                    member.added = member.added.with_topic_of(member.look, topic)
            newer = add_up(topic, shares, time.time()) if shares else None
            now = instant()
            concerns = (
                limited([newer], self._of_consumers(newer.concerns, now), self._limits) if newer else ()
            )
            found = self._book.note(concerns, now, topic, self._unjudged())
            if newer is not None:
                newer.show(found)
            self.troubles = tuple(
                worst_first([*(one for one in self.troubles if one.topic != topic), *found])
            )
            idle = set(total.idle) - {topic}
            if newer is None and topic in self._membership.registered_topics:
                idle.add(topic)
            total = total.changed(topic, newer, idle)
        return total

    def _of_consumers(self, concerns: Iterable[Concern], now: Instant) -> list[Concern]:
        """Add to *concerns* who consumed last; a node that is back has one concern, not one a channel.

        Problems that were known before the node was back stay.
        """
        found = [one for one in concerns if one.mark != NO_CONSUMERS]
        bare = [one for one in concerns if one.mark == NO_CONSUMERS]
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
            if sum(depths.values()) == one.messages and one.key not in self._told:
                for address, depth in depths.items():
                    returned.setdefault(address, []).append(depth)
            else:
                found.append(replace(one, consumers=last.get((one.topic, one.channel))))
        return [*found, *(of_returned(*one) for one in returned.items())]

    def _node_concerns(self, now: Instant) -> list[Concern]:
        """Judge all nodes: listed ones, unlisted ones that answer, and those that left."""
        membership = self._membership
        membership.everyone()
        members = membership.members.values()
        found = [concern for member in members for concern in member.concerns]
        if not members and not membership.unlisted:
            found.append(of_no_nodes())
        answering = set()
        for member in membership.unlisted.values():
            if member.answers:
                answering.add(member.address)
                found += member.concerns
        found += [of_missing(one, now) for one in membership.missed(now) if one.address not in answering]
        registers = membership.registers.values()
        silent = [(one.address, one.error.reason) for one in registers if one.error is not None]
        return [*found, *of_lookupds(silent, len(registers))]


def _shares(members: Iterable[Member], topic: str) -> list[Share]:
    return [
        member.look.share(topic, member.address)
        for member in members
        if member.answers and member.look and topic in member.look.topics and topic not in member.tombstoned
    ]
