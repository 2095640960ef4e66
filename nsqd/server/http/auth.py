"""--http-auth: HTTP clients that publish, read messages or administer send the AUTH secret as a bearer token.

The auth servers for TCP clients decide, and the same grants apply.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from nsqcore.http.api import ApiError, Request, Response, error_reply
from nsqcore.http.router import Handler, Route
from nsqd.protocol.auth import PUBLISH, SUBSCRIBE, Authorizations
from nsqd.server.auth import Asker, AuthServers, asker_at
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.http.openapi import NEEDS, Needs

# How many auth replies are cached until they expire; above this the oldest are dropped.
_MAX_CACHED: Final = 10_000


class HttpGuard:
    """Checks the secret of each request before its handler runs."""

    def __init__(self, auth: AuthServers) -> None:
        self._auth = auth
        self._cache: dict[Asker, Authorizations] = {}
        # All requests that wait for the same reply share one query.
        self._asking: dict[Asker, asyncio.Task[Authorizations | None]] = {}

    def routes(self, table: Iterable[Route]) -> list[Route]:
        guarded = []
        for route in table:
            needs = NEEDS.get((route.method, route.pattern), Needs.NODE)
            if needs is not Needs.NOTHING:
                route = replace(route, handler=self._before(route.handler, needs))
            guarded.append(route)
        return guarded

    async def close(self) -> None:
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _before(self, handler: Handler, needs: Needs) -> Handler:
        async def guarded(request: Request) -> Response:
            secret = _secret(request)
            if secret is None:
                reply = error_reply(401, "AUTH_REQUIRED")
                reply.headers["WWW-Authenticate"] = "Bearer"
                return reply
            asker = asker_at(request.raw.transport, request.remote_ip, secret)
            found = await self._authorizations(asker, request.peer)
            if found is None:
                raise ApiError(403, "AUTH_FAILED")
            if not _granted(found, needs, request):
                raise ApiError(403, "UNAUTHORIZED")
            answer: Response = await handler(request)
            return answer

        return guarded

    async def _authorizations(self, asker: Asker, peer: str) -> Authorizations | None:
        found = self._cache.get(asker)
        if found is not None and clock_ns() <= found.expires_ns:
            return found
        task = self._asking.get(asker)
        if task is None:
            task = asyncio.create_task(self._ask(asker, peer), name=f"HTTP AUTH {peer}")
            self._asking[asker] = task
            task.add_done_callback(lambda _: self._asking.pop(asker, None))
        # If a client hangs up, only its own request is cancelled, not the shared query.
        return await asyncio.shield(task)

    async def _ask(self, asker: Asker, peer: str) -> Authorizations | None:
        self._cache.pop(asker, None)
        found = await self._auth.ask(asker, peer)
        if found is not None:
            while len(self._cache) >= _MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
            self._cache[asker] = found
        return found


def _secret(request: Request) -> bytes | None:
    header: str = request.headers.get("Authorization", "")
    scheme, _, secret = header.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        return None
    return secret.encode("utf-8", "surrogateescape")


def _granted(found: Authorizations, needs: Needs, request: Request) -> bool:
    # The handler reads the same arguments. A missing argument is the empty name, which a grant for all
    # covers.
    topic, channel = request.query.get("topic", ""), request.query.get("channel", "")
    if needs is Needs.PUBLISH:
        return found.allows(PUBLISH, topic, "")
    if needs is Needs.SUBSCRIBE:
        return found.allows(SUBSCRIBE, topic, channel)
    if needs is Needs.NODE:
        topic = ""
    return found.allows(PUBLISH, topic, "") and found.allows(SUBSCRIBE, topic, "")
