"""The pages people read. Each takes what was collected, judges it and hands both to its template."""

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from heapq import nlargest
from typing import Any, Final

from aiohttp import web

from nsqadmin.changes.alerts import Alerts, key_text
from nsqadmin.changes.audit import Deed
from nsqadmin.changes.desk import Desk
from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import NODE_NOT_FOUND, Cluster
from nsqadmin.collecting.consumers import PAGE_PATIENCE_S
from nsqadmin.collecting.views import NodeView
from nsqadmin.figures import attention
from nsqadmin.figures.activity import UNKNOWN, ActivityBook
from nsqadmin.figures.aggregate import consumer_on, topic_on
from nsqadmin.figures.attention import Concern, ShareState
from nsqadmin.figures.present import failure
from nsqadmin.figures.records import ClientRecord, JsonObject
from nsqadmin.figures.slow import why_slow
from nsqadmin.figures.sums import ClusterSum, TopicSum
from nsqadmin.figures.trend import Trend
from nsqadmin.history.recorder import channel as channel_course
from nsqadmin.history.recorder import node as node_course
from nsqadmin.history.recorder import topic as topic_course
from nsqadmin.pages import columns
from nsqadmin.pages.courses import Courses, name_of
from nsqadmin.pages.glance import NodeTile, by_zone, incident, tops, verdict
from nsqadmin.pages.kept import KeptFigures
from nsqadmin.pages.paging import Made, PageWindow, window
from nsqadmin.pages.render import Renderer
from nsqadmin.pages.rows import ChannelRow, ConsumerRow, NodeRow, TopicRow
from nsqadmin.pages.tables import Table
from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.models import ChannelStats
from nsqcore.service.httpapi import Request, Response, error_reply, json_reply, plain_reply
from nsqcore.service.logs import Log
from nsqcore.service.router import Route

Handler = Callable[[Request], Awaitable[Response]]

# Past this a list of troubles is no list any more; the tables below show them all.
_MOST_CONCERNS: Final = 12
# Of a draining node so many channels are named that are not empty.
_MOST_LEFT: Final = 20
# The channels of topics that nobody produces change rarely, and cost a question for each topic.
_IDLE_AGE_S: Final = 15.0


