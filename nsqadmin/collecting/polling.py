"""Polls nsqds for their statistics, of all topics or of one, and stores their last good answers."""

import asyncio
import time
from dataclasses import replace
from typing import Final

from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.members import Member
from nsqadmin.collecting.membership import Membership
from nsqadmin.collecting.node_snapshot import NodeSnapshot, without_deferred
from nsqadmin.collecting.shared import Shared
from nsqadmin.collecting.work import Work
from nsqclient.wire.durations import SECOND
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import call_all
from nsqcore.cluster.http import ClusterHttp, Params
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, Registration
from nsqcore.cluster.nsqd_api import NsqdApi, stats_params
from nsqcore.process.logs import Log

# Parsing a smaller answer takes less time than waking a thread.
_SMALL_BODY: Final = 32_768
# Collecting memory statistics stops Go's nsqd for a moment, and no page shows them.
_NO_MEMORY: Final = ("include_mem", "false")
_PARAMS: Final = (*stats_params(include_clients=False), _NO_MEMORY)
# The interval of requests for consumers, from which the last consumers of a channel are known. A node
# with more consumers than this gets none: they are megabytes.
_WITH_CONSUMERS: Final = (*stats_params(), _NO_MEMORY)
_CONSUMERS_S: Final = 60
_MANY_CONSUMERS: Final = 1000


