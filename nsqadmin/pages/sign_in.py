"""Signing in and out: to the provider and back, with a new session each time."""

import secrets
import time
from typing import Any, Final

from aiohttp import web

from nsqadmin.access.openid import Attempt, OpenId, SignInError, local_path
from nsqadmin.access.rights import SESSION_COOKIE, Rights, is_secure
from nsqadmin.access.sessions import Sessions
from nsqadmin.options import OptionsNow
from nsqadmin.pages.render import Renderer
from nsqcore.http.api import ApiError, Request, Response
from nsqcore.http.foreign import is_foreign
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

_ATTEMPT_COOKIE: Final = "nsqadmin_sign_in"
_ATTEMPT_S: Final = 600


class SignIn:
    """``/sign-in`` leads to the provider, which leads to ``/signed-in``; ``/sign-out`` ends the session."""

    def __init__(
        self, options: OptionsNow, rights: Rights, open_id: OpenId, render: Renderer, log: Log
    ) -> None:
        self._options = options
        self._rights = rights
        self._open_id = open_id
        self._render = render
        self._log = log

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/sign-in", self.begin),
            Route("GET", "/signed-in", self.finish, logged=False),
            Route("POST", "/sign-out", self.end),
        ]

    async def begin(self, request: Request) -> Response:
        home = self._render.urls.index
        back = local_path(request.query.get("next", home), home)
        try:
            address, attempt = await self._open_id.begin(self._redirect_uri(request), back)
        except SignInError as problem:
            return self._failed(request, problem)
        value = {"state": attempt.state, "nonce": attempt.nonce, "verifier": attempt.verifier, "back": back}
        sessions = self._sessions()
        cookie = sessions.signer.write("sign-in", value, time.time() + _ATTEMPT_S)
        reply = web.Response(status=303, headers={"Location": address})
        self._set(request, reply, _ATTEMPT_COOKIE, cookie, _ATTEMPT_S)
        return reply

    async def finish(self, request: Request) -> Response:
        sessions = self._sessions()
        kept = sessions.signer.read("sign-in", request.raw.cookies.get(_ATTEMPT_COOKIE, ""), time.time())
        try:
            if kept is None:
                raise SignInError("This answer belongs to no sign-in of this browser.")
            attempt = Attempt(kept["state"], kept["nonce"], kept["verifier"], kept["back"])
            person = await self._open_id.finish(attempt, request.query, self._redirect_uri(request))
        except SignInError as problem:
            return self._failed(request, problem)
        self._log.info("%s from %s signed in", person.name, request.peer)
        # The session gets a new number; a session that this browser had before, its own or a planted one,
        # ends.
        sessions.end(request.raw.cookies.get(SESSION_COOKIE, ""), time.time())
        cookie = sessions.create(secrets.token_urlsafe(24), person, time.time())
        reply = web.Response(
            status=303, headers={"Location": local_path(attempt.back, self._render.urls.index)}
        )
        self._set(request, reply, SESSION_COOKIE, cookie, int(sessions.lasts_s))
        reply.del_cookie(_ATTEMPT_COOKIE, path=self._path)
        return reply

    async def end(self, request: Request) -> Response:
        if is_foreign(request.headers):
            raise ApiError(403, "FORBIDDEN")
        self._sessions().end(request.raw.cookies.get(SESSION_COOKIE, ""), time.time())
        # A page, not a redirect: a form that ends at the provider would go to another site, which browsers
        # block.
        reply = self._render.page(request, "signed_out.html")
        reply.del_cookie(SESSION_COOKIE, path=self._path)
        return reply

    def _sessions(self) -> Sessions:
        if self._rights.sessions is None:
            raise ApiError(404, "NOT_FOUND")
        return self._rights.sessions

    @property
    def _path(self) -> str:
        return self._options().prefix or "/"

    def _redirect_uri(self, request: Request) -> str:
        given = self._options().oidc_redirect_url
        if given:
            return given
        scheme = "https" if is_secure(request) else "http"
        return f"{scheme}://{request.headers.get('Host', '')}{self._render.urls.page('signed-in')}"

    def _set(self, request: Request, reply: web.Response, name: str, value: str, age_s: int) -> None:
        reply.set_cookie(
            name,
            value,
            path=self._path,
            max_age=age_s,
            httponly=True,
            secure=is_secure(request),
            # The provider redirects from another site.
            samesite="Lax",
        )

    def _failed(self, request: Request, problem: SignInError) -> Response:
        # Errors of this machine are for its operator only.
        cause = f" ({problem.__cause__})" if isinstance(problem.__cause__, OSError | ValueError) else ""
        self._log.warning("sign-in from %s failed: %s%s", request.peer, problem, cause)
        place: dict[str, Any] = {"topic": "", "channel": "", "node": ""}
        return self._render.page(request, "problem.html", status=403, problem=str(problem), **place)
