"""The page of a topic and the page of a channel."""

import time
from collections.abc import Callable
from typing import Any, Final

from nsqadmin.collecting.answers import Answer, UnknownError
from nsqadmin.collecting.consumers import PAGE_PATIENCE_S
from nsqadmin.collecting.views import lacking
from nsqadmin.history.recorder import channel as history_channel
from nsqadmin.history.recorder import topic as history_topic
from nsqadmin.pages import columns
from nsqadmin.pages.paging import window
from nsqadmin.pages.replies import Pages, channel_json, node_names, rows_json, topic_json, trend_json
from nsqadmin.pages.tables import Table
from nsqadmin.stats.activity import ActivityTracker
from nsqadmin.stats.consumers import Consumer
from nsqadmin.stats.groups import grouped, heats
from nsqadmin.stats.incidents import incidents
from nsqadmin.stats.records import ClientRecord
from nsqadmin.stats.slow import why_slow
from nsqadmin.stats.topic_records import channel_record, topic_record
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND
from nsqcore.http.api import Request, Response
from nsqcore.http.router import Route

# The channels of topics without producers change rarely, and each topic takes a request.
IDLE_AGE_S: Final = 15.0


class TopicPages(Pages):
    """``/topics/:topic`` and ``/topics/:topic/:channel``; remembers the activity of shown consumers."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._activity = ActivityTracker()

    def routes(self) -> list[Route]:
        return self.routes_of([("/topics/:topic", self.topic), ("/topics/:topic/:channel", self.channel)])

    async def topic(self, request: Request) -> Response:
        name = request.params["topic"]
        view = await self._cluster.queues.topic_view(name)
        registered: list[str] = []
        if not view.value.total.parts:
            registered = (await self._cluster.registrations.channels_of([name], age_s=IDLE_AGE_S)).value[name]
        row = view.value.total
        query = request.query
        channel_table = Table(columns.CHANNELS, query, lambda one: [one.name], prefix="channels-")
        node_table = Table(columns.TOPIC_NODES, query, node_names, prefix="nodes-")
        if not any(part.replicas for part in row.parts):
            node_table.columns = [column for column in node_table.columns if column.key != "replicas"]
        found = channel_table.apply(row.channels)
        found_nodes = node_table.apply(row.parts)
        channels = window(found, query.get("channels", ""))
        nodes = window(found_nodes, query.get("nodes", ""))
        span = query.get("span", "hour")
        charts = self._history.charts(history_topic(name), span)
        return self.page(
            request,
            "topic.html",
            view,
            shown=lambda: {
                **topic_record(row, lists=False),
                **trend_json(row.trend),
                **rows_json("channels", channels, channel_json),
                **rows_json("nodes", nodes, topic_json),
            },
            lists={"channels-": (channel_table, found), "nodes-": (node_table, found_nodes)},
            row=row,
            cards=incidents(
                self._cluster.problems_of(topic=name, nodes={one.address for one in view.value.stale})
            ),
            channels=channels,
            nodes=nodes,
            channel_table=channel_table,
            node_table=node_table,
            stale=view.value.stale,
            lacks={
                "depth": lacking(view.value.stale, lambda one: one.stats.depth),
                "waiting": lacking(
                    view.value.stale, lambda one: sum(each.depth for each in one.stats.channels)
                ),
                "in_flight": lacking(
                    view.value.stale, lambda one: sum(each.in_flight_count for each in one.stats.channels)
                ),
            },
            registered=registered,
            charts=charts,
            timeline=self._history.timeline(
                history_topic(name), span, [*view.value.shares, *(one.address for one in view.value.stale)]
            ),
            span=span,
            sparks=self._history.sparks([history_channel(name, one.name) for one in channels.items]),
        )

    async def channel(self, request: Request) -> Response:
        name, channel = request.params["topic"], request.params["channel"]
        try:
            total = await self._cluster.queues.channel(name, channel, PAGE_PATIENCE_S, as_summed=True)
        except UnknownError as error:
            if error.code == CHANNEL_NOT_FOUND and await self._is_registered(name, channel):
                return self._registered_channel(request, name, channel)
            raise
        view = (await self._cluster.queues.topic_view(name)).value
        row = total.value
        query = request.query
        node_table = Table(columns.SHARES, query, node_names, prefix="nodes-")
        consumer_table = Table(
            columns.CONSUMERS,
            {"consumers-cols": _CHANNELS_CONSUMERS, **query},
            lambda one: one.names,
            prefix="consumers-",
            sort="silent",
            descending=True,
        )
        found_nodes = node_table.apply(row.parts)
        every = [self._consumer(name, channel, client) for client in row.clients]
        found = consumer_table.apply(every)
        nodes = window(found_nodes, query.get("nodes", ""))
        consumers = window(found, query.get("consumers", ""))
        reasons = why_slow(row, every)
        by = query.get("by", "") if query.get("by", "") in _GROUPS else ""
        span = query.get("span", "hour")
        charts = self._history.charts(history_channel(name, channel), span)
        return self.page(
            request,
            "channel.html",
            total,
            shown=lambda: {
                **channel_record(row, lists=False),
                **trend_json(row.trend),
                **rows_json("nodes", nodes, channel_json),
                **rows_json("clients", consumers, Consumer.to_json),
                "reasons": reasons,
            },
            lists={"nodes-": (node_table, found_nodes), "consumers-": (consumer_table, found)},
            row=row,
            cards=incidents(
                self._cluster.problems_of(
                    topic=name, channel=channel, nodes={one.address for one in view.stale}
                )
            ),
            stale=[one for one in view.stale if one.channel(channel) is not None],
            lacks={
                key: lacking(view.stale, lambda one: getattr(one.channel(channel), key, 0))  # noqa: B023
                for key in ("depth", "in_flight_count", "deferred_count")
            },
            nodes=nodes,
            node_table=node_table,
            consumers=consumers,
            consumer_table=consumer_table,
            consumer_count=len(every),
            by=by,
            groups=grouped((_GROUPS[by](one), one) for one in every) if by else (),
            heat=list(zip(row.parts, heats([node.depth for node in row.parts]), strict=True)),
            reasons=reasons,
            charts=charts,
            timeline=self._history.timeline(
                history_channel(name, channel), span, [*view.shares, *(one.address for one in view.stale)]
            ),
            span=span,
        )

    async def _is_registered(self, topic: str, channel: str) -> bool:
        channels = await self._cluster.registrations.channels_of([topic], age_s=IDLE_AGE_S)
        return channel in channels.value[topic]

    def _registered_channel(self, request: Request, topic: str, channel: str) -> Response:
        """Show a channel that nsqlookupd knows but no nsqd has."""
        return self.page(
            request,
            "registered.html",
            Answer(None),
            shown=lambda: {"topic_name": topic, "channel_name": channel, "registered_only": True},
            topic=topic,
            channel=channel,
        )

    def _consumer(self, topic: str, channel: str, client: ClientRecord) -> Consumer:
        who = client.node, client.stats.remote_address, topic, channel
        activity = self._activity.note(who, client.stats.finish_count, time.monotonic())
        return Consumer(topic, channel, client, activity)


# The properties by which consumers can be grouped.
_GROUPS: Final[dict[str, Callable[[Consumer], str]]] = {
    "client": lambda one: one.stats.client_id or "none",
    "host": lambda one: one.stats.hostname or "none",
    "agent": lambda one: one.stats.user_agent or "none",
}
# The columns of consumers that are shown until a reader chooses; all consumers here are of one channel.
_CHANNELS_CONSUMERS: Final = (
    "address,state,agent,attributes,node,in_flight,ready,rate,silent,finished,requeued,connected"
)
