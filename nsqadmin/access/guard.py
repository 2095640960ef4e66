"""What every request has to pass, and what every reply carries."""

import socket
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from nsqadmin.access.hosts import host_of, is_allowed
from nsqadmin.options import OptionsNow
from nsqcore.service.httpapi import ApiError, Request, Response, error_reply
from nsqcore.service.listen import split_host_port
from nsqcore.service.logs import Log
from nsqcore.service.router import Route

# Probes come under any name; there is nothing to read and nothing to change.
_OPEN: Final = frozenset({"/ping"})


class Guard:
    """Refuses requests that reach us under a name that is not ours, and those that name two users."""

    def __init__(self, options: OptionsNow, log: Log) -> None:
        self._options = options
        self._log = log
        self._own = _own_names(options().http_address)
        self._refused: set[str] = set()

    def guarding(self, routes: Iterable[Route]) -> list[Route]:
        return [
            route if route.pattern in _OPEN else replace(route, handler=self._wrapped(route.handler))
            for route in routes
        ]

    def _wrapped(self, handler: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Request], Any]:
        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                self._check(request)
                reply: Response = await handler(request)
            except ApiError as error:
                reply = error_reply(error.status, error.code)
                if error.close:
                    reply.force_close()
            # A browser takes a reply for what it says it is, and for nothing that can run.
            reply.headers.setdefault("X-Content-Type-Options", "nosniff")
            return reply

        return answer

    def _check(self, request: Request) -> None:
        options = self._options()
        host = request.headers.get("Host", "")
        if not is_allowed(host, self._own, options.allowed_hosts):
            self._tell(host_of(host))
            raise ApiError(403, "HOST_NOT_ALLOWED")
        # The proxy sets one. A second one was sent by the client, and which of them is first is luck.
        if len(request.headers.getall(options.acl_http_header, ())) > 1:
            raise ApiError(400, "DUPLICATE_USER")

    def _tell(self, host: str) -> None:
        """Write one line for each name, and not forever: anybody can make names up."""
        if host not in self._refused and len(self._refused) < 20:
            self._refused.add(host)
            self._log.warning("refused a request for host %s; allow it with --allowed-hosts", host[:100])


def _own_names(http_address: str) -> frozenset[str]:
    """Return the names of this machine and the one it was told to listen at."""
    names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    with suppress(ValueError):  # a unix socket has no host
        names.add(split_host_port(http_address)[0].lower())
    return frozenset(name for name in names if name)
