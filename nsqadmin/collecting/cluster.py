"""Queries about the cluster, answered from collected statistics; actions query the nodes again."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from nsqadmin.collecting.answers import NODE_NOT_FOUND, Answer, UnknownError, UpstreamError, require
from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.consumers import API_PATIENCE_S, Consumers
from nsqadmin.collecting.members import (
    Member,
    errors_of,
    is_reachable,
    listed_now,
    register_errors,
    require_one,
)
from nsqadmin.collecting.node_snapshot import NodeSnapshot
from nsqadmin.collecting.queues import Queues
from nsqadmin.collecting.registrations import Registrations
from nsqadmin.collecting.replication import NodeReplications
from nsqadmin.collecting.views import Lacking, Overview
from nsqadmin.options import OptionsNow
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.problems import Problem
from nsqadmin.stats.sums import TopicSum
from nsqadmin.stats.versions import out_of_date, sort_producers
from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, NodeStats
from nsqcore.cluster.nsqd_api import NsqdApi, stats_params
from nsqcore.cluster.nsqd_messages import NsqdMessages

T = TypeVar("T")

# So few topics are sorted in a millisecond or two.
_FEW_TOPICS: Final = 1000


class Cluster:
    """The cluster to which the current options point."""

    def __init__(
        self,
        http: ClusterHttp,
        options: OptionsNow,
        collector: Collector,
    ) -> None:
        self._http = http
        self._options = options
        self.collector = collector
        self._consumers = Consumers(collector)
        self.membership = collector.membership
        self.queues = Queues(collector, self._consumers)
        self.registrations = Registrations(collector)
        self.replication = NodeReplications(http, collector)

    # -- members ----------------------------------------------------------------

    def lookupds(self) -> list[LookupdApi]:
        return [LookupdApi(self._http, address) for address in self._options().nsqlookupd_http_addresses]

    def nsqds(self) -> list[NsqdApi]:
        """Return the configured nsqds; none in lookupd mode."""
        return [self.nsqd(address) for address in self._options().nsqd_http_addresses]

    def nsqd(self, address: str) -> NsqdApi:
        return NsqdApi(self._http, address)

    def messages(self, address: str) -> NsqdMessages:
        return NsqdMessages(self._http, address)

    # -- fresh requests -----------------------------------------------------------

    async def producers(self) -> Answer[list[NodeInfo]]:
        """Return all nsqds that are listed at this moment. Raises UpstreamError if no node answers."""
        found = await self.membership.discovery.producers()
        producers = require(found, self.membership.discovery.kind)
        return Answer(sort_producers(filter(is_reachable, producers)), (found.errors,))

    async def nsqds_now(self) -> Answer[list[NsqdApi]]:
        """Return the listed nsqds; while no nsqlookupd answers, those it last listed that answer.

        Raises UpstreamError if no node answers.
        """
        try:
            producers = await self.producers()
        except UpstreamError as error:
            answering = [
                member.request_address for member in self.membership.sorted_members if member.answers
            ]
            if not answering:
                raise
            return Answer([self.nsqd(address) for address in answering], (error.errors,))
        return Answer([self.nsqd(producer.http_address) for producer in producers.value], producers.stages)

    async def answering_nsqds(self) -> Answer[list[NsqdApi]]:
        """Return the nsqds that are not known to be unreachable; the others are errors of the answer.

        Raises UpstreamError if no node answers.
        """
        await self.collector.ready()
        members = self.membership.sorted_members
        registers = self.membership.register_lists if members else self.membership.require_register()
        require_one(members)
        nsqds = [self.nsqd(member.request_address) for member in members if member.error is None]
        return Answer(nsqds, (register_errors(registers, "/nodes"), errors_of(members)))

    async def holders_of(self, topic: str) -> Answer[list[NsqdApi]]:
        """Return the nsqds that hold *topic* at this moment, possibly none.

        They are its producers, and the listed nodes that have it without a registration: where a
        deletion fails, the topic stays but its registration is gone. Raises UnknownError if no node has or
        knows the topic.
        """
        found = await self.membership.discovery.producers_of(topic)
        producers = require(found, self.membership.discovery.kind)
        holders = [producer.http_address for producer in producers or () if is_reachable(producer)]
        if self.membership.uses_lookupd:
            holders += await self.queues.holders_besides(holders, topic)
        if producers is None and not holders:
            raise UnknownError(TOPIC_NOT_FOUND)
        return Answer([self.nsqd(address) for address in holders], (found.errors,))

    @property
    def sum(self) -> ClusterSum:
        """The sums of the last round."""
        return self.collector.adder.sum

    def problems_of(
        self, *, topic: str = "", channel: str = "", nodes: Collection[str] = ()
    ) -> list[Problem]:
        """Return the problems of a topic or channel, and those of *nodes*."""
        return [
            one
            for one in self.collector.adder.problems
            if (topic and one.topic == topic and channel in {"", one.channel}) or one.node in nodes
        ]

    def messages_in(self, topic: str, channel: str) -> int:
        """Return how many messages are deleted if *channel*, or the queue of *topic* itself, is emptied."""
        found = self.sum.topics.get(topic)
        if found is None:
            return 0
        if not channel:
            return found.own_depth
        return sum(
            one.depth + one.in_flight_count + one.deferred_count
            for one in found.channels
            if one.channel_name == channel
        )

    def topics_and_channels(self) -> list[tuple[str, str]]:
        """Return every topic (with an empty channel name) and every channel."""
        topics = self.sum.topics
        return [
            (name, channel)
            for name, topic in sorted(topics.items())
            for channel in ("", *topic.channel_names)
        ]

    async def changed(self, topic: str) -> None:
        """Make the pages show a change that was just made to *topic*."""
        self._consumers.forget(topic)
        self.registrations.forget(topic)
        await self.collector.changed(topic)

    @property
    def stats_time_s(self) -> float:
        """The time of the oldest statistics that pages show as current, in seconds."""
        looks = [member.snapshot for member in self.membership.sorted_members if member.answers]
        return min((look.at_s for look in looks if look is not None), default=time.time())

    # -- nodes --------------------------------------------------------------------

    async def nodes(self) -> Answer[list[tuple[NodeInfo, bool]]]:
        """Return all nsqds as they are listed, and whether each is out of date.

        Raises UpstreamError if no node answers.
        """
        await self.collector.ready()
        if not self.membership.uses_lookupd:
            members = self.membership.sorted_members
            require_one(members)
            named = [member.producer for member in members if member.is_described and not member.error]
            return Answer([(one, False) for one in sort_producers(named)], (errors_of(members),))
        registers = self.membership.require_register()
        producers = sort_producers(listed_now(registers))
        old = out_of_date(producers)
        found = [(one, one.tcp_address in old) for one in producers]
        return Answer(found, (register_errors(registers, "/nodes"),))

    async def node_view(self, address: str) -> Answer[Member]:
        """Return one nsqd with its last good statistics, which do not name consumers. Raises UnknownError."""
        await self.collector.ready()
        member = self.membership.member(address)
        if member is None:
            raise UnknownError(NODE_NOT_FOUND)
        return Answer(member, (self.membership.silent_registers,))

    async def node_consumers(
        self, address: str, patience_s: float = API_PATIENCE_S
    ) -> NodeStats | NodeError | None:
        """Return an nsqd's statistics with all its consumers; None if it has not answered in *patience_s*."""
        member = self.membership.member(address)
        if member is None:
            raise UnknownError(NODE_NOT_FOUND)
        if member.error is not None:
            return member.error
        return await self._consumers.of_node(member, patience_s)

    async def node_body(self, address: str) -> Answer[tuple[NodeInfo, Callable[[], NodeStats]]]:
        """Request all statistics of one nsqd; return a function that parses the answer (maybe megabytes)."""
        view = await self.node_view(address)
        member = self.membership.member(address)
        if member is None:
            raise UnknownError(NODE_NOT_FOUND)
        if member.error is not None:
            raise UpstreamError("nsqd", [member.error])
        nsqd, params = self.nsqd(member.request_address), stats_params()
        try:
            async with nsqd.stats_body(params) as body:
                pass
        except NodeError as error:
            raise UpstreamError("nsqd", [error]) from error
        return Answer((view.value.producer, lambda: nsqd.read_stats(body, params)), view.stages)

    async def overview(self) -> Answer[Overview]:
        """Return the whole cluster, with consumers only counted; the value includes unreachable nodes."""
        await self.collector.ready()
        membership, adder = self.membership, self.collector.adder
        views = [
            one
            for one in membership.everyone()
            if (one.is_described or one.error if one.listed else one.answers)
        ]
        views.sort(key=lambda view: (view.producer.hostname, view.address))
        answering = {view.address for view in views}
        lookupds = tuple(membership.register_lists)
        if (
            self.membership.uses_lookupd
            and not membership.members
            and lookupds
            and all(one.error for one in lookupds)
        ):
            raise UpstreamError("nsqlookupd", [one.error for one in lookupds if one.error])
        if not self.membership.uses_lookupd:
            require_one(membership.sorted_members)
        shown = Overview(
            adder.sum,
            adder.problems,
            tuple(views),
            tuple(one for one in membership.missed(instant()) if one.address not in answering),
            lookupds,
            tuple(
                Lacking(one.address, "unreachable" if one.listed else "down", depth)
                for one in membership.everyone()
                if one.snapshot is not None and one.is_unreached and (depth := one.snapshot.load.depth)
            ),
        )
        return Answer(shown, (membership.silent_registers, errors_of(membership.members.values())))

    async def stats_of_nodes(self) -> Answer[list[tuple[str, NodeSnapshot]]]:
        """Return the statistics of every nsqd that answers, with its address."""
        await self.collector.ready()
        members = self.membership.sorted_members
        stage = register_errors(self.membership.require_register(), "/nodes")
        require_one(members)
        looks = [
            (member.address, member.snapshot) for member in members if member.answers and member.snapshot
        ]
        return Answer(looks, (stage, errors_of(members)))

    async def ordered(self, apply: Callable[[Sequence[TopicSum]], list[TopicSum]]) -> list[TopicSum]:
        """Return the topics as *apply* filters and sorts them; thousands are sorted in a thread."""
        rows = self.sum.rows
        if len(rows) < _FEW_TOPICS:
            return apply(rows)
        return await self.collector.work.for_reader(lambda: apply(rows))
