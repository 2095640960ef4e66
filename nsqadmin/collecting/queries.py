"""Questions about the cluster, asked afresh each time; nothing is kept between two of them."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError, require
from nsqadmin.collecting.views import LookupdView, NodeView, Overview
from nsqadmin.figures import aggregate
from nsqadmin.figures.records import ChannelRecord, TopicRecord
from nsqadmin.options import OptionsNow
from nsqcore.cluster.discovery import Discovery, LookupdDiscovery, StaticDiscovery
from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND
from nsqcore.cluster.fanout import Partial, ask_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, NodeStats
from nsqcore.cluster.nsqd_api import NsqdApi

NODE_NOT_FOUND = "NODE_NOT_FOUND"

# One question per idle topic, and there may be thousands: more at once only fill nsqlookupd's backlog.
_IDLE_AT_ONCE: Final = 16


class Cluster:
    """The cluster that the options in force point at."""

    def __init__(
        self, http: ClusterHttp, options: OptionsNow, now_s: Callable[[], float] = time.time
    ) -> None:
        self._http = http
        self._options = options
        self._now_s = now_s

    # -- who is there -----------------------------------------------------------

    @property
    def uses_lookupd(self) -> bool:
        return bool(self._options().nsqlookupd_http_addresses)

    @property
    def discovery(self) -> Discovery:
        options = self._options()
        if options.nsqlookupd_http_addresses:
            return LookupdDiscovery(self._http, options.nsqlookupd_http_addresses)
        return StaticDiscovery(self._http, options.nsqd_http_addresses)

    def lookupds(self) -> list[LookupdApi]:
        return [LookupdApi(self._http, address) for address in self._options().nsqlookupd_http_addresses]

    def nsqds(self) -> list[NsqdApi]:
        """Return the configured nsqds; none in lookupd mode."""
        return [self.nsqd(address) for address in self._options().nsqd_http_addresses]

    def nsqd(self, address: str) -> NsqdApi:
        return NsqdApi(self._http, address)

    async def producers(self) -> Answer[list[NodeInfo]]:
        found = await self.discovery.producers()
        producers = require(found, self.discovery.asks)
        return Answer(aggregate.sort_producers(producers), (found.errors,))

    async def producers_of(self, topic: str) -> Answer[list[NodeInfo]]:
        """Return who produces *topic*, which may be nobody; a topic nobody knows is an UnknownError."""
        found = await self.discovery.producers_of(topic)
        producers = require(found, self.discovery.asks)
        if producers is None:
            raise UnknownError(TOPIC_NOT_FOUND)
        return Answer(producers, (found.errors,))

    # -- topics and channels -----------------------------------------------------

    async def topics(self) -> Answer[list[str]]:
        found = await self.discovery.topics()
        return Answer(require(found, self.discovery.asks), (found.errors,))

    async def topic(self, topic: str) -> Answer[TopicRecord]:
        """Return the total of *topic*, with nodes and channels but without consumers."""
        producers = await self.producers_of(topic)
        found = await self._stats(producers.value, topic=topic, include_clients=False)
        stats = require(found, "nsqd")
        records = [record for producer, node in stats for record in self._records(producer, node)]
        if not records and found.errors:
            raise UpstreamError("nsqd", found.errors)
        total = aggregate.total_topic(topic, records)
        return Answer(total, (*producers.stages, found.errors))

    async def channel(self, topic: str, channel: str) -> Answer[ChannelRecord]:
        """Return the total of *channel*, with its consumers."""
        producers = await self.producers_of(topic)
        found = await self._stats(producers.value, topic=topic, channel=channel)
        stats = require(found, "nsqd")
        records = [
            record
            for producer, node in stats
            for topic_record in self._records(producer, node)
            for record in topic_record.channels
            if record.channel_name == channel
        ]
        stages = (*producers.stages, found.errors)
        if not records and found.errors:
            raise UpstreamError("nsqd", found.errors)
        if not records:
            raise UnknownError(CHANNEL_NOT_FOUND)
        return Answer(aggregate.total_channel(topic, channel, records), stages)

    async def registered_channels(self, topic: str) -> Answer[list[str]]:
        found = await self.discovery.channels(topic)
        return Answer(require(found, self.discovery.asks), (found.errors,))

    async def inactive_topics(self) -> Answer[dict[str, list[str]]]:
        """Return topics that no nsqd offers to consumers, with the channels registered for them."""
        if not self.uses_lookupd:
            return Answer({})
        names, producers = await asyncio.gather(self.topics(), self.producers())
        idle = _idle(names.value, producers.value)
        found = await ask_all(idle, self.discovery.channels, at_once=_IDLE_AT_ONCE)
        inner = tuple(error for _, channels in found.value for error in channels.errors)
        channels = {topic: channels.value for topic, channels in found.value}
        return Answer(channels, (*names.stages, *producers.stages, inner))

    # -- nodes --------------------------------------------------------------------

    async def nodes(self) -> Answer[list[NodeView]]:
        """Return all nsqds as they are listed, without asking them anything."""
        producers = await self.producers()
        old = self._out_of_date(producers.value)
        views = [NodeView(producer, producer.tcp_address in old, None, None) for producer in producers.value]
        return Answer(views, producers.stages)

    async def node(self, address: str) -> Answer[NodeView]:
        """Return one nsqd with all its topics, channels and consumers."""
        producers = await self.producers()
        producer = next((one for one in producers.value if one.http_address == address), None)
        if producer is None:
            raise UnknownError(NODE_NOT_FOUND)
        found = await self._stats([producer])
        ((_, stats),) = require(found, "nsqd")
        old = self._out_of_date(producers.value)
        topics = tuple(self._records(producer, stats))
        return Answer(NodeView(producer, producer.tcp_address in old, stats, None, topics), producers.stages)

    async def overview(self) -> Answer[Overview]:
        """Return everything at once, consumers only counted; silent nodes are part of the value."""
        producers, names = await asyncio.gather(self.producers(), self._registered_topics())
        found = await self._stats(producers.value, include_clients=False)
        stats = {producer.tcp_address: node for producer, node in found.value}
        failures = {error.address: error for error in found.errors}
        old = self._out_of_date(producers.value)
        nodes = tuple(
            NodeView(
                producer,
                producer.tcp_address in old,
                stats.get(producer.tcp_address),
                failures.get(producer.http_address),
                tuple(self._records(producer, stats[producer.tcp_address]))
                if producer.tcp_address in stats
                else (),
            )
            for producer in producers.value
        )
        totals = aggregate.total_topics(
            record
            for node in nodes
            for record in node.topics
            if record.topic_name not in _tombstoned(node.producer)
        )
        shown = {total.topic_name for total in totals}
        silent = {error.address: error for stage in producers.stages for error in stage}
        lookupds = tuple(
            LookupdView(lookupd.address, silent.get(lookupd.address)) for lookupd in self.lookupds()
        )
        return Answer(
            Overview(tuple(totals), tuple(name for name in names if name not in shown), nodes, lookupds),
            (*producers.stages, found.errors),
        )

    async def counter(self) -> Answer[list[ChannelRecord]]:
        """Return each channel on each node, for their message counts."""
        producers = await self.producers()
        found = await self._stats(producers.value, include_clients=False)
        stats = require(found, "nsqd")
        records = [
            channel
            for producer, node in stats
            for topic in self._records(producer, node)
            for channel in topic.channels
        ]
        return Answer(records, (*producers.stages, found.errors))

    # -- inside --------------------------------------------------------------------

    async def _registered_topics(self) -> list[str]:
        """Return the topics that may exist without an nsqd; who fails to say is known from the producers."""
        return (await self.discovery.topics()).value if self.uses_lookupd else []

    async def _stats(
        self, producers: list[NodeInfo], *, topic: str = "", channel: str = "", include_clients: bool = True
    ) -> Partial[list[tuple[NodeInfo, NodeStats]]]:
        return await ask_all(
            producers,
            lambda producer: self.nsqd(producer.http_address).stats(
                topic=topic, channel=channel, include_clients=include_clients
            ),
        )

    def _records(self, producer: NodeInfo, stats: NodeStats) -> list[TopicRecord]:
        now_s = int(self._now_s())
        return [aggregate.topic_on(producer, topic, now_s) for topic in stats.topics]

    def _out_of_date(self, producers: list[NodeInfo]) -> set[str]:
        # A fixed list of nsqds is the operator's own choice; only a discovered cluster is judged.
        return aggregate.out_of_date(producers) if self.uses_lookupd else set()


def _tombstoned(producer: NodeInfo) -> set[str]:
    return {registration.topic for registration in producer.topics if registration.tombstoned}


def _idle(names: list[str], producers: list[NodeInfo]) -> list[str]:
    offered = {
        registration.topic
        for producer in producers
        for registration in producer.topics
        if not registration.tombstoned
    }
    return [name for name in names if name not in offered]
