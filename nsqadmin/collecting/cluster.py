"""Questions about the cluster, answered from what was collected; what an action needs is asked afresh."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError, require
from nsqadmin.collecting.collector import FRESH_S, Collector
from nsqadmin.collecting.consumers import API_PATIENCE_S, Consumers
from nsqadmin.collecting.look import Look
from nsqadmin.collecting.members import Member, MemberList, listed_now, nameless, registered_topics
from nsqadmin.collecting.views import LookupdView, NodeView, Overview, StaleTopic, TopicView
from nsqadmin.figures import aggregate
from nsqadmin.figures.records import ChannelRecord, TopicRecord
from nsqadmin.figures.sums import ClusterSum, Order, TopicSum
from nsqadmin.options import OptionsNow
from nsqcore.cluster.discovery import Discovery, LookupdDiscovery, StaticDiscovery
from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, NodeStats, TopicStats
from nsqcore.cluster.nsqd_api import NsqdApi, stats_params
from nsqcore.cluster.nsqd_messages import NsqdMessages

T = TypeVar("T")

NODE_NOT_FOUND: Final = "NODE_NOT_FOUND"

# A page of a topic that nobody knows reloads itself; so often it is looked for.
UNKNOWN_S: Final = 5.0

_UNKNOWN_TOPIC: Final = b'{"message":"TOPIC_NOT_FOUND"}'
# These are sorted in a millisecond or two.
_FEW_TOPICS: Final = 1000
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

    def messages(self, address: str) -> NsqdMessages:
        return NsqdMessages(self._http, address)

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

    def topic_sum(self, topic: str) -> TopicSum | None:
        """Return how *topic* stands in the list of topics."""
        return self._collector.topic_sum(topic)

    def state(self, topic: str, channel: str) -> dict[str, Any]:
        """Say how a topic or channel is, in the few figures an audit keeps; empty when it is not there."""
        found = self._collector.topic_sum(topic)
        if found is None:
            return {}
        if not channel:
            return {"depth": found.depth, "channels": len(found.channels), "paused": found.paused}
        for one in found.channels:
            if one.channel_name == channel:
                return {"depth": one.depth, "in_flight": one.in_flight_count, "paused": one.paused}
        return {}

    async def changed(self, topic: str) -> None:
        """See to it that what was just changed about *topic* shows."""
        self._consumers.forget(topic)
        self._channels.pop(topic, None)
        await self._collector.changed(topic)

    async def topic_now(self, topic: str) -> Answer[TopicView]:
        """Return *topic* as it is at this moment, for who is about to change it."""
        return await self.topic_view(topic, FRESH_S)

    def silent_holders(self, topic: str) -> list[str]:
        """Return the nsqds that hold *topic* as far as is known, but cannot be told anything now."""
        holders = [member for member in self._holders(topic) if member.error is not None]
        return sorted({member.address for member in (*holders, *self._left_with(topic))})

    async def fresh_list(self) -> None:
        """Have who is there asked for, if that was done a while ago."""
        await self._collector.ready()
        await self._collector.fresh_list()

    async def fresh_figures(self) -> None:
        """Have the figures of all nodes asked for, if that was done a while ago."""
        await self._collector.ready()
        await self._collector.fresh_figures()

    @property
    def figures_at_s(self) -> float:
        """Return when the oldest figures were taken of those that pages show as current."""
        looks = [member.look for member in self._collector.members.values() if member.answers]
        return min((look.at_s for look in looks if look is not None), default=self._now_s())

    def dismiss(self, node: str) -> bool:
        """Miss a node that left no longer; tell whether it was missed."""
        return self._collector.dismiss(node)

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

    async def topic(self, topic: str, age_s: float = FRESH_S) -> Answer[TopicRecord]:
        """Return the total of *topic*, with nodes and channels but without consumers."""
        view = await self.topic_view(topic, age_s)
        return Answer(view.value.total, view.stages)

    async def topic_view(self, topic: str, age_s: float | None = None) -> Answer[TopicView]:
        """Return all that is known of *topic* but its consumers, with figures not older than *age_s*.

        Without an age they are those of the last round.
        """
        collector = self._collector
        await collector.ready()
        if not self._known(topic):
            # It may have been created since the last round; a topic that nobody knows is not asked for long.
            await collector.fresh_list(UNKNOWN_S if age_s is None else age_s)
        elif age_s is not None:
            await collector.fresh_topic(topic, age_s)
        lookup_stage = self._topic_lookups(topic)
        holders = self._holders(topic)
        silent = _errors(holders)
        left = self._left_with(topic)
        if not self._known(topic) and not silent and not left:
            self._registers()
            raise UnknownError(TOPIC_NOT_FOUND)
        shares = {
            member.address: member.look.share(topic, member.address)
            for member in holders
            if member.answers and member.look and topic in member.look.topics
        }
        records = [
            self._record(member, shares[member.address][0]) for member in holders if member.address in shares
        ]
        stale = [_stale(member, topic) for member in holders if member.error is not None]
        stale += [_stale(member, topic, has_left=True) for member in left]
        view = TopicView(
            aggregate.total_topic(topic, records),
            shares,
            tuple(one for one in stale if one is not None),
            collector.topic_sum(topic),
        )
        return Answer(view, (lookup_stage, silent))

    async def channel(
        self, topic: str, channel: str, patience_s: float = API_PATIENCE_S
    ) -> Answer[ChannelRecord]:
        """Return the total of *channel*, with its consumers."""
        view = await self.topic_view(topic)
        members = self._answering_holders(topic)
        if not any(self._holds(member, topic, channel) for member in members):
            # It may have been made since the last round.
            view = await self.topic_view(topic, FRESH_S)
            members = self._answering_holders(topic)
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

    def is_there(self, address: str) -> bool:
        """Tell whether an nsqd of the cluster is reached at *address*."""
        return self._member(address) is not None

    async def node_view(self, address: str) -> Answer[NodeView]:
        """Return one nsqd with its last good figures, which do not name consumers."""
        await self._collector.ready()
        member = self._member(address)
        if member is None:
            raise UnknownError(NODE_NOT_FOUND)
        listed = member.asked_at in self._collector.members
        return Answer(member.view(self._old_nodes(), listed=listed), (self._lookup_stage(),))

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

    async def node_body(self, address: str) -> Answer[tuple[NodeInfo, Callable[[], NodeStats]]]:
        """Ask one nsqd for all it has to tell, and return what reads its answer, which may be megabytes."""
        view = await self.node_view(address)
        member = self._member(address)
        if member is None:
            raise UnknownError(NODE_NOT_FOUND)
        if member.error is not None:
            raise UpstreamError("nsqd", [member.error])
        nsqd, params = self._collector.nsqd(member), stats_params()
        try:
            body = await nsqd.fetch_stats(params)
        except NodeError as error:
            raise UpstreamError("nsqd", [error]) from error
        return Answer((view.value.producer, lambda: nsqd.read_stats(body, params)), view.stages)

    async def overview(self) -> Answer[Overview]:
        """Return everything at once, consumers only counted; silent nodes are part of the value."""
        await self._collector.ready()
        collector = self._collector
        old = self._old_nodes()
        members = [member for member in collector.members.values() if member.producer or member.error]
        views = [member.view(old) for member in members]
        views += [
            member.view(old, listed=False)
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
            collector.troubles,
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

    async def ordered(
        self, total: ClusterSum, order: Order, apply: Callable[[Sequence[TopicSum]], list[TopicSum]]
    ) -> list[TopicSum]:
        """Return the topics as *apply* filters and sorts them; of thousands not while others wait."""
        if len(total.topics) < _FEW_TOPICS or total.has_order(order):
            return total.ordered(order, apply)
        return await self.in_thread(lambda: total.ordered(order, apply))

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Do what takes the processor for long where no other request waits for it."""
        return await self._collector.for_reader(call)

    # -- inside --------------------------------------------------------------------

    def _members(self) -> list[Member]:
        return sorted(self._collector.members.values(), key=lambda member: member.address)

    def _member(self, address: str) -> Member | None:
        everyone = (*self._collector.members.values(), *self._collector.unlisted.values())
        return next((member for member in everyone if member.address == address), None)

    def _registers_or_none(self) -> list[MemberList]:
        addresses = self._options().nsqlookupd_http_addresses
        return [self._collector.registers.get(address) or _unasked(address) for address in addresses]

    def _registers(self) -> list[MemberList]:
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

    def _answering_holders(self, topic: str) -> list[Member]:
        return [
            member
            for member in self._holders(topic)
            if member.answers and member.look and topic in member.look.topics
        ]

    def _holds(self, member: Member, topic: str, channel: str) -> bool:
        look = member.look
        return look is not None and any(one.channel_name == channel for one in look.topics[topic].channels)

    def _may_hold(self, member: Member, topic: str) -> bool:
        if not self.uses_lookupd or member.producer is None:
            return True
        return any(entry.topic == topic for entry in member.producer.topics)

    def _record(self, member: Member, stats: TopicStats) -> TopicRecord:
        producer = member.producer or nameless(member.asked_at)
        return aggregate.topic_on(producer, stats, int(self._now_s()))

    def _left_with(self, topic: str) -> list[Member]:
        """Return the nsqds that left and held *topic* when they did."""
        return [
            member
            for member in self._collector.unlisted.values()
            if not member.answers and member.look is not None and topic in member.look.topics
        ]

    def _old_nodes(self) -> set[str]:
        members = self._collector.members.values()
        return self._out_of_date([member.producer for member in members if member.producer])

    def _out_of_date(self, producers: list[NodeInfo]) -> set[str]:
        # A fixed list of nsqds is the operator's own choice; only a discovered cluster is judged.
        return aggregate.out_of_date(producers) if self.uses_lookupd else set()


def _errors(members: Iterable[Member]) -> tuple[NodeError, ...]:
    return tuple(member.error for member in members if member.error is not None)


def _register_errors(registers: Iterable[MemberList], path: str) -> tuple[NodeError, ...]:
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


def _unasked(address: str) -> MemberList:
    reason = "it has not answered yet"
    return MemberList(address, error=NodeError("GET", f"http://{address}/nodes", address, reason))


def _stale(member: Member, topic: str, *, has_left: bool = False) -> StaleTopic | None:
    """Return what a node held of *topic* when it last gave figures; None when it is not known."""
    look = member.look
    if look is None or topic not in look.topics:
        return None
    hostname = member.producer.hostname if member.producer else ""
    return StaleTopic(member.address, hostname, look.topics[topic], look.at_s, has_left)