class StatsPoller:
    """Sends a node one request of a kind at a time; callers that arrive before the answer share it.

    Every failure with an answer of a node is an error of that node, and does not end nsqadmin.
    """

    def __init__(
        self, http: ClusterHttp, http_of_left: ClusterHttp, log: Log, work: Work, membership: Membership
    ) -> None:
        self._http = http
        self._http_of_departed = http_of_left
        self._log = log
        self._work = work
        self._membership = membership
        # Topics that are requested separately, by one request at a time.
        self.topics_asked: Shared[str, None] = Shared(work)

    def nsqd(self, member: Member) -> NsqdApi:
        is_listed = member.request_address in self._membership.members
        return NsqdApi(self._http if is_listed else self._http_of_departed, member.request_address)

    def poll(self, member: Member) -> asyncio.Task[None]:
        """Request the statistics of an nsqd, unless a request is pending."""
        if member.poll is None or member.poll.done():
            member.poll_ns = time.monotonic_ns()
            member.poll = self._work.start(
                self._request(member, member.poll_ns), f"statistics of {member.request_address}"
            )
        return member.poll

    async def polled(self, member: Member, since_ns: int) -> None:
        """Wait for an answer to a request for statistics that was sent at *since_ns* or later."""
        while member.poll is None or member.poll_ns < since_ns:
            await asyncio.wait({self.poll(member)})
        await asyncio.wait({member.poll})

    async def _request(self, member: Member, asked_ns: int) -> None:
        nsqd = self.nsqd(member)
        by_hand = not self._membership.uses_lookupd
        try:
            if by_hand and not (member.is_described and member.error is None):
                member.producer = _described(await nsqd.info(), member.request_address)
                member.is_described = True
            params = _PARAMS
            few = member.snapshot is not None and 0 < member.snapshot.load.consumers <= _MANY_CONSUMERS
            if few and asked_ns - member.consumers_ns >= _CONSUMERS_S * SECOND:
                member.consumers_ns = asked_ns
                params = _WITH_CONSUMERS
            async with nsqd.stats_body(params) as body:
                look = await self._parse(member, nsqd, body, params)
                del body
            silent = member.error is not None
            with nsqd.blamed(params):
                self._store(member, look, asked_ns, by_hand=by_hand)
        except NodeError as error:
            self._failed(member, error)
        else:
            if silent:
                self._log.info("nsqd %s gives statistics again", member.address)
        member.first_answer.set()

    def _store(self, member: Member, look: NodeSnapshot, asked_ns: int, *, by_hand: bool) -> None:
        """Store *look*; a node that is listed *by_hand* counts as registered for its topics."""
        member.answered(look, asked_ns)
        self._membership.note_snapshot(member, look)
        if by_hand:
            topics = tuple(
                Registration(name) for name in sorted(member.snapshot.topics if member.snapshot else ())
            )
            member.producer = replace(member.producer, topics=topics)

    def _failed(self, member: Member, error: NodeError) -> None:
        if member.error is None:
            self._log.warning("nsqd %s gives no statistics: %s", member.address, error)
        member.failed(error, instant())

    async def _parse(self, member: Member, nsqd: NsqdApi, body: bytes, params: Params) -> NodeSnapshot:
        at = instant()

        def read() -> NodeSnapshot:
            began = time.thread_time()
            stats = nsqd.read_stats(body, params)
            with nsqd.blamed(params):
                look = NodeSnapshot.of(stats, member.pace, *at)
            # Receiving an answer costs about as much as parsing it.
            member.cost_s = 2 * (time.thread_time() - began)
            return look

        return read() if len(body) < _SMALL_BODY else await self._work.in_thread(read)

    async def draining(self, member: Member) -> None:
        """Request whether a node is draining, and how many messages are left on it."""
        asked_ns = time.monotonic_ns()
        nsqd = self.nsqd(member)
        try:
            draining = await nsqd.is_draining()
            member.drains(await nsqd.drain_remaining() if draining else None, asked_ns)
        except NodeError:
            # The request for statistics notices whether the node answers; this one is only about draining.
            return

    # -- one topic ----------------------------------------------------------------------

    async def holders(self, topic: str, age_s: float, patience_s: float, *, everyone: bool = False) -> None:
        """Wait *patience_s* for statistics of *topic* that were requested at most *age_s* ago.

        The request goes to the holders; with *everyone* to all nodes, because the topic may be new.
        """
        since_ns = time.monotonic_ns() - round(age_s * SECOND)
        await self.topics_asked.get(
            topic,
            lambda: self._request_holders(topic, since_ns, everyone=everyone),
            age_s=age_s,
            patience_s=patience_s,
        )

    async def _request_holders(self, topic: str, since_ns: int, *, everyone: bool) -> None:
        """Poll the nodes that are known to have *topic*, and those that nsqlookupd names for it.

        Nodes whose statistics were requested at *since_ns* or later are not polled again.
        """
        membership = self._membership
        members = membership.members.values()
        addresses = {
            one.address
            for one in members
            if everyone or (one.snapshot is not None and topic in one.snapshot.topics)
        }
        lookupds = [one.address for one in membership.registers.values() if one.error is None]
        found = await call_all(
            [LookupdApi(self._http, one) for one in lookupds], lambda one: one.lookup(topic)
        )
        for _, lookup in found.value:
            addresses |= {producer.http_address for producer in lookup.producers}
        asked = [
            one
            for one in membership.members.values()
            if one.address in addresses and one.answers and not self._has_fresh(one, topic, since_ns)
        ]
        await asyncio.gather(*(self.topic(member, topic) for member in asked))

    def _has_fresh(self, member: Member, topic: str, since_ns: int) -> bool:
        """Whether the node's statistics are new enough and include *topic*; they lack a new topic."""
        return (
            member.snapshot_requested_ns >= since_ns
            and member.snapshot is not None
            and topic in member.snapshot.topics
        )

    async def topic(self, member: Member, topic: str) -> None:
        """Request one topic of one nsqd."""
        asked_ns = time.monotonic_ns()
        nsqd = self.nsqd(member)
        try:
            stats = await nsqd.stats(topic=topic, include_clients=False)
            with nsqd.blamed(stats_params(topic=topic, include_clients=False)):
                without_deferred(stats.topics, member.pace.empty_ns)
                member.update_topic(topic, asked_ns, stats.topics)
        except NodeError as error:
            self._failed(member, error)


def _described(info: NodeInfo, asked_at: str) -> NodeInfo:
    """Add the address of our request to the info of an old nsqd, which does not report it."""
    host, _, port = asked_at.rpartition(":")
    host = host.strip("[]")
    if not info.broadcast_address:
        info = replace(info, broadcast_address=host, http_port=int(port))
    return info if info.hostname else replace(info, hostname=host)
