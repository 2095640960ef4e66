"""Questions about the cluster, answered from what was collected; what an action needs is asked afresh."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError, require
from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.consumers import API_PATIENCE_S, Consumers
from nsqadmin.collecting.look import Look
from nsqadmin.collecting.members import Member, Register, listed_now, registered_topics
from nsqadmin.collecting.views import LookupdView, NodeView, Overview, StaleTopic, TopicView
from nsqadmin.figures import aggregate
from nsqadmin.figures.records import ChannelRecord, TopicRecord
from nsqadmin.options import OptionsNow
from nsqcore.cluster.discovery import Discovery, LookupdDiscovery, StaticDiscovery
from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, NodeStats, TopicStats
from nsqcore.cluster.nsqd_api import NsqdApi

T = TypeVar("T")

NODE_NOT_FOUND: Final = "NODE_NOT_FOUND"

_UNKNOWN_TOPIC: Final = b'{"message":"TOPIC_NOT_FOUND"}'
# The channels of idle topics are asked for one by one; so many questions are out at a time.
_AT_ONCE: Final = 16


class Cluster:
    """The cluster that the options in force point at."""

    def __init__(
        self,
        http: ClusterHttp,
        options: OptionsNow,
        collector: Collector,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._options = options
        self._collector = collector
        self._consumers = Consumers(collector)
        self._now_s = now_s
        # Channels of idle topics, with the time they were asked for.
        self._channels: dict[str, tuple[float, list[str]]] = {}

    # -- who is there -----------------------------------------------------------

    @property
    def uses_lookupd(self) -> bool:
        return self._collector.uses_lookupd

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

    # -- asked afresh -------------------------------------------------------------

    async def producers(self) -> Answer[list[NodeInfo]]:
        """Return all nsqds as they are listed at this moment."""
        found = await self.discovery.producers()
        producers = require(found, self.discovery.asks)
        return Answer(aggregate.sort_producers(producers), (found.errors,))

    async def producers_of(self, topic: str) -> Answer[list[NodeInfo]]:
        """Return who produces *topic* at this moment, which may be nobody.

        A topic nobody knows is an UnknownError.
        """
        found = await self.discovery.producers_of(topic)
        producers = require(found, self.discovery.asks)
        if producers is None:
            raise UnknownError(TOPIC_NOT_FOUND)
        return Answer(producers, (found.errors,))

    async def changed(self, topic: str) -> None:
        """See to it that what was just changed about *topic* shows."""
        self._consumers.forget_all()
        self._channels.clear()
        await self._collector.refresh(topic)

    async def topic_now(self, topic: str) -> Answer[TopicRecord]:
        """Return the total of *topic* as it is at this moment, for who is about to change it."""
        await self._collector.refresh(topic)
        return await self.topic(topic)

    @property
    def figures_at_s(self) -> float:
        """Return when the oldest figures were taken of those that pages show as current."""
        looks = [member.look for member in self._collector.members.values() if member.answers]
        return min((look.at_s for look in looks if look is not None), default=self._now_s())

    def dismiss(self, node: str) -> bool:
        """Miss a node that left no longer; tell whether it was missed."""
        return self._collector.missing.dismiss(node)

    # -- topics and channels -----------------------------------------------------

    async def topics(self) -> Answer[list[str]]:
        await self._collector.ready()
        if not self.uses_lookupd:
            members = self._members()
            self._require_one(members)
            names = {
                name for member in members if member.answers and member.look for name in member.look.topics
            }
            return Answer(sorted(names), (_errors(members),))
        registers = self._registers()
        return Answer(
            sorted(registered_topics(one for one in registers if one.error is None)),
            (_register_errors(registers, "/topics"),),
        )

    async def topic(self, topic: str) -> Answer[TopicRecord]:
        """Return the total of *topic*, with nodes and channels but without consumers."""
        view = await self.topic_view(topic)
        return Answer(view.value.total, view.stages)

    async def topic_view(self, topic: str) -> Answer[TopicView]:
        """Return all that is known of *topic* but its consumers."""
        await self._collector.ready()
        lookup_stage = self._topic_lookups(topic)
        if not self._known(topic):
            # It may have been created since the last round.
            await self._collector.refresh(topic)
            lookup_stage = self._topic_lookups(topic)
        holders = self._holders(topic)
        silent = _errors(holders)
        if not self._known(topic) and not silent:
            raise UnknownError(TOPIC_NOT_FOUND)
        shares = {
            member.address: (member.look.topics[topic], member.look)
            for member in holders
            if member.answers and member.look and topic in member.look.topics
        }
        records = [
            self._record(member, shares[member.address][0]) for member in holders if member.address in shares
        ]
        stale = tuple(
            StaleTopic(
                member.address, member.producer.hostname if member.producer else "", found, member.look.at_s
            )
            for member in holders
            if member.error is not None and member.look and (found := member.look.topics.get(topic))
        )
        view = TopicView(aggregate.total_topic(topic, records), shares, stale)
        return Answer(view, (lookup_stage, silent))

    async def channel(
        self, topic: str, channel: str, patience_s: float = API_PATIENCE_S
    ) -> Answer[ChannelRecord]:
        """Return the total of *channel*, with its consumers."""
        view = await self.topic_view(topic)
        members = [
            member
            for member in self._holders(topic)
            if member.answers and member.look and topic in member.look.topics
        ]
        answers = await asyncio.gather(
            *(self._consumers.of_channel(member, topic, channel, patience_s) for member in members)
        )
        records: list[ChannelRecord] = []
        failed: list[NodeError] = []
        for member, answer in zip(members, answers, strict=True):
            stats = answer
            if isinstance(stats, NodeError):
                failed.append(stats)
            if stats is None or isinstance(stats, NodeError):
                # Its figures are known all the same, its consumers are not.
                stats = NodeStats(listed_topics=(view.value.shares[member.address][0],))
            records += [
                record
                for found in stats.topics
                for record in self._record(member, found).channels
                if record.channel_name == channel
            ]
        errors = tuple(dict.fromkeys((*view.stages[-1], *failed)))
        if not records and errors:
            raise UpstreamError("nsqd", errors)
        if not records:
            raise UnknownError(CHANNEL_NOT_FOUND)
        return Answer(aggregate.total_channel(topic, channel, records), (*view.stages[:-1], errors))

    async def registered_channels(self, topic: str) -> Answer[list[str]]:
        found = await self.discovery.channels(topic)
        return Answer(require(found, self.discovery.asks), (found.errors,))

    async def inactive_names(self) -> Answer[list[str]]:
        """Return topics that no nsqd offers to consumers."""
        if not self.uses_lookupd:
            return Answer([])
        names = await self.topics()
        offered = {
            entry.topic
            for producer in listed_now(self._registers())
            for entry in producer.topics
            if not entry.tombstoned
        }
        return Answer([name for name in names.value if name not in offered], names.stages)

    async def channels_of(self, topics: Iterable[str], *, age_s: float = 0.0) -> Answer[dict[str, list[str]]]:
        """Return the channels that are registered for each of *topics*, as they were at most *age_s* ago."""
        gate = asyncio.Semaphore(_AT_ONCE)
        now = time.monotonic()
        known = {key: value for key, value in self._channels.items() if now - value[0] < age_s}

        async def ask(topic: str) -> tuple[str, list[str], tuple[NodeError, ...]]:
            if topic in known:
                return topic, known[topic][1], ()
            async with gate:
                found = await self.discovery.channels(topic)
            if not found.errors:
                known[topic] = now, found.value
            return topic, found.value, found.errors

        answers = await asyncio.gather(*(ask(topic) for topic in topics))
        self._channels = known
        errors = tuple(error for _, _, errors in answers for error in errors)
        return Answer({topic: channels for topic, channels, _ in answers}, (errors,))

    async def inactive_topics(self) -> Answer[dict[str, list[str]]]:
        """Return topics that no nsqd offers to consumers, with the channels registered for them."""
        names = await self.inactive_names()
        channels = await self.channels_of(names.value)
        return Answer(channels.value, (*names.stages, *channels.stages))

    # -- nodes --------------------------------------------------------------------

    async def nodes(self) -> Answer[list[NodeView]]:
        """Return all nsqds as they are listed."""
        await self._collector.ready()
        if self.uses_lookupd:
            registers = self._registers()
            stage = _register_errors(registers, "/nodes")
            producers = listed_now(registers)
        else:
            members = self._members()
            self._require_one(members)
            stage = _errors(members)
            producers = [member.producer for member in members if member.producer and not member.error]
        old = self._out_of_date(producers)
        views = [
            NodeView(producer, producer.tcp_address in old)
            for producer in aggregate.sort_producers(producers)
        ]
        return Answer(views, (stage,))

    async def node_view(self, address: str) -> Answer[NodeView]:
        """Return one nsqd with its last good figures, which do not name consumers."""
        await self._collector.ready()
        member = self._member(address)
        if member is None or member.producer is None:
            raise UnknownError(NODE_NOT_FOUND)
        return Answer(self._view(member, self._old_nodes()), (self._lookup_stage(),))

    async def node_consumers(
        self, address: str, patience_s: float = API_PATIENCE_S
    ) -> NodeStats | NodeError | None:
        """Return one nsqd's figures with all its consumers; None when it has not answered in that time."""
        member = self._member(address)
        if member is None:
            raise UnknownError(NODE_NOT_FOUND)
        if member.error is not None:
            return member.error
        return await self._consumers.of_node(member, patience_s)

    async def node(self, address: str) -> Answer[tuple[NodeInfo, NodeStats]]:
        """Return one nsqd with all its topics, channels and consumers."""
        view = await self.node_view(address)
        stats = await self.node_consumers(address)
        if stats is None:
            stats = NodeError("GET", f"http://{address}/stats", address, "it takes too long to answer")
        if isinstance(stats, NodeError):
            raise UpstreamError("nsqd", [stats])
        return Answer((view.value.producer, stats), view.stages)

    async def overview(self) -> Answer[Overview]:
        """Return everything at once, consumers only counted; silent nodes are part of the value."""
        await self._collector.ready()
        collector = self._collector
        old = self._old_nodes()
        members = [member for member in collector.members.values() if member.producer or member.error]
        views = [self._view(member, old) for member in members]
        views += [
            self._view(member, old, listed=False)
            for member in collector.unlisted.values()
            if member.answers and member.producer is not None
        ]
        views.sort(key=lambda view: (view.producer.hostname, view.address))
        answering = {view.address for view in views}
        lookupds = tuple(LookupdView(one.address, one.error) for one in self._registers_or_none())
        if self.uses_lookupd and not members and lookupds and all(one.error for one in lookupds):
            raise UpstreamError("nsqlookupd", [one.error for one in lookupds if one.error])
        if not self.uses_lookupd:
            self._require_one(self._members())
        shown = Overview(
            collector.sum,
            tuple(collector.idle_topics()),
            tuple(views),
            tuple(one for one in collector.missing.at(self._now_s()) if one.address not in answering),
            lookupds,
        )
        return Answer(shown, (self._lookup_stage(), _errors(collector.members.values())))

    async def figures(self) -> Answer[list[tuple[str, Look]]]:
        """Return the figures of every nsqd that answers, by its address."""
        await self._collector.ready()
        members = self._members()
        stage = _register_errors(self._registers(), "/nodes")
        self._require_one(members)
        looks = [(member.address, member.look) for member in members if member.answers and member.look]
        return Answer(looks, (stage, _errors(members)))

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Do what takes the processor for long where no other request waits for it."""
        return await self._collector.in_thread(call)

    # -- inside --------------------------------------------------------------------

    def _members(self) -> list[Member]:
        return sorted(self._collector.members.values(), key=lambda member: member.address)

    def _member(self, address: str) -> Member | None:
        everyone = (*self._collector.members.values(), *self._collector.unlisted.values())
        return next((member for member in everyone if member.address == address), None)

    def _registers_or_none(self) -> list[Register]:
        addresses = self._options().nsqlookupd_http_addresses
        return [self._collector.registers.get(address) or _unasked(address) for address in addresses]

    def _registers(self) -> list[Register]:
        """Return what is known of each nsqlookupd; it is an UpstreamError when none of them answers."""
        registers = self._registers_or_none()
        if registers and all(one.error is not None for one in registers):
            raise UpstreamError("nsqlookupd", [one.error for one in registers if one.error is not None])
        return registers

    def _lookup_stage(self) -> tuple[NodeError, ...]:
        return tuple(one.error for one in self._registers_or_none() if one.error is not None)

    def _require_one(self, members: Iterable[Member]) -> None:
        """Raise UpstreamError when there are nsqds and none of them answers."""
        found = list(members)
        errors = _errors(found)
        if found and len(errors) == len(found):
            raise UpstreamError("nsqd", errors)

    def _known(self, topic: str) -> bool:
        if any(topic in one.topics for one in self._collector.registers.values()):
            return True
        return any(
            member.look is not None and topic in member.look.topics
            for member in self._collector.members.values()
        )

    def _topic_lookups(self, topic: str) -> tuple[NodeError, ...]:
        """Return which nsqlookupd does not answer, or answers that it does not know the topic."""
        errors: list[NodeError] = []
        registers = self._registers_or_none()
        somewhere = any(topic in one.topics for one in registers)
        for one in registers:
            if one.error is not None:
                errors.append(one.error)
            elif somewhere and topic not in one.topics:
                url = f"http://{one.address}/lookup?topic={topic}"
                errors.append(NodeError.from_status("GET", url, one.address, 404, _UNKNOWN_TOPIC))
        return tuple(errors)

    def _holders(self, topic: str) -> list[Member]:
        """Return the nsqds that offer *topic* to consumers, or would if they answered."""
        return [
            member
            for member in self._members()
            if topic not in member.tombstoned
            and (
                (member.look is not None and topic in member.look.topics)
                or (member.error is not None and self._may_hold(member, topic))
            )
        ]

    def _may_hold(self, member: Member, topic: str) -> bool:
        if not self.uses_lookupd or member.producer is None:
            return True
        return any(entry.topic == topic for entry in member.producer.topics)

    def _record(self, member: Member, stats: TopicStats) -> TopicRecord:
        producer = member.producer or _nameless(member.asked_at)
        return aggregate.topic_on(producer, stats, int(self._now_s()))

    def _view(self, member: Member, old: set[str], *, listed: bool = True) -> NodeView:
        producer = member.producer or _nameless(member.asked_at)
        return NodeView(
            producer,
            producer.tcp_address in old,
            member.look,
            member.error,
            member.silent_since_s,
            member.remaining,
            member.draining_from,
            listed,
        )

    def _old_nodes(self) -> set[str]:
        members = self._collector.members.values()
        return self._out_of_date([member.producer for member in members if member.producer])

    def _out_of_date(self, producers: list[NodeInfo]) -> set[str]:
        # A fixed list of nsqds is the operator's own choice; only a discovered cluster is judged.
        return aggregate.out_of_date(producers) if self.uses_lookupd else set()


def _errors(members: Iterable[Member]) -> tuple[NodeError, ...]:
    return tuple(member.error for member in members if member.error is not None)


def _register_errors(registers: Iterable[Register], path: str) -> tuple[NodeError, ...]:
    """Return who does not answer, said of the question that would have been asked."""
    return tuple(
        NodeError(
            one.error.verb,
            f"http://{one.address}{path}",
            one.address,
            one.error.reason,
            status=one.error.status,
            code=one.error.code,
        )
        for one in registers
        if one.error is not None
    )


def _unasked(address: str) -> Register:
    reason = "it has not answered yet"
    return Register(address, error=NodeError("GET", f"http://{address}/nodes", address, reason))


def _nameless(address: str) -> NodeInfo:
    host, _, port = address.rpartition(":")
    return NodeInfo(host.strip("[]"), "", 0, int(port), "")
