"""The pages people read. Each takes what was collected, judges it and hands both to its template."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import Any, Final

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import NODE_NOT_FOUND, Cluster
from nsqadmin.collecting.consumers import PAGE_PATIENCE_S
from nsqadmin.collecting.views import NodeView, Overview
from nsqadmin.figures import attention
from nsqadmin.figures.aggregate import consumer_on, topic_on
from nsqadmin.figures.attention import Concern
from nsqadmin.figures.history import Curve, HistoryBook, Point, curve
from nsqadmin.figures.present import failure
from nsqadmin.figures.records import JsonObject
from nsqadmin.figures.sums import ClusterSum, TopicSum, sort_topics
from nsqadmin.figures.trend import Trend
from nsqadmin.pages.kept import KeptFigures
from nsqadmin.pages.paging import PAGE_SIZE, Window, page_number, window
from nsqadmin.pages.render import Renderer
from nsqadmin.pages.rows import ChannelRow, NodeRow, TopicRow, concerns_of
from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.service.httpapi import Request, Response, json_reply
from nsqcore.service.logs import Log
from nsqcore.service.router import Route

Handler = Callable[[Request], Awaitable[Response]]

# Past this a list of troubles is no list any more; the tables below show them all.
_MOST_CONCERNS: Final = 12
# The channels of topics that nobody produces change rarely, and cost a question for each topic.
_IDLE_AGE_S: Final = 15.0


class Pages:
    """Handlers of the pages; the only thing they remember is the course of what is looked at."""

    def __init__(self, cluster: Cluster, render: Renderer, log: Log) -> None:
        self._cluster = cluster
        self._render = render
        self._histories = HistoryBook()
        self._kept: KeptFigures[_Index] = KeptFigures()
        self._log = log

    def routes(self) -> list[Route]:
        table = [
            ("/", self.topics),
            ("/topics", self.topics),
            ("/topics/:topic", self.topic),
            ("/topics/:topic/:channel", self.channel),
            ("/nodes", self.nodes),
            ("/nodes/:node", self.node),
            ("/lookup", self.lookup),
            ("/counter", self.counter),
        ]
        # Each open page asks every two seconds; the log is for what happens.
        return [Route("GET", pattern, self.explaining(handler), logged=False) for pattern, handler in table]

    # -- the five pages ------------------------------------------------------------

    async def topics(self, request: Request) -> Response:
        index, figures = await self._figures(request.query.get("held", ""))
        total, concerns = index.sum, index.concerns
        idle = [TopicSum(name, is_idle=True) for name in index.idle_topics]
        every = sorted([*total.rows, *idle], key=lambda row: row.name.lower()) if idle else total.rows
        wanted = request.query.get("q", "").strip()
        sort, descending = request.query.get("sort", "name"), request.query.get("dir") == "desc"
        found = [row for row in every if row.matches(wanted.lower())] if wanted else every
        rows = window(sort_topics(found, sort, descending=descending), request.query.get("page", ""))
        return self._page(
            request,
            "topics.html",
            Answer(None, (index.errors,)),
            shown=lambda: {
                "messages_per_second": total.rate,
                "depth": total.depth,
                "in_flight_count": total.in_flight,
                "deferred_count": total.deferred,
                "client_count": total.consumers,
                "nodes": index.node_count,
                "concerns": [concern.to_json() for concern in concerns],
                **_rows_json("topics", rows, TopicSum.to_json),
            },
            rows=rows,
            topic_count=len(every),
            sum=total,
            concerns=concerns[:_MOST_CONCERNS],
            concern_count=len(concerns),
            wanted=wanted,
            sort=sort,
            descending=descending,
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
        # An nsqd that does not answer is a concern of its own; it need not be warned of twice.
        known = [node.error for node in seen.nodes if node.error]
        index = _Index(
            seen.sum,
            seen.idle_topics,
            self._concerns(seen),
            len(seen.nodes),
            tuple(error for error in overview.errors if error not in known),
            self._cluster.figures_at_s,
        )
        return index, self._kept.keep(index, seen.sum, now_s)

    async def topic(self, request: Request) -> Response:
        name = request.params["topic"]
        view = await self._cluster.topic_view(name)
        registered: list[str] = []
        if not view.value.total.nodes:
            registered = (await self._cluster.channels_of([name], age_s=_IDLE_AGE_S)).value[name]
        row = TopicRow.of(view.value)
        channels = window(row.channels, request.query.get("channels", ""))
        nodes = window(row.nodes, request.query.get("nodes", ""))
        curves = self._curves((name, ""), row.depth - row.record.depth, row.trend)
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
            row=row,
            channels=channels,
            nodes=nodes,
            stale=view.value.stale,
            registered=registered,
            curves=curves,
        )

    async def channel(self, request: Request) -> Response:
        name, channel = request.params["topic"], request.params["channel"]
        total = await self._cluster.channel(name, channel, PAGE_PATIENCE_S)
        row = ChannelRow.of(total.value, (await self._cluster.topic_view(name)).value.shares)
        nodes = window(row.nodes, request.query.get("nodes", ""))
        consumers = window(row.record.clients, request.query.get("consumers", ""))
        curves = self._curves((name, channel), row.record.depth, row.trend)
        return self._page(
            request,
            "channel.html",
            total,
            shown=lambda: {
                **{key: value for key, value in row.record.to_json().items() if key not in _LISTS},
                **_trend_json(row.trend),
                **_rows_json("nodes", nodes, _channel_json),
                **_rows_json("clients", consumers, lambda client: client.to_json()),
            },
            row=row,
            nodes=nodes,
            consumers=consumers,
            curves=curves,
        )

    async def nodes(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value
        rows = window([NodeRow(node) for node in seen.nodes], request.query.get("page", ""))
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
            rows=rows,
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
            TopicRow.on_node(topic_on(row.producer, held[name], now_s), (held[name], row.look))
            for name in names.items
            if row.look is not None
        ]
        consumers, unknown = await self._consumers(view.value, request.query.get("consumers", ""))
        return self._page(
            request,
            "node.html",
            view,
            shown=lambda: {
                **row.to_json(),
                **_rows_json("topics", Window(topics, names.total, names.number), _topic_json),
                **_rows_json(
                    "clients", consumers, lambda pair: {**_place_json(pair[0]), **pair[1].to_json()}
                ),
            },
            row=row,
            topics=topics,
            names=names,
            consumers=consumers,
            consumers_unknown=unknown,
            known=[row.error] if row.error is not None else [],
        )

    async def _consumers(self, view: NodeView, wanted: str) -> tuple[Window[Any], str]:
        """Return a part of a node's consumers, each with its channel, or why they are not known."""
        stats = await self._cluster.node_consumers(view.address, PAGE_PATIENCE_S)
        if stats is None:
            return Window((), 0), "it was asked just now"
        if isinstance(stats, NodeError):
            return Window((), 0), stats.reason
        total = sum(len(channel.clients) for topic in stats.topics for channel in topic.channels)
        number = page_number(wanted, total)
        pairs = (
            (_Place(topic.topic_name, channel.channel_name), client)
            for topic in stats.topics
            for channel in topic.channels
            for client in channel.clients
        )
        now_s = int(time.time())
        # Of thousands only those on the page are made into records.
        part = [
            (place, consumer_on(view.producer, client, now_s))
            for place, client in islice(pairs, (number - 1) * PAGE_SIZE, number * PAGE_SIZE)
        ]
        return Window(part, total, number), ""

    # -- the others ------------------------------------------------------------------

    async def lookup(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        names = window(list(overview.value.idle_topics), request.query.get("page", ""))
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

    async def counter(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value.sum
        return self._page(
            request,
            "counter.html",
            overview,
            shown=lambda: {"message_count": seen.channel_messages, "messages_per_second": seen.channel_rate},
            total=seen.channel_messages,
            rate=seen.channel_rate,
        )

    def _concerns(self, seen: Overview) -> list[Concern]:
        """Return all that deserves attention, nodes before queues."""
        now_s = time.time()
        nodes = [concern for node in seen.nodes for concern in concerns_of(node)]
        nodes += [attention.of_missing(one, now_s) for one in seen.missing]
        return attention.worst_first([*nodes, *seen.sum.concerns])

    # -- what all of them need ---------------------------------------------------------

    def explaining(self, handler: Handler) -> Callable[[Request], Any]:
        """Turn the ways of having no answer into a page that says so and leads on."""

        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except UnknownError as error:
                return self._render.page(
                    request,
                    "problem.html",
                    status=404,
                    problem=_unknown(error.code, request),
                    **_place(request),
                )
            except UpstreamError as error:
                self._log.error("%s", error)
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
        **context: Any,
    ) -> Response:
        """Reply with the page, or with its figures as JSON when that is asked for."""
        at_s = self._cluster.figures_at_s if at_s is None else at_s
        warnings = self.sentences(error for error in answer.errors if error not in known)
        if request.query.get("format") == "json":
            return json_reply({"figures_at": round(at_s, 3), "warnings": warnings, **shown()})
        return self._render.page(request, template, warnings=warnings, at_s=at_s, **context)

    def _curves(self, subject: tuple[str, str], depth: int, trend: Trend | None) -> dict[str, Curve | None]:
        now_ns = time.monotonic_ns()
        point = Point(now_ns, depth, trend.messages if trend else None)
        points = self._histories.add(subject, point)
        return {
            "rate": curve(points, [point.rate for point in points], now_ns),
            "depth": curve(points, [point.depth for point in points], now_ns),
        }


@dataclass(frozen=True, slots=True)
class _Index:
    """What the first page shows. It is kept for who holds the page, so it refers to no node's figures."""

    sum: ClusterSum
    idle_topics: tuple[str, ...]
    concerns: list[Concern]
    node_count: int
    errors: tuple[NodeError, ...]
    at_s: float


class _Place:
    """The channel that a consumer of a node reads."""

    def __init__(self, topic: str, channel: str) -> None:
        self.topic_name = topic
        self.channel_name = channel


# Left out of a page's JSON where the page shows a part of them, which is there instead.
_LISTS: Final = frozenset({"nodes", "channels", "clients"})


def _rows_json(key: str, rows: Window[Any], one: Callable[[Any], JsonObject]) -> JsonObject:
    return {key: [one(row) for row in rows.items], f"{key}_total": rows.total, f"{key}_first": rows.first}


def _trend_json(trend: Trend | None) -> JsonObject:
    return {
        "messages_per_second": trend.messages if trend else None,
        "finished_per_second": trend.finished if trend else None,
    }


def _channel_json(row: ChannelRow) -> JsonObject:
    record = {key: value for key, value in row.record.to_json().items() if key not in _LISTS}
    return {**record, **_trend_json(row.trend), "state": [concern.mark for concern in row.concerns]}


def _topic_json(row: TopicRow) -> JsonObject:
    record = {key: value for key, value in row.record.to_json().items() if key not in _LISTS}
    return {
        **record,
        "messages_per_second": row.trend.messages if row.trend else None,
        "channels": [_channel_json(channel) for channel in row.channels],
    }


def _place_json(place: _Place) -> JsonObject:
    return {"topic_name": place.topic_name, "channel_name": place.channel_name}


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
