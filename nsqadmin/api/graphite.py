"""Requests to Graphite for others: a rate as JSON, and graphs for browsers that cannot reach Graphite."""

import json
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote, urlencode, urlsplit

import aiohttp
from aiohttp import web
from yarl import URL

from nsqadmin.options import OptionsNow
from nsqclient.wire.durations import SECOND
from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

# Headers of Graphite that are passed on. Its content type is not: ours follows from the requested format, so
# that no answer of Graphite can become a page of nsqadmin.
_PASSED_ON: Final = ("Cache-Control", "Expires")
_TYPES: Final = {
    "": "image/png",
    "png": "image/png",
    "json": "application/json",
    "csv": "text/plain; charset=utf-8",
    "raw": "text/plain; charset=utf-8",
}


class GraphiteApi:
    """``/api/graphite``, and ``/render`` when nsqadmin is a proxy."""

    def __init__(self, options: OptionsNow, log: Log) -> None:
        self._options = options
        self._log = log

    def routes(self) -> list[Route]:
        table = [Route("GET", "/api/graphite", self.rate)]
        if self._options().proxy_graphite:
            table.append(Route("GET", "/render", self.render))
        return table

    async def rate(self, request: Request) -> Response:
        """Answer with the messages per second of the last whole interval, as text with two decimals."""
        if request.query.get("metric") != "rate":
            raise ApiError(400, "INVALID_ARG_METRIC")
        target = request.query.get("target")
        if target is None:
            raise ApiError(400, "INVALID_ARG_TARGET")
        interval_s = self._options().statsd_interval // SECOND
        query = [
            ("format", "json"),
            ("from", f"-{2 * interval_s}sec"),
            ("target", target),
            ("until", f"-{interval_s}sec"),
        ]
        _, _, body = await self._query(urlencode(query, quote_via=quote), {})
        try:
            value = json.loads(body)[0]["datapoints"][0][0]
            shown = "N/A" if value < 0 else f"{value / interval_s:.2f}"
        except (ValueError, LookupError, TypeError, ZeroDivisionError, RecursionError) as error:
            self._log.error("graphite: no rate for %s: %s", target, error)
            raise ApiError(500, "INTERNAL_ERROR") from error
        return json_reply({"rate": shown})

    async def render(self, request: Request) -> Response:
        """Pass the query on to Graphite and its picture back; no other path of Graphite can be reached."""
        content_type = _TYPES.get(request.query.get("format", ""))
        if content_type is None:
            raise ApiError(400, "INVALID_ARG_FORMAT")
        headers = {"X-Forwarded-For": request.peer.rpartition(":")[0]}
        status, passed_on, body = await self._query(request.target.partition("?")[2], headers)
        own = {
            "Content-Type": content_type if status == HTTPStatus.OK else "text/plain; charset=utf-8",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        return web.Response(status=status, body=body, headers=passed_on | own)

    async def _query(self, query: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        options = self._options()
        base = urlsplit(options.graphite_url)
        user, password = unquote(base.username or ""), unquote(base.password or "")
        auth = aiohttp.BasicAuth(user, password) if user else None
        place = base.netloc.rpartition("@")[2]
        url = f"{base.scheme}://{place}{base.path.rstrip('/')}/render?{query}"
        timeout = aiohttp.ClientTimeout(
            total=options.http_client_request_timeout / SECOND,
            sock_connect=options.http_client_connect_timeout / SECOND,
        )
        try:
            # Graphite gets a few requests a minute at most, so a new connection for each request is cheap.
            async with (
                aiohttp.ClientSession(timeout=timeout, auth=auth) as session,
                session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as reply,
            ):
                passed_on = {name: reply.headers[name] for name in _PASSED_ON if name in reply.headers}
                return reply.status, passed_on, await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._log.error("graphite: %s", str(error) or type(error).__name__)
            raise ApiError(500, "INTERNAL_ERROR") from error
