"""The checks that every request passes, and the headers that every reply carries."""

import socket
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from nsqadmin.access.hosts import host_of, is_allowed
from nsqadmin.access.rights import Rights
from nsqadmin.access.roles import Role
from nsqadmin.options import OptionsNow
from nsqcore.http.api import ApiError, Request, Response, error_reply
from nsqcore.http.router import Route
from nsqcore.process.addresses import split_host_port
from nsqcore.process.logs import Log

# Probes use any host name; this path shows nothing and changes nothing.
_OPEN: Final = frozenset({"/ping"})
# Needed by people who are not signed in yet; these paths show no statistics.
_FOR_ANYBODY: Final = ("/static/", "/fonts/", "/sign-in", "/signed-in", "/sign-out")
# Programs get a refusal where people get the page to sign in.
_FOR_PROGRAMS: Final = ("/api/", "/config/", "/history", "/metrics", "/openapi.json")


class Guard:
    """Refuses requests for a host name that is not ours, and requests that name users or groups twice."""

    def __init__(self, options: OptionsNow, rights: Rights, log: Log) -> None:
        self._options = options
        self._rights = rights
        self._log = log
        self._own = _own_names(options().http_address)
        self._refused: set[str] = set()

    def guarding(self, routes: Iterable[Route]) -> list[Route]:
        return [
            route if route.pattern in _OPEN else replace(route, handler=self._wrapped(route))
            for route in routes
        ]

    def _wrapped(self, route: Route) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = route.handler
        for_anybody = route.pattern.startswith(_FOR_ANYBODY)
        is_page = route.method == "GET" and not route.pattern.startswith(_FOR_PROGRAMS)

        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                self._check(request)
                if for_anybody or self._rights.may_somewhere(request, Role.VIEWER):
                    reply: Response = await handler(request)
                else:
                    reply = self._refuse_anonymous(
                        request, is_page=is_page and (route.pattern != "*" or is_browser(request))
                    )
            except ApiError as error:
                reply = error_reply(error.status, error.code)
                if error.close:
                    reply.force_close()
            # A browser must not guess that a reply is a script when its type says otherwise.
            reply.headers.setdefault("X-Content-Type-Options", "nosniff")
            # Statistics and permissions change; replies that may be cached set this header
            # themselves.
            reply.headers.setdefault("Cache-Control", "no-store")
            return reply

        return answer

    def _check(self, request: Request) -> None:
        options = self._options()
        host = request.headers.get("Host", "")
        if not is_allowed(host, self._own, options.allowed_hosts):
            self._log_refused(host_of(host))
            raise ApiError(403, f"HOST_NOT_ALLOWED: allow {host_of(host)[:100]} with --allowed-hosts")
        # The proxy sets one. A second one comes from the client, and their order is not known.
        if len(request.headers.getall(options.acl_http_header, ())) > 1:
            raise ApiError(400, "DUPLICATE_USER")
        groups = options.acl_groups_http_header
        if groups and len(request.headers.getall(groups, ())) > 1:
            raise ApiError(400, "DUPLICATE_GROUPS")

    def _refuse_anonymous(self, request: Request, *, is_page: bool) -> Response:
        """Redirect people who are not signed in to the sign-in page; refuse all other requests."""
        known = bool(self._rights.person(request).via)
        is_program = request.query.get("format", "html") != "html"
        if not known and is_page and not is_program and self._rights.signs_in:
            target = quote(request.target, safe="/")
            location = f"{self._options().prefix}/sign-in?next={target}"
            return web.Response(status=303, headers={"Location": location})
        return error_reply(403 if known else 401, "FORBIDDEN" if known else "UNAUTHORIZED")

    def _log_refused(self, host: str) -> None:
        """Log each refused name once, and at most 20 of them, because clients can invent names."""
        if host not in self._refused and len(self._refused) < 20:
            self._refused.add(host)
            self._log.warning("refused a request for host %s; allow it with --allowed-hosts", host[:100])


def is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("Accept", "")


def _own_names(http_addresses: Iterable[str]) -> frozenset[str]:
    """Return the names of this machine and that of its listening address."""
    names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    for address in http_addresses:
        with suppress(ValueError):  # a unix socket has no host
            names.add(split_host_port(address)[0].lower())
    return frozenset(name for name in names if name)
