"""A provider of OpenID Connect for tests: it signs in whom the test says, and can be made to lie."""

import base64
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey


class Provider:
    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, parameters={"kid": "first"})
        self.issuer = ""
        self.user = "alice"
        self.groups = ["ops"]
        # What a test changes about the answer.
        self.claims: dict[str, Any] = {}
        self.signed_with = self.key
        self._codes: dict[str, dict[str, str]] = {}

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
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        raise web.HTTPFound(f"{query['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        asked = self._codes.pop(str(form["code"]), None)
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or challenge != asked["code_challenge"] or form["client_secret"] != "shared secret":
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": asked["client_id"],
            "sub": "42",
            "nonce": asked["nonce"],
            "exp": now + 60,
            "iat": now,
            "preferred_username": self.user,
            "groups": self.groups,
            **self.claims,
        }
        header = {"alg": "RS256", "kid": "first"}
        return web.json_response({"id_token": jwt.encode(header, claims, self.signed_with)})

    async def _keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [self.key.as_dict(private=False)]})


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    one = Provider()
    application = web.Application()
    application.add_routes(one.routes())
    runner = web.AppRunner(application)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0)
    await place.start()
    one.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield one
    finally:
        await runner.cleanup()