class Pages:
    """Handlers of the pages; the only thing they remember is the course of what is looked at."""

    def __init__(
        self, cluster: Cluster, desk: Desk, alerts: Alerts, render: Renderer, log: Log, courses: Courses
    ) -> None:
        self._desk = desk
        self._alerts = alerts
        self._cluster = cluster
        self._render = render
        self._courses = courses
        self._kept: KeptFigures[_Index] = KeptFigures()
        self._activity = ActivityBook()
        self._log = log

    def routes(self) -> list[Route]:
        table = [
            ("/", self.overview),
            ("/topics", self.topics),
            ("/topics/:topic", self.topic),
            ("/topics/:topic/:channel", self.channel),
            ("/nodes", self.nodes),
            ("/nodes/:node", self.node),
            ("/lookup", self.lookup),
            ("/counter", self.counter),
            ("/history", self.history),
            ("/audit", self.show_audit),
        ]
        # Each open page asks every two seconds; the log is for what happens.
        return [Route("GET", pattern, self.explaining(handler), logged=False) for pattern, handler in table]

    # -- the five pages ------------------------------------------------------------

    async def overview(self, request: Request) -> Response:
        return await self._topics(request, "overview.html")

    async def topics(self, request: Request) -> Response:
        return await self._topics(request, "topics.html")

    async def _topics(self, request: Request, template: str) -> Response:
        index, figures = await self._figures(request.query.get("held", ""))
        total, concerns = index.sum, index.concerns
        overview = template == "overview.html"
        if request.query.get("format") == "text":
            return plain_reply(incident(concerns, total.totals.depth, time.time(), total.totals.oldest_ns))
        table = Table(columns.TOPICS, request.query, lambda row: row.names)
        found = await self._cluster.ordered(total, table.order, table.apply)
        rows = window(found, request.query.get("page", ""))
        return self._page(
            request,
            template,
            Answer(None, (index.errors,)),
            shown=lambda: {
                "messages_per_second": total.totals.rate,
                "depth": total.totals.depth,
                "in_flight_count": total.totals.in_flight,
                "deferred_count": total.totals.deferred,
                "client_count": total.totals.consumers,
                "nodes": index.node_count,
                "concerns": [concern.to_json() for concern in concerns],
                **_rows_json("topics", rows, TopicSum.to_json),
            },
            lists={"": (table, found)},
            rows=rows,
            table=table,
            topic_count=len(total.rows),
            sum=total.totals,
            concerns=concerns[:_MOST_CONCERNS],
            concern_count=len(concerns),
            verdict=verdict(
                [one for one in concerns if not self._alerts.muted_until(one)],
                total.totals.depth,
                time.time(),
                total.totals.oldest_ns,
            ),
            alerting=True,
            picking=not overview,
            muted=self._alerts.muted_until,
            trouble_key=lambda one: key_text(one.key),
            charts=self._courses.charts(span=request.query.get("span", "hour")) if overview else (),
            span=request.query.get("span", "hour"),
            sparks=self._courses.sparks([topic_course(row.name) for row in rows.items]),
            tops=tops(total) if overview else (),
            zones=index.zones if overview else (),
            node_count=index.node_count,
            at_s=index.at_s,
            figures=figures,
        )

    async def _figures(self, held: str) -> tuple["_Index", str]:
        """Return the first page's figures as they are, or as a reader holds them, and their number."""
        now_s = time.monotonic()
        if held and (kept := self._kept.held(held, now_s)) is not None:
            return kept, held
        overview = await self._cluster.overview()
        seen = overview.value
        # Who does not answer is among what needs attention; it need not be warned of twice.
        index = _Index(
            seen.sum,
            seen.troubles,
            len(seen.nodes),
            (),
            self._cluster.figures_at_s,
            by_zone([NodeRow(node) for node in seen.nodes]),
        )
        return index, self._kept.keep(index, seen.sum, now_s)

    async def topic(self, request: Request) -> Response:
        name = request.params["topic"]
        view = await self._cluster.topic_view(name)
        registered: list[str] = []
        if not view.value.total.nodes:
            registered = (await self._cluster.channels_of([name], age_s=_IDLE_AGE_S)).value[name]
        row = TopicRow.of(view.value)
        query = request.query
        channel_table = Table(columns.CHANNELS, query, lambda one: [one.name], prefix="channels-")
        node_table = Table(columns.TOPIC_NODES, query, _node_names, prefix="nodes-")
        found = channel_table.apply(row.channels)
        found_nodes = node_table.apply(row.nodes)
        channels = window(found, query.get("channels", ""))
        nodes = window(found_nodes, query.get("nodes", ""))
        span = query.get("span", "hour")
        charts = self._courses.charts(topic_course(name), span)
        return self._page(
            request,
            "topic.html",
            view,
            shown=lambda: {
                **{key: value for key, value in row.record.to_json().items() if key not in _LISTS},
                **_trend_json(row.trend),
                **_rows_json("channels", channels, _channel_json),
                **_rows_json("nodes", nodes, _topic_json),
            },
            lists={"channels-": (channel_table, found), "nodes-": (node_table, found_nodes)},
            row=row,
            channels=channels,
            nodes=nodes,
            channel_table=channel_table,
            node_table=node_table,
            stale=view.value.stale,
            registered=registered,
            charts=charts,
            span=span,
            sparks=self._courses.sparks([channel_course(name, one.name) for one in channels.items]),
        )

    async def channel(self, request: Request) -> Response:
        name, channel = request.params["topic"], request.params["channel"]
        try:
            total = await self._cluster.channel(name, channel, PAGE_PATIENCE_S)
        except UnknownError as error:
            if error.code == CHANNEL_NOT_FOUND and await self._is_registered(name, channel):
                return self._registered_channel(request, name, channel)
            raise
        view = (await self._cluster.topic_view(name)).value
        row = ChannelRow.of(total.value, view)
        query = request.query
        node_table = Table(columns.SHARES, query, _node_names, prefix="nodes-")
        consumer_table = Table(
            columns.CONSUMERS,
            {"consumers-cols": _CHANNELS_CONSUMERS, **query},
            lambda one: one.names,
            prefix="consumers-",
            sort="silent",
            descending=True,
        )
        found_nodes = node_table.apply(row.nodes)
        every = [self._consumer(name, channel, client) for client in row.record.clients]
        found = consumer_table.apply(every)
        nodes = window(found_nodes, query.get("nodes", ""))
        consumers = window(found, query.get("consumers", ""))
        reasons = self._reasons(row, every)
        span = query.get("span", "hour")
        charts = self._courses.charts(channel_course(name, channel), span)
        return self._page(
            request,
            "channel.html",
            total,
            shown=lambda: {
                **{key: value for key, value in row.record.to_json().items() if key not in _LISTS},
                **_trend_json(row.trend),
                **_rows_json("nodes", nodes, _channel_json),
                **_rows_json("clients", consumers, ConsumerRow.to_json),
                "reasons": reasons,
            },
            lists={"nodes-": (node_table, found_nodes), "consumers-": (consumer_table, found)},
            row=row,
            stale=view.stale,
            nodes=nodes,
            node_table=node_table,
            consumers=consumers,
            consumer_table=consumer_table,
            consumer_count=len(every),
            reasons=reasons,
            charts=charts,
            span=span,
        )

    async def _is_registered(self, topic: str, channel: str) -> bool:
        channels = await self._cluster.channels_of([topic], age_s=_IDLE_AGE_S)
        return channel in channels.value[topic]

    def _registered_channel(self, request: Request, topic: str, channel: str) -> Response:
        """Show a channel that nsqlookupd knows and no nsqd has."""
        return self._page(
            request,
            "registered.html",
            Answer(None),
            shown=lambda: {"topic_name": topic, "channel_name": channel, "registered_only": True},
            topic=topic,
            channel=channel,
        )

    async def nodes(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value
        # The worst come first until a reader sorts: dead nodes are what one comes here for.
        usual = {"sort": "urgency", "dir": "desc"} if "sort" not in request.query else {}
        table = Table(columns.NODES, {**request.query, **usual}, lambda row: row.names)
        if not self._cluster.uses_lookupd:
            table.columns = [column for column in table.columns if column.key != "listed"]
        found = table.apply([NodeRow(node) for node in seen.nodes])
        rows = window(found, request.query.get("page", ""))
        return self._page(
            request,
            "nodes.html",
            overview,
            shown=lambda: {
                "missing": [one.address for one in seen.missing],
                "nsqlookupds": [
                    {"address": one.address, "answers": one.error is None} for one in seen.lookupds
                ],
                **_rows_json("nodes", rows, NodeRow.to_json),
            },
            lists={"": (table, found)},
            rows=rows,
            table=table,
            node_count=len(seen.nodes),
            silent=[node.address for node in seen.nodes if node.error is not None],
            missing=[(one, attention.of_missing(one, time.time())) for one in seen.missing],
            lookupds=seen.lookupds,
            known=[node.error for node in seen.nodes if node.error],
        )

    async def node(self, request: Request) -> Response:
        address = request.params["node"]
        view = await self._cluster.node_view(address)
        row = NodeRow(view.value)
        held = row.look.topics if row.look is not None else {}
        names = window(sorted(held), request.query.get("page", ""))
        now_s = int(time.time())
        topics = [
            TopicRow.on_node(topic_on(row.producer, held[name], now_s), row.look.share(name, address))
            for name in names.items
            if row.look is not None
        ]
        consumer_table = Table(
            columns.CONSUMERS,
            {"consumers-cols": _NODES_CONSUMERS, **request.query},
            lambda one: one.names,
            prefix="consumers-",
            sort="none",
        )
        every, unknown = await self._consumers(view.value)
        found: Sequence[ConsumerRow] = every
        if consumer_table.wanted or consumer_table.sort != "none":
            found = consumer_table.apply(every)
        consumers = window(found, request.query.get("consumers", ""))
        return self._page(
            request,
            "node.html",
            view,
            shown=lambda: {
                **row.to_json(),
                **_rows_json("topics", PageWindow(topics, names.total, names.number), _topic_json),
                **_rows_json("clients", consumers, ConsumerRow.to_json),
            },
            lists={"consumers-": (consumer_table, found)},
            row=row,
            topics=topics,
            names=names,
            consumers=consumers,
            consumer_table=consumer_table,
            consumer_count=len(every),
            consumers_unknown=unknown,
            left=_left(row) if row.drained is not None else (),
            charts=self._courses.charts(node_course(address), request.query.get("span", "hour")),
            span=request.query.get("span", "hour"),
            known=[row.error] if row.error is not None else [],
        )

    async def _consumers(self, view: NodeView) -> tuple[Sequence[ConsumerRow], str]:
        """Return a node's consumers, each with its channel, or why they are not known."""
        stats = await self._cluster.node_consumers(view.address, PAGE_PATIENCE_S)
        if stats is None:
            return [], "it was asked just now"
        if isinstance(stats, NodeError):
            return [], stats.reason
        now_s = int(time.time())
        places = [
            (topic.topic_name, channel.channel_name, client)
            for topic in stats.topics
            for channel in topic.channels
            for client in channel.clients
        ]
        # Of thousands only those that are shown are made into rows.
        return Made(
            places,
            lambda one: ConsumerRow(one[0], one[1], consumer_on(view.producer, one[2], now_s), UNKNOWN),
        ), ""

    def _consumer(self, topic: str, channel: str, client: ClientRecord) -> ConsumerRow:
        who = client.node, client.stats.remote_address, topic, channel
        activity = self._activity.note(who, client.stats.finish_count, time.monotonic())
        return ConsumerRow(topic, channel, client, activity)

    def _reasons(self, row: ChannelRow, consumers: Sequence[ConsumerRow]) -> list[str]:
        shares = [
            ShareState(
                node.record.node,
                node.record.depth,
                node.record.client_count,
                node.record.in_flight_count,
                node.trend.finished if node.trend else None,
                node.trend.span_s if node.trend else 0.0,
                0.0,
            )
            for node in row.nodes
        ]
        return why_slow(
            row.record.depth,
            row.trend,
            shares,
            [one.state for one in consumers],
            paused=row.record.paused,
            complete=len(consumers) >= row.record.client_count,
        )

    # -- the others ------------------------------------------------------------------

    async def lookup(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        names = window(overview.value.sum.idle, request.query.get("page", ""))
        channels = await self._cluster.channels_of(names.items, age_s=_IDLE_AGE_S)
        return self._page(
            request,
            "lookup.html",
            overview,
            shown=lambda: {
                "nsqlookupds": [
                    {"address": one.address, "answers": one.error is None} for one in overview.value.lookupds
                ],
                **_rows_json(
                    "inactive", names, lambda name: {"topic": name, "channels": channels.value[name]}
                ),
            },
            lookupds=overview.value.lookupds,
            names=names,
            idle=channels.value,
        )

    async def history(self, request: Request) -> Response:
        """Answer the course of a topic, a channel, a node or the whole, for the script that draws it."""
        span = request.query.get("span", "hour")
        return json_reply(self._courses.figures(name_of(request.query), span))

    async def show_audit(self, request: Request) -> Response:
        self._desk.check(request, "audit")
        deeds = self._desk.audit.latest()
        table = Table(
            columns.DEEDS, request.query, lambda deed: [deed.user, deed.subject, deed.action], sort=""
        )
        found = table.apply(deeds)
        rows = window(found, request.query.get("page", ""))
        return self._page(
            request,
            "audit.html",
            Answer(None),
            shown=lambda: _rows_json("changes", rows, Deed.to_json),
            lists={"": (table, found)},
            rows=rows,
            table=table,
            deed_count=len(deeds),
        )

    async def counter(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value.sum.totals
        return self._page(
            request,
            "counter.html",
            overview,
            shown=lambda: {"message_count": seen.channel_messages, "messages_per_second": seen.channel_rate},
            total=seen.channel_messages,
            rate=seen.channel_rate,
        )

    # -- what all of them need ---------------------------------------------------------

    def explaining(self, handler: Handler) -> Callable[[Request], Any]:
        """Turn the ways of having no answer into a page that says so and leads on."""

        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except UnknownError as error:
                if _wants_json(request):
                    return error_reply(404, error.code)
                return self._render.page(
                    request,
                    "problem.html",
                    status=404,
                    problem=_unknown(error.code, request),
                    **_place(request),
                )
            except UpstreamError as error:
                self._log.error("%s", error)
                if _wants_json(request):
                    return error_reply(502, f"UPSTREAM_ERROR: {error}")
                return self._render.page(
                    request,
                    "problem.html",
                    status=502,
                    problem=f"No {error.kind} answered, so there is nothing to show.",
                    warnings=self.sentences(error.errors),
                    **_place(request),
                )

        return answer

    def sentences(self, errors: Iterable[NodeError]) -> list[str]:
        """Say for each error which node is meant; one node is named once."""
        lookupds = {lookupd.address for lookupd in self._cluster.lookupds()}
        return list(
            dict.fromkeys(
                failure(error, "nsqlookupd" if error.address in lookupds else "nsqd") for error in errors
            )
        )

    def _page(
        self,
        request: Request,
        template: str,
        answer: Answer[Any],
        *,
        shown: Callable[[], JsonObject],
        known: Sequence[NodeError] = (),
        at_s: float | None = None,
        lists: Mapping[str, tuple[Table[Any], Sequence[Any]]] | None = None,
        **context: Any,
    ) -> Response:
        """Reply with the page, or with its figures as JSON or one of its *lists* as CSV."""
        at_s = self._cluster.figures_at_s if at_s is None else at_s
        warnings = self._warnings(answer, known)
        if _wants_json(request):
            return json_reply({"figures_at": round(at_s, 3), "warnings": warnings, **shown()})
        if request.query.get("format") == "csv":
            return _csv_reply(request, lists or {})
        return self._render.page(request, template, warnings=warnings, at_s=at_s, **context)

    def _warnings(self, answer: Answer[Any], known: Sequence[NodeError]) -> list[str]:
        """Say whose figures are missing. An nsqlookupd has none; while another answers nothing is missing."""
        lookupds = {lookupd.address for lookupd in self._cluster.lookupds()}
        silent = {
            error.address
            for error in answer.errors
            if error.address in lookupds and error.code != TOPIC_NOT_FOUND
        }
        unneeded = silent if silent != lookupds else set()
        return self.sentences(
            error for error in answer.errors if error not in known and error.address not in unneeded
        )


@dataclass(frozen=True, slots=True)
class _Index:
    """What the first page shows. It is kept for who holds the page, so it refers to no node's figures."""

    sum: ClusterSum
    concerns: Sequence[Concern]
    node_count: int
    errors: tuple[NodeError, ...]
    at_s: float
    zones: list[tuple[str, list[NodeTile]]]


# What is shown of consumers until a reader chooses; on a channel's page all are of that channel.
_CHANNELS_CONSUMERS: Final = (
    "address,state,agent,attributes,node,in_flight,ready,rate,silent,finished,requeued,connected"
)
_NODES_CONSUMERS: Final = "channel,address,agent,attributes,in_flight,ready,finished,requeued,connected"


def _left(row: NodeRow) -> list[tuple[str, ChannelStats]]:
    """Return what keeps a draining node from being empty, the most first."""
    topics = row.look.topics.values() if row.look is not None else ()
    found = [(topic.topic_name, one) for topic in topics for one in topic.channels if one.owed]
    return nlargest(_MOST_LEFT, found, key=lambda one: one[1].owed)


def _node_names(row: ChannelRow | TopicRow) -> list[str]:
    return [row.record.node, row.record.hostname]


def _csv_reply(request: Request, lists: Mapping[str, tuple[Table[Any], Sequence[Any]]]) -> Response:
    """Reply with all rows of a list, filtered and sorted as on the page."""
    found = lists.get(request.query.get("list", ""))
    if found is None:
        return error_reply(404, "LIST_NOT_FOUND")
    table, rows = found
    name = "-".join(re.findall(r"[A-Za-z0-9._]+", request.target.partition("?")[0])) or "topics"
    return web.Response(
        body=table.csv(rows).encode(),
        headers={
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="nsq-{name}.csv"',
        },
    )


# Left out of a page's JSON where the page shows a part of them, which is there instead.
_LISTS: Final = frozenset({"nodes", "channels", "clients"})


def _rows_json(key: str, rows: PageWindow[Any], one: Callable[[Any], JsonObject]) -> JsonObject:
    return {key: [one(row) for row in rows.items], f"{key}_total": rows.total, f"{key}_first": rows.first}


def _trend_json(trend: Trend | None) -> JsonObject:
    return {
        "messages_per_second": trend.messages if trend else None,
        "finished_per_second": trend.finished if trend else None,
    }


def _channel_json(row: ChannelRow) -> JsonObject:
    record = {key: value for key, value in row.record.to_json().items() if key not in _LISTS}
    return {
        **record,
        **_trend_json(row.trend),
        "oldest_message_time": row.record.oldest_ns,
        "state": [concern.mark for concern in row.concerns],
    }


def _topic_json(row: TopicRow) -> JsonObject:
    record = {key: value for key, value in row.record.to_json().items() if key not in _LISTS}
    return {
        **record,
        "messages_per_second": row.trend.messages if row.trend else None,
        "channels": [_channel_json(channel) for channel in row.channels],
    }


def _wants_json(request: Request) -> bool:
    return request.query.get("format") == "json"


def _unknown(code: str, request: Request) -> str:
    params = request.params
    if code == CHANNEL_NOT_FOUND:
        return f"Topic {params.get('topic', '')} has no channel {params.get('channel', '')}."
    if code == NODE_NOT_FOUND:
        return f"No nsqd of this cluster is reached at {params.get('node', '')}."
    if code == TOPIC_NOT_FOUND:
        return f"There is no topic {params.get('topic') or request.query.get('topic', '')}."
    return "There is nothing here."


def _place(request: Request) -> dict[str, Any]:
    """Say where the reader is, for the breadcrumb."""
    params = request.params
    return {
        "topic": params.get("topic", ""),
        "channel": params.get("channel", ""),
        "node": params.get("node", ""),
    }
