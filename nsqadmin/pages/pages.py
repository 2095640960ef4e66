"""The pages people read. Each asks the cluster, judges what it sees and hands both to its template."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Final

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.queries import NODE_NOT_FOUND, Cluster
from nsqadmin.figures import attention
from nsqadmin.figures.history import Curve, HistoryBook, Point, curve
from nsqadmin.figures.present import failure
from nsqadmin.figures.trend import Trend, TrendBook
from nsqadmin.pages.render import Renderer
from nsqadmin.pages.rows import ChannelRow, NodeRow, TopicRow, concerns_of, sort_topics
from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.service.httpapi import Request, Response
from nsqcore.service.logs import Log
from nsqcore.service.router import Route

Handler = Callable[[Request], Awaitable[Response]]

# Past this a list of troubles is no list any more; the table below shows them all.
_MOST_CONCERNS: Final = 12


class Pages:
    """Handlers of the pages; the only thing they remember are recent figures, for rates."""

    def __init__(self, cluster: Cluster, render: Renderer, trends: TrendBook, log: Log) -> None:
        self._cluster = cluster
        self._render = render
        self._trends = trends
        self._histories = HistoryBook()
        self._log = log
        self._last_warning = ""

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
        return [Route("GET", pattern, self.explaining(handler)) for pattern, handler in table]

    # -- the five pages ------------------------------------------------------------

    async def topics(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value
        self._observe(record for node in seen.nodes for record in node.topics)
        rows = [TopicRow(total, self._trends) for total in seen.topics]
        rows += [TopicRow.idle(name) for name in seen.idle_topics]
        concerns = [concern for row in rows for concern in row.all_concerns]
        concerns += [concern for node in seen.nodes for concern in concerns_of(node)]
        wanted = request.query.get("q", "").strip()
        sort, descending = request.query.get("sort", "name"), request.query.get("dir") == "desc"
        shown = [row for row in rows if row.matches(wanted)]
        return self._page(
            request,
            "topics.html",
            overview,
            rows=sort_topics(shown, sort, descending=descending),
            total=rows,
            concerns=attention.worst_first(concerns)[:_MOST_CONCERNS],
            concern_count=len(concerns),
            wanted=wanted,
            sort=sort,
            descending=descending,
            node_count=len(seen.nodes),
            # An nsqd that does not answer is a concern of its own; it need not be warned of twice.
            known=[node.error for node in seen.nodes if node.error],
        )

    async def topic(self, request: Request) -> Response:
        name = request.params["topic"]
        total = await self._cluster.topic(name)
        self._observe(total.value.nodes)
        registered: list[str] = []
        if not total.value.nodes:
            registered = (await self._cluster.registered_channels(name)).value
        row = TopicRow(total.value, self._trends)
        curves = self._curves((name, ""), row.depth - total.value.depth, row.trend)
        return self._page(request, "topic.html", total, row=row, registered=registered, curves=curves)

    async def channel(self, request: Request) -> Response:
        total = await self._cluster.channel(request.params["topic"], request.params["channel"])
        self._observe(total.value.nodes)
        row = ChannelRow(total.value, self._trends)
        subject = (total.value.topic_name, total.value.channel_name)
        curves = self._curves(subject, total.value.depth, row.trend)
        return self._page(request, "channel.html", total, row=row, curves=curves)

    async def nodes(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value
        self._observe(record for node in seen.nodes for record in node.topics)
        listed = {node.producer.http_address for node in seen.nodes}
        silent = [error for error in overview.errors if error.address not in listed]
        return self._page(
            request,
            "nodes.html",
            overview,
            rows=[NodeRow(node, self._trends) for node in seen.nodes],
            lookupds=seen.lookupds,
            silent=[] if self._cluster.uses_lookupd else silent,
            known=[*(node.error for node in seen.nodes if node.error), *silent],
        )

    async def node(self, request: Request) -> Response:
        node = await self._cluster.node(request.params["node"])
        self._observe(node.value.topics)
        return self._page(request, "node.html", node, row=NodeRow(node.value, self._trends))

    # -- the others ------------------------------------------------------------------

    async def lookup(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        idle = await self._cluster.inactive_topics()
        return self._page(request, "lookup.html", overview, lookupds=overview.value.lookupds, idle=idle.value)

    async def counter(self, request: Request) -> Response:
        channels = await self._cluster.counter()
        self._observe(channels.value)
        trends = [self._trends.of(channel) for channel in channels.value]
        known = [trend for trend in trends if trend is not None]
        return self._page(
            request,
            "counter.html",
            channels,
            total=sum(channel.message_count for channel in channels.value),
            rate=sum(trend.messages for trend in known) if known else None,
        )

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

    def sentences(self, errors: Sequence[NodeError]) -> list[str]:
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
        known: Sequence[NodeError] = (),
        **context: Any,
    ) -> Response:
        # A page looks every two seconds; the log needs to hear of an outage once.
        if answer.errors and answer.message != self._last_warning:
            self._log.warning("%s", answer.message.removeprefix("WARNING: "))
        self._last_warning = answer.message
        fresh = [error for error in answer.errors if error not in known]
        return self._render.page(request, template, warnings=self.sentences(fresh), **context)

    def _curves(self, subject: tuple[str, str], depth: int, trend: Trend | None) -> dict[str, Curve | None]:
        now_ns = time.monotonic_ns()
        point = Point(now_ns, depth, trend.messages if trend else None)
        points = self._histories.add(subject, point)
        return {
            "rate": curve(points, [point.rate for point in points], now_ns),
            "depth": curve(points, [point.depth for point in points], now_ns),
        }

    def _observe(self, records: Any) -> None:
        self._trends.observe(records, time.monotonic_ns())


def _unknown(code: str, request: Request) -> str:
    params = request.params
    if code == CHANNEL_NOT_FOUND:
        return f"Topic {params.get('topic', '')} has no channel {params.get('channel', '')}."
    if code == NODE_NOT_FOUND:
        return f"No nsqd of this cluster is reached at {params.get('node', '')}."
    if code == TOPIC_NOT_FOUND:
        return f"There is no topic {params.get('topic') or request.query.get('topic', '')}."
    return "There is nothing here."


def _place(request: Request) -> dict[str, str]:
    """Say where the reader is, for the breadcrumb."""
    params = request.params
    return {
        "topic": params.get("topic", ""),
        "channel": params.get("channel", ""),
        "node": params.get("node", ""),
    }
