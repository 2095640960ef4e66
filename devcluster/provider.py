"""An OpenID Connect provider for one machine: people choose who they are. It is no protection.

It lets ``./run --sign-in`` and the tests show how signing in works, with the answers of a real provider:
authorization code with PKCE, a signed token, and keys to verify it.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from devcluster.layout import CLIENT_ID, HOST, PEOPLE

# Hosts to which the provider may send people back.
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_TOKEN_S: Final = 60
# Sign-ins that have begun and not ended; above this number the oldest are dropped.
_MAX_CODES: Final = 1000

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in</title>
<h1>Who are you?</h1>
<p>This provider runs on your own machine and believes you.</p>
<ul>{people}</ul>
</html>"""


@dataclass(frozen=True, slots=True)
class LocalPerson:
    """A person who can sign in."""

    name: str
    groups: tuple[str, ...]
    role: str = ""


EVERYBODY: Final = tuple(LocalPerson(name, (f"{role}s",), role) for name, role in PEOPLE)


class LocalProvider:
    """One provider with one client. With only one person, it shows no choice."""

    def __init__(self, people: Sequence[LocalPerson], client_secret: str) -> None:
        self.people = people
        self.issuer = ""
        self.key = RSAKey.generate_key(2048, parameters={"kid": "first"})
        # Tests change the answer with these.
        self.claims: dict[str, Any] = {}
        self.signed_with = self.key
        self._client_secret = client_secret
        # The request and the person of each issued code.
        self._codes: dict[str, tuple[dict[str, str], LocalPerson]] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/openid-configuration", self._describe),
            web.get("/authorize", self._authorize),
            web.post("/token", self._token),
            web.get("/keys", self._keys),
        ]

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        if not _is_local(query.get("redirect_uri", "")) or query.get("client_id") != CLIENT_ID:
            raise web.HTTPBadRequest(text="this provider signs in to an nsqadmin of this machine only")
        chosen = [one for one in self.people if one.name == query.get("as")]
        if not chosen and len(self.people) > 1:
            return self._ask(query)
        code = secrets.token_urlsafe(16)
        self._codes[code] = query, (chosen or list(self.people))[0]
        while len(self._codes) > _MAX_CODES:
            del self._codes[next(iter(self._codes))]
        back = urlencode({"code": code, "state": query.get("state", "")})
        raise web.HTTPFound(f"{query['redirect_uri']}?{back}")

    def _ask(self, query: dict[str, str]) -> web.Response:
        people = "".join(
            f'<li><a href="?{escape(urlencode({**query, "as": one.name}))}">{escape(one.name)}</a>'
            f" ({escape(one.role)})</li>"
            for one in self.people
        )
        return web.Response(text=_PAGE.format(people=people), content_type="text/html")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        asked, person = self._codes.pop(str(form.get("code", "")), (None, None))
        digest = hashlib.sha256(str(form.get("code_verifier", "")).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or person is None
            or challenge != asked.get("code_challenge")
            or form.get("client_secret") != self._client_secret
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": asked["client_id"],
            "sub": person.name,
            "nonce": asked.get("nonce", ""),
            "exp": now + _TOKEN_S,
            "iat": now,
            "preferred_username": person.name,
            "groups": list(person.groups),
            **self.claims,
        }
        header = {"alg": "RS256", "kid": "first"}
        return web.json_response({"id_token": jwt.encode(header, claims, self.signed_with)})

    async def _keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [self.key.as_dict(private=False)]})


def _is_local(address: str) -> bool:
    """Tell whether *address* is on this machine, so that no code is sent elsewhere."""
    try:
        return urlsplit(address).hostname in _LOOPBACK
    except ValueError:
        return False


@asynccontextmanager
async def provider(
    client_secret: str, people: Sequence[LocalPerson] = EVERYBODY, port: int = 0
) -> AsyncIterator[LocalProvider]:
    """Serve a provider on the loopback address within the block. Raises OSError."""
    one = LocalProvider(people, client_secret)
    application = web.Application()
    application.add_routes(one.routes())
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        one.issuer = f"http://{HOST}:{runner.addresses[0][1]}"
        yield one
    finally:
        await runner.cleanup()
