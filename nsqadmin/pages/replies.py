"""Common parts of all pages: the page, its data as JSON or CSV, and messages when no node answers."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from http import HTTPStatus
from typing import Any

from aiohttp import web

from nsqadmin.access.guard import is_browser
from nsqadmin.changes.runner import AUDIT_UNWRITABLE, ActionRunner
from nsqadmin.collecting.answers import NODE_NOT_FOUND, Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.options import OptionsNow
from nsqadmin.pages.history_charts import HistoryCharts
from nsqadmin.pages.paging import PageWindow
from nsqadmin.pages.render import Renderer, plain_segment
from nsqadmin.pages.tables import Table
from nsqadmin.stats.present import failure
from nsqadmin.stats.sums import ChannelSum, TopicSum
from nsqadmin.stats.topic_records import JsonObject, channel_record, topic_record
from nsqadmin.stats.trend import Trend
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.http.api import ApiError, Request, Response, error_reply, json_reply
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The base of all pages: their dependencies and their replies."""

    def __init__(
        self,
        options: OptionsNow,
        cluster: Cluster,
        runner: ActionRunner,
        history: HistoryCharts,
        render: Renderer,
        log: Log,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._runner = runner
        self._history = history
        self._render = render
        self._urls = render.urls
        self._log = log

    def routes(self) -> list[Route]:
        """Return the route of every path that does not exist."""
        return self.routes_of([("*", self.nowhere)])

    def routes_of(self, table: Sequence[tuple[str, Handler]]) -> list[Route]:
        """Make the routes of pages. They are not logged, because an open page polls every two seconds."""
        return [Route("GET", pattern, self.explaining(handler), logged=False) for pattern, handler in table]

    async def nowhere(self, request: Request) -> Response:
        """Reply to a path that does not exist: a page for browsers, JSON for programs."""
        if not is_browser(request):
            raise ApiError(HTTPStatus.NOT_FOUND, "NOT_FOUND")
        raise UnknownError("NOT_FOUND")

    def explaining(self, handler: Handler) -> Callable[[Request], Any]:
        """Turn the errors of an unanswered request into a page that explains them."""

        @wraps(handler)
        async def answer(request: Request) -> Response:
            request.params = {key: plain_segment(text) for key, text in request.params.items()}
            try:
                return await handler(request)
            except UnknownError as error:
                if wants_json(request):
                    return error_reply(404, error.code)
                return self.problem(request, _unknown(error.code, request), 404)
            except UpstreamError as error:
                self._log.error("%s", error)
                if wants_json(request):
                    return error_reply(502, f"UPSTREAM_ERROR: {error}")
                problem = f"No {error.kind} answered, so there is nothing to show."
                return self.problem(request, problem, 502, warnings=self.sentences(error.errors))
            except ApiError as error:
                if error.code == AUDIT_UNWRITABLE and is_browser(request):
                    sentence = "The change was refused, because the audit cannot be written."
                    return self.problem(request, sentence, error.status)
                # Programs get the code; people get a sentence.
                if error.status != HTTPStatus.FORBIDDEN or not is_browser(request) or wants_json(request):
                    raise
                return self.problem(request, "You have no role for this.", error.status)

        return answer

    def problem(
        self, request: Request, sentence: str, status: int, warnings: Sequence[str] = ()
    ) -> web.Response:
        """Reply with a page that shows only an error; it reloads itself if the error may be temporary."""
        return self._render.page(
            request,
            "problem.html",
            status=status,
            problem=sentence,
            warnings=warnings,
            retries=status == HTTPStatus.BAD_GATEWAY
            or (status == HTTPStatus.NOT_FOUND and bool(request.params or request.query.get("topic"))),
            **_breadcrumb(request),
        )

    def sentences(self, errors: Iterable[NodeError]) -> list[str]:
        """Return a sentence for each error that names the node; equal sentences are returned once."""
        lookupds = {lookupd.address for lookupd in self._cluster.lookupds()}
        return list(
            dict.fromkeys(
                failure(error, "nsqlookupd" if error.address in lookupds else "nsqd") for error in errors
            )
        )

    def page(
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
        """Reply with the page, with its data as JSON, or with one of its *lists* as CSV."""
        at_s = self._cluster.stats_time_s if at_s is None else at_s
        warnings = self._warnings(answer, known)
        if wants_json(request):
            return json_reply({"statistics_at": round(at_s, 3), "warnings": warnings, **shown()})
        if request.query.get("format") == "csv":
            return _csv_reply(request, lists or {})
        # A node with a card needs no further warning.
        carded = {one.node for card in context.get("cards", ()) for one in card.problems}
        shown_errors = [error for error in answer.errors if error.address not in carded]
        warnings = self._warnings(Answer(None, (tuple(shown_errors),)), known)
        return self._render.page(request, template, warnings=warnings, at_s=at_s, **context)

    def _warnings(self, answer: Answer[Any], known: Sequence[NodeError]) -> list[str]:
        """Name nodes without statistics. An unreachable nsqlookupd is left out while another one answers."""
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


def node_names(row: ChannelSum | TopicSum) -> list[str]:
    return [row.node, row.hostname]


def _csv_reply(request: Request, lists: Mapping[str, tuple[Table[Any], Sequence[Any]]]) -> Response:
    """Reply with all rows of a list, filtered and sorted as on the page."""
    found = lists.get(request.query.get("list", ""))
    if found is None:
        return error_reply(404, "LIST_NOT_FOUND")
    table, rows = found
    name = "-".join(re.findall(r"[A-Za-z0-9._]+", request.target.partition("?")[0])) or "topics"
    return web.Response(
        body=table.csv(rows).encode("utf-8", "replace"),
        headers={
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="nsq-{name}.csv"',
        },
    )


def rows_json(key: str, rows: PageWindow[Any], one: Callable[[Any], JsonObject]) -> JsonObject:
    return {key: [one(row) for row in rows.items], f"{key}_total": rows.total, f"{key}_first": rows.first}


def trend_json(trend: Trend | None) -> JsonObject:
    return {
        "messages_per_second": trend.messages if trend else None,
        "finished_per_second": trend.finished if trend else None,
    }


def channel_json(channel: ChannelSum) -> JsonObject:
    return {
        **channel_record(channel, lists=False),
        **trend_json(channel.trend),
        "oldest_message_time": channel.oldest_ns,
        "state": channel.states,
    }


def topic_json(topic: TopicSum) -> JsonObject:
    return {
        **topic_record(topic, lists=False),
        "messages_per_second": topic.trend.messages if topic.trend else None,
        "channels": [channel_json(channel) for channel in topic.channels],
    }


def refuse_embedding(request: Request) -> None:
    """Raise ApiError for requests that a page of another site makes itself; following a link is allowed."""
    headers = request.headers
    if headers.get("Sec-Fetch-Site") == "cross-site" and headers.get("Sec-Fetch-Dest") != "document":
        raise ApiError(403, "FORBIDDEN")


def wants_json(request: Request) -> bool:
    return request.query.get("format") == "json"


def _unknown(code: str, request: Request) -> str:
    params = request.params
    if code == CHANNEL_NOT_FOUND:
        return f"Topic {params.get('topic', '')} has no channel {params.get('channel', '')}."
    if code == NODE_NOT_FOUND:
        return f"No nsqd of this cluster is reached at {params.get('node', '')}."
    if code == TOPIC_NOT_FOUND:
        topic = params.get("topic") or request.query.get("topic", "")
        return f"There is no topic {topic}." if topic else "Of which topic? Choose one of the topics."
    return "There is nothing here."


def _breadcrumb(request: Request) -> dict[str, Any]:
    """Return the reader's place, for the breadcrumb."""
    params = request.params
    return {
        "topic": params.get("topic", ""),
        "channel": params.get("channel", ""),
        "node": params.get("node", ""),
    }
