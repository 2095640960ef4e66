"""Asks nsqds for what they hold, all of it or one topic, and keeps their last good answers."""

import asyncio
import time
from dataclasses import replace
from typing import Final

from nsqadmin.collecting.look import Look
from nsqadmin.collecting.members import Member
from nsqadmin.collecting.membership import Membership
from nsqadmin.collecting.work import Work
from nsqclient.wire.durations import SECOND
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.fanout import ask_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, NodeStats, Registration
from nsqcore.cluster.nsqd_api import NsqdApi, stats_params
from nsqcore.process.logs import Log

# Below this an answer is parsed in less time than a thread is woken.
_SMALL_BODY: Final = 32_768
# Memory figures make Go's nsqd stop for a moment, and nobody shows them.
_PARAMS: Final = (*stats_params(include_clients=False), ("include_mem", "false"))


class FigureAsker:
    """One question of a kind is out to a node at a time; who asks the same meanwhile waits for its answer."""

    def __init__(self, http: ClusterHttp, log: Log, work: Work, membership: Membership) -> None:
        self._http = http
        self._log = log
        self._work = work
        self._membership = membership
        # Topics asked for by themselves lately, and when.
        self._topic_asked: dict[str, tuple[int, asyncio.Task[None]]] = {}

    def nsqd(self, member: Member) -> NsqdApi:
        return NsqdApi(self._http, member.asked_at)

    def poll(self, member: Member, age_s: float = 0.0) -> asyncio.Task[None]:
        """Ask one nsqd for its figures, unless that is being done, or was done less than *age_s* ago."""
        now_ns = time.monotonic_ns()
        if member.poll is None or (member.poll.done() and now_ns - member.poll_ns >= age_s * SECOND):
            member.poll_ns = now_ns
            member.poll = self._work.start(self._ask(member, now_ns), f"figures of {member.asked_at}")
        return member.poll

    async def _ask(self, member: Member, asked_ns: int) -> None:
        nsqd = self.nsqd(member)
        by_hand = not self._membership.uses_lookupd
        try:
            if by_hand and (member.producer is None or member.error is not None):
                member.producer = _described(await nsqd.info(), member.asked_at)
            async with nsqd.stats_body(_PARAMS) as body:
                look = await self._look(member, nsqd, body)
                del body
        except NodeError as error:
            self._failed(member, error)
        else:
            if member.error is not None:
                self._log.info("nsqd %s gives figures again", member.address)
            member.answered(look, asked_ns)
            if by_hand and member.producer is not None:
                topics = tuple(
                    Registration(name) for name in sorted(member.look.topics if member.look else ())
                )
                member.producer = replace(member.producer, topics=topics)
        member.asked.set()

    def _failed(self, member: Member, error: NodeError) -> None:
        if member.error is None:
            self._log.warning("nsqd %s gives no figures: %s", member.address, error)
        member.failed(error, time.time())

    async def _look(self, member: Member, nsqd: NsqdApi, body: bytes) -> Look:
        at_ns, at_s = time.monotonic_ns(), time.time()

        def read() -> Look:
            began = time.thread_time()
            look = Look.of(nsqd.read_stats(body, _PARAMS), member.pace, at_ns, at_s)
            # What arrives costs about as much as what is parsed.
            member.cost_s = 2 * (time.thread_time() - began)
            return look

        return read() if len(body) < _SMALL_BODY else await self._work.in_thread(read)

    async def draining(self, member: Member) -> None:
        """Ask whether a node is being emptied, and what is left on it."""
        nsqd = self.nsqd(member)
        try:
            draining = await nsqd.is_draining()
            member.drains(await nsqd.drain_remaining() if draining else None)
        except NodeError:
            # Its figures say whether it answers; this is only about draining.
            return

    # -- one topic ----------------------------------------------------------------------

    def holders(self, topic: str, age_s: float) -> asyncio.Task[None]:
        """Ask who may have *topic* for it, unless that is being done, or was done less than *age_s* ago."""
        now_ns = time.monotonic_ns()
        for name, (asked_ns, task) in list(self._topic_asked.items()):
            if task.done() and now_ns - asked_ns > age_s * SECOND:
                del self._topic_asked[name]
        known = self._topic_asked.get(topic)
        if known is None or now_ns - known[0] > age_s * SECOND:
            known = now_ns, self._work.start(self._ask_holders(topic, age_s), "topic")
            self._topic_asked[topic] = known
        return known[1]

    async def _ask_holders(self, topic: str, age_s: float) -> None:
        """Ask who is known to have *topic*, and who nsqlookupd says has it.

        Whose figures were asked for less than *age_s* ago need not be asked again.
        """
        membership = self._membership
        members = membership.members.values()
        addresses = {one.address for one in members if one.look is not None and topic in one.look.topics}
        lookupds = [one.address for one in membership.registers.values() if one.error is None]
        found = await ask_all(
            [LookupdApi(self._http, one) for one in lookupds], lambda one: one.lookup(topic)
        )
        for _, lookup in found.value:
            addresses |= {producer.http_address for producer in lookup.producers}
        asked = [
            one
            for one in membership.members.values()
            if one.address in addresses and one.answers and not self._has_fresh(one, topic, age_s)
        ]
        await asyncio.gather(*(self.topic(member, topic) for member in asked))

    def _has_fresh(self, member: Member, topic: str, age_s: float) -> bool:
        """Whether what is known of *topic* there is new enough; of one that is new nothing is known."""
        return member.asked_s <= age_s and member.look is not None and topic in member.look.topics

    async def topic(self, member: Member, topic: str) -> None:
        """Ask one nsqd for one topic."""
        asked_ns = time.monotonic_ns()
        try:
            stats: NodeStats = await self.nsqd(member).stats(topic=topic, include_clients=False)
        except NodeError as error:
            self._failed(member, error)
            return
        member.told(topic, asked_ns, stats.topics)


def _described(info: NodeInfo, asked_at: str) -> NodeInfo:
    """Complete what an nsqd says of itself: an old one does not tell where it is reached, but we know."""
    host, _, port = asked_at.rpartition(":")
    host = host.strip("[]")
    if not info.broadcast_address:
        info = replace(info, broadcast_address=host, http_port=int(port))
    return info if info.hostname else replace(info, hostname=host)
