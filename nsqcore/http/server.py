"""The HTTP listener of a daemon: dispatch, error replies, access log, start and stop.

It uses aiohttp's low-level server, which serves three times the requests of a ``web.Application``.
"""

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from html import escape
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from aiohttp import web

from nsqcore.durations import format_duration
from nsqcore.http.api import (
    ApiError,
    Request,
    Response,
    empty_reply,
    error_reply,
    plain_reply,
)
from nsqcore.http.connection import MAX_LINE_BYTES, HttpConnection, connections
from nsqcore.http.foreign import is_foreign
from nsqcore.http.router import NO_PARAMS, Match, NotAllowed, Redirect, Route, Router
from nsqcore.process.accepting import Acceptor
from nsqcore.process.listen import listen_port, remove_unix_file, shown_address
from nsqcore.process.logs import Log
from nsqcore.version import POLL_HEADER

# Wraps the factory of the connections' protocols.
Front: TypeAlias = Callable[[Callable[[], asyncio.Protocol]], Callable[[], asyncio.Protocol]]

# Longer than the 90 s after which Go's clients drop an idle connection, so that the server never closes a
# connection that a client is about to use. A client may also take so long for its request line and headers.
IDLE_S: Final = 120.0

# An unread request body is discarded for this long, so that the client sees the reply and not a reset.
LINGER_S: Final = 2.0

# A host and a port, as allowed in a URL; empty where the target has none.
_HOST: Final = re.compile(r"[0-9A-Za-z!$%&'()*+,.:;=\[\]_~-]*")

_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))

# How long running handlers may take to finish at a stop.
STOP_S: Final = 3.0

# Go's server refuses a path with an invalid escape; aiohttp accepts it.
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


_library_log: Final = logging.getLogger("nsqcore.http")


