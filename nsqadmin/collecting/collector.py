"""Polls every nsqd and nsqlookupd once per interval, also without readers; stores the last good answers."""

import asyncio
import random
import time
from typing import Final, Self

from nsqadmin.collecting.members import Member
from nsqadmin.collecting.membership import Membership
from nsqadmin.collecting.polling import StatsPoller
from nsqadmin.collecting.summing import Adder
from nsqadmin.collecting.work import PATIENCE_S, Work
from nsqadmin.options import NsqadminOptions, OptionsNow
from nsqclient.wire.durations import SECOND
from nsqcore.cluster.http import ClusterHttp
from nsqcore.process.logs import Log

# Without a request for so long there is no reader; then the cluster is polled less often.
WATCHED_S: Final = 60.0
UNWATCHED_FACTOR: Final = 5
HISTORY_S: Final = 5.0
# Collecting uses at most this share of a processor: in an expensive cluster statistics are older.
SHARE: Final = 0.15
# Before an action or a list of messages, statistics may be so old.
FRESH_S: Final = 1.0
# The drain state changes rarely and takes an extra request, so one round in so many requests it.
DRAIN_EVERY: Final = 4


class Collector:
    """The last known cluster. One per process; all work except parsing runs on its event loop."""

    def __init__(self, http: ClusterHttp, http_of_left: ClusterHttp, options: OptionsNow, log: Log) -> None:
        """*http_of_left* is for nodes that no nsqlookupd lists any longer."""
        self._options = options
        self.work = Work()
        self.membership = Membership(http, options, log, self.work, self._poll_loop)
        self.asker = StatsPoller(http, http_of_left, log, self.work, self.membership)
        self.adder = Adder(options, self.work, self.membership)
        self._added_up = asyncio.Event()
        self._has_readers = asyncio.Event()
        self._last_read = time.monotonic()
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        self.work.start(self._discover_loop(), "discovery")
        self.work.start(self._sum_loop(), "sums")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.work.close()

    # -- for readers ----------------------------------------------------------------

    async def ready(self) -> None:
        """Note a reader, and wait a moment if there is nothing to show yet."""
        self._last_read = time.monotonic()
        self._has_readers.set()
        if self.membership.addresses_changed:
            await self.work.within(self.membership.discover(), self._patience_s)
        if not self._added_up.is_set():
            await self.work.within(self._added_up.wait(), 2 * PATIENCE_S)

    async def changed(self, topic: str) -> None:
        """Show a change of *topic*; pending requests about other topics continue."""
        await self.work.within(self._follow_change(topic))

    async def node_changed(self, node: str) -> None:
        """Show immediately whether *node* drains."""
        members = (*self.membership.members.values(), *self.membership.unlisted.values())
        asking = [self.asker.draining(one) for one in members if one.answers and one.address == node]
        if asking:
            await self.work.within(asyncio.gather(*asking), self._patience_s)

    async def fresh_list(self, age_s: float = FRESH_S) -> None:
        """Wait until the list of nodes is from a request sent at most *age_s* ago."""
        await self.ready()
        if not self.membership.uses_lookupd:
            await self.refresh_stats(age_s)
        else:
            await self.work.within(self.membership.discovered_since(_ago_ns(age_s)), self._patience_s)

    async def fresh_names(self, age_s: float = FRESH_S) -> None:
        """Wait until the names of topics are from a request sent at most *age_s* ago."""
        await self.ready()
        if not self.membership.uses_lookupd:
            await self.refresh_stats(age_s)
        else:
            await self.work.within(self.membership.named_since(_ago_ns(age_s)), self._patience_s)

    async def fresh_topic(self, topic: str, age_s: float = FRESH_S, *, everyone: bool = False) -> None:
        """Wait until the statistics of *topic* are from a request sent at most *age_s* ago.

        The request goes to the holders, with *everyone* to all nodes.
        """
        await self.asker.holders(topic, age_s, self._patience_s, everyone=everyone)

    async def refresh_stats(self, age_s: float = FRESH_S) -> None:
        """Wait until the statistics of all nodes that answer are from requests sent at most *age_s* ago."""
        await self.ready()
        since_ns = _ago_ns(age_s)
        members = [one for one in self.membership.members.values() if one.error is None]
        polls = asyncio.gather(*(self.asker.polled(one, since_ns) for one in members))
        await self.work.within(polls, self._patience_s)

    def dismiss(self, node: str) -> bool:
        """Stop showing that *node* is down; return whether it was shown."""
        self.adder.dismissed(node)
        for address in [at for at, one in self.membership.unlisted.items() if one.address == node]:
            del self.membership.unlisted[address]
        return self.membership.missing.dismiss(node)

    @property
    def _patience_s(self) -> float:
        options = self._options()
        return (options.http_client_connect_timeout + options.http_client_request_timeout) / SECOND

    async def _follow_change(self, topic: str) -> None:
        # The answer to a pending request may be older than the change.
        await self.membership.discover_now()
        members = [member for member in self.membership.members.values() if member.answers]
        asking = {self.work.start(self.asker.topic(member, topic), "topic") for member in members}
        # The answers of most nodes are shown first, even if one node is slow.
        for patience_s in (PATIENCE_S / 2, None):
            if asking:
                _, asking = await asyncio.wait(asking, timeout=patience_s)
            self.adder.changed(topic)
            if not asking:
                return

    # -- the tasks -----------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        """The length of a round: as configured, or longer if that would cost too much."""
        options: NsqadminOptions = self._options()
        chosen = options.collect_interval / SECOND
        if time.monotonic() - self._last_read > WATCHED_S:
            rare = UNWATCHED_FACTOR * chosen
            # The history has a place for each five seconds.
            chosen = max(chosen, min(rare, HISTORY_S)) if options.history else rare
        cost_s = self.adder.cost_s + sum(member.cost_s for member in self.membership.members.values())
        return max(chosen, cost_s / SHARE)

    async def _pause(self, least_s: float = 0.0) -> None:
        """Wait for the next round; the time varies a little, so that nodes are not all polled together."""
        watched = time.monotonic() - self._last_read <= WATCHED_S
        if watched:
            await asyncio.sleep(max(least_s, self.interval_s) * random.uniform(0.9, 1.1))
            return
        self._has_readers.clear()
        try:
            async with asyncio.timeout(max(least_s, self.interval_s)):
                await self._has_readers.wait()
        except TimeoutError:
            return

    async def _discover_loop(self) -> None:
        while True:
            await self.membership.discover()
            await self._pause(self.membership.pause_s)

    def _poll_loop(self, member: Member) -> None:
        task = self._asking.get(member.request_address)
        if task is None or task.done():
            task = self.work.start(
                self._lookupd_loop(member.request_address), f"nsqd {member.request_address}"
            )
            self._asking[member.request_address] = task

    async def _lookupd_loop(self, address: str) -> None:
        turn = random.randrange(DRAIN_EVERY)
        known, unlisted = self.membership.members, self.membership.unlisted
        while (member := known.get(address) or unlisted.get(address)) is not None:
            await self.asker.poll(member)
            if member.answers and (turn % DRAIN_EVERY == 0 or member.remaining is not None):
                await self.asker.draining(member)
            turn += 1
            await self._pause()

    async def _sum_loop(self) -> None:
        await self.membership.discovered.wait()
        first = [
            self.work.start(member.first_answer.wait(), "first look")
            for member in self.membership.members.values()
        ]
        if first:
            await asyncio.wait(first, timeout=PATIENCE_S)
        while True:
            await self.adder.add_up()
            self._added_up.set()
            await self._pause()


def _ago_ns(age_s: float) -> int:
    """Return the monotonic time *age_s* ago."""
    return time.monotonic_ns() - round(age_s * SECOND)