class HttpServer:
    """Serves a route table on bound sockets; *kind* is ``HTTP`` or ``HTTPS`` in the log lines."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        routes: Iterable[Route],
        log: Log,
        *,
        kind: str = "HTTP",
        base_path: str = "/",
        compress: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        refusal: Callable[[], Response] | None = None,
        front: Front | None = None,
        refuse_foreign: bool = False,
        leaving: Callable[[], bool] = bool,
    ) -> None:
        """With *refusal* no route is served: it makes the answer to every request.

        With *refuse_foreign* a page of another site in a browser cannot change anything.

        While *leaving* returns True each answer closes its connection, so that clients go to other nodes.

        *front* wraps the protocol factory of this server: requests that its connections do not serve
        themselves go to a connection of this server.
        """
        self.kind = kind
        self._sockets = sockets
        self.address = shown_address(sockets[0])
        # The first TCP port, None if there are only unix sockets.
        self.port = next(filter(None, map(listen_port, sockets)), None)
        self._router = Router(routes, base_path)
        self._exact = self._router.exact
        self._compress = compress
        self._ssl_context = ssl_context
        self._refusal = refusal
        self._front = front
        self._refuse_foreign = refuse_foreign
        self._leaving = leaving
        self._acceptors: list[Acceptor] = []
        # Makes the protocol of a connection; set by start().
        self.factory: Callable[[], asyncio.Protocol]
        self._log = log
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        server, factory = connections(
            self._serve if self._refusal is None else self._refusing(self._refusal),
            logger=_library_log,
            access_log=None,
            auto_decompress=False,  # a body is a message, whose bytes must not change
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        self.factory = factory if self._front is None else self._front(factory)
        for sock in self._sockets:
            acceptor = Acceptor(self.kind, sock, self.factory, self._log, ssl_context=self._ssl_context)
            self._acceptors.append(acceptor)
            acceptor.start()
            self._log.info("%s: listening on %s", self.kind, shown_address(sock))

    def close_idle(self) -> None:
        """Close the connections without a request."""
        server = self._runner.server if self._runner is not None else None
        for connection in server.connections if server is not None else ():
            if isinstance(connection, HttpConnection) and not connection.answering:
                connection.close()

    async def close(self) -> None:
        """Accept no more, let running handlers finish for STOP_S at most, and close every connection."""
        for sock in self._sockets:
            if sock.fileno() >= 0:  # not closed before
                self._log.info("%s: closing %s", self.kind, shown_address(sock))
                remove_unix_file(sock)
        while self._acceptors:
            await self._acceptors.pop().close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        for sock in self._sockets:
            sock.close()

    async def _serve(self, raw: web.BaseRequest) -> Response:
        if raw.version[0] != 1 or not _HOST.fullmatch(raw.headers.get("Host", "")):
            return _not_http_1(raw)
        if self._refuse_foreign and raw.method not in _READING and is_foreign(raw.headers):
            self._log.warning("403 %s %s: sent by a page of another site", raw.method, raw.raw_path)
            return error_reply(403, "FORBIDDEN")
        path = raw.raw_path.partition("?")[0]
        if path[:1] != "/":
            # A client behind a proxy may send the whole URL.
            path = "/" + path.partition("://")[2].partition("/")[2]
        if "%" in path and _BAD_ESCAPE.search(path):
            refusal = plain_reply("400 Bad Request", 400)
            refusal.force_close()
            return refusal
        route = self._exact.get((raw.method, path))
        if route is not None:
            if not route.logged:
                return await self._answer(route, Request(raw, NO_PARAMS))
            found: Match | Redirect | NotAllowed | None = Match(route, NO_PARAMS)
        else:
            found = self._router.find(raw.method, path)
        began = time.perf_counter_ns()
        if isinstance(found, Match):
            request = Request(raw, found.params)
            reply = await self._answer(found.route, request)
            if not found.route.logged:
                return reply
        else:
            request = Request(raw, NO_PARAMS)
            reply = _answer_without_handler(found, request)
        if self._log.info_enabled:
            elapsed = format_duration(time.perf_counter_ns() - began)
            is_poll = reply.status == HTTPStatus.OK and raw.headers.get(POLL_HEADER) == "poll"
            write = self._log.debug if is_poll else self._log.info
            write("%d %s %s (%s) %s", reply.status, raw.method, request.target, request.peer, elapsed)
        return reply

    def _refusing(self, refusal: Callable[[], Response]) -> Callable[[web.BaseRequest], Awaitable[Response]]:
        async def refuse(raw: web.BaseRequest) -> Response:
            reply = refusal()
            request = Request(raw, NO_PARAMS)
            self._log.info("%d %s %s (%s)", reply.status, raw.method, request.target, request.peer)
            return reply

        return refuse

    async def _answer(self, route: Route, request: Request) -> Response:
        try:
            reply: Response = await route.handler(request)
        except ApiError as error:
            reply = error_reply(error.status, error.code)
            if error.close:
                reply.force_close()
            if error.retry_after_s:
                reply.headers["Retry-After"] = str(error.retry_after_s)
        except ConnectionError:
            raise  # the client has left
        except MemoryError as error:
            # The handler of the loop ends the daemon.
            context = {"message": "no memory for an HTTP request", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            reply = error_reply(500, "INTERNAL_ERROR")
        except Exception as error:  # noqa: BLE001 - one bad request must not end the daemon
            self._log.error("panic in HTTP handler - %s", error, error=error)
            reply = error_reply(500, "INTERNAL_ERROR")
        if self._leaving():
            reply.force_close()
        if self._compress:
            _compress(reply, request)
        return reply


def _not_http_1(raw: web.BaseRequest) -> web.Response:
    """The refusal of a request that aiohttp accepts and HTTP/1.1 forbids.

    aiohttp itself refuses a missing or second Host.
    """
    if raw.version[0] != 1:
        reply = plain_reply("HTTP version not supported", 505)
    else:
        reply = plain_reply("malformed Host header", 400)
    reply.force_close()
    return reply


def _answer_without_handler(found: Redirect | NotAllowed | None, request: Request) -> web.Response:
    if isinstance(found, Redirect):
        return _redirect(found, request)
    if found is None:
        return error_reply(404, "NOT_FOUND")
    reply = empty_reply() if request.method == "OPTIONS" else error_reply(405, "METHOD_NOT_ALLOWED")
    reply.headers["Allow"] = found.allow
    return reply


def _redirect(found: Redirect, request: Request) -> web.Response:
    _, mark, query = request.target.partition("?")
    location = found.path + mark + query
    headers: dict[str, Any] = {"Location": location}
    if request.method != "GET":
        return web.Response(status=found.status, headers=headers)
    headers["Content-Type"] = "text/html; charset=utf-8"
    return web.Response(
        status=found.status,
        text=None,
        body=f'<a href="{escape(location)}">Moved Permanently</a>.\n\n'.encode(),
        headers=headers,
    )


def _compress(reply: Response, request: Request) -> None:
    if not isinstance(reply, web.Response) or not reply.body:
        return
    reply.headers["Vary"] = "Accept-Encoding"
    accepted = request.headers.get("Accept-Encoding", "").lower()
    # aiohttp chooses the level and the smallest size; pictures and fonts are already compressed.
    if reply.content_type.startswith(("text/", "application/j", "image/svg")):
        for coding in (web.ContentCoding.gzip, web.ContentCoding.deflate):
            if coding.value in accepted:
                reply.enable_compression(coding)
                return
