"""Sign-in through an OpenID Connect provider: authorization code with PKCE; the answer is verified."""

import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from nsqadmin.access.roles import Person
from nsqcore.cluster.secret import SecretFile

# The provider's description of itself is requested again after this time.
_METADATA_S: Final = 3600.0
# Unknown keys make us request the keys again, but not more often than this.
_KEYS_S: Final = 10.0
# The clocks of the provider and of this machine may differ by this.
_LEEWAY_S: Final = 60
_ALGORITHMS: Final = ["RS256", "ES256", "PS256", "RS384", "RS512", "ES384", "EdDSA"]


class SignInError(Exception):
    """The reason of a failed sign-in; the text is a sentence without secrets."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in that has begun: the values that must come back and those that only this browser knows."""

    state: str
    nonce: str
    verifier: str
    back: str


class OpenId:
    """One provider and one client registered with it."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: SecretFile,
        *,
        scopes: str,
        name_claim: str,
        groups_claim: str,
        timeout_s: float,
    ) -> None:
        self.issuer = issuer.rstrip("/")
        self._client_id = client_id
        self._client_secret = client_secret
        self._scopes = scopes
        self._name_claim = name_claim
        self._groups_claim = groups_claim
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._metadata: dict[str, Any] = {}
        self._metadata_at = -_METADATA_S
        self._keys: KeySet | None = None
        self._keys_at = -_KEYS_S

    async def begin(self, redirect_uri: str, back: str) -> tuple[str, Attempt]:
        """Return the address for the browser, and the values to remember until it returns."""
        metadata = await self._describe()
        attempt = Attempt(generate_token(32), generate_token(32), generate_token(64), back)
        address = prepare_grant_uri(
            metadata["authorization_endpoint"],
            self._client_id,
            "code",
            redirect_uri,
            self._scopes,
            attempt.state,
            nonce=attempt.nonce,
            code_challenge=create_s256_code_challenge(attempt.verifier),
            code_challenge_method="S256",
        )
        return str(address), attempt

    async def finish(self, attempt: Attempt, query: dict[str, str], redirect_uri: str) -> Person:
        """Return the signed-in person from the provider's answer. Raises SignInError without one."""
        if query.get("error"):
            raise SignInError("The provider refused the sign-in.")
        if not attempt.state or query.get("state") != attempt.state:
            raise SignInError("This answer belongs to no sign-in of this browser.")
        metadata = await self._describe()
        form = {
            "grant_type": "authorization_code",
            "code": query.get("code", ""),
            "redirect_uri": redirect_uri,
            "client_id": self._client_id,
            "code_verifier": attempt.verifier,
        }
        try:
            # Read at every use, because it changes while nsqadmin runs.
            if secret := self._client_secret.read():
                form["client_secret"] = secret
        except (OSError, ValueError) as error:
            raise SignInError("The secret for the provider cannot be read.") from error
        answer = await self._ask("POST", metadata["token_endpoint"], form)
        return self._person(await self._claims(str(answer.get("id_token", "")), attempt.nonce))

    async def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        try:
            decoded = jwt.decode(token, await self._key_set(), algorithms=_ALGORITHMS)
        except (JoseError, ValueError):
            # The provider may have changed its keys.
            try:
                decoded = jwt.decode(token, await self._key_set(again=True), algorithms=_ALGORITHMS)
            except (JoseError, ValueError) as error:
                raise SignInError("The provider's answer is not signed by it.") from error
        claims = dict(decoded.claims)
        checks = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self._client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        # Providers write the issuer with or without a slash at its end.
        claims["iss"] = str(claims.get("iss", "")).rstrip("/")
        try:
            checks.validate(claims)
        except JoseError as error:
            raise SignInError(f"The provider's answer is not for us: {error.error}.") from error
        return claims

    def _person(self, claims: dict[str, Any]) -> Person:
        name = claims.get(self._name_claim) or claims.get("sub")
        if not isinstance(name, str) or not name:
            raise SignInError(f"The provider does not say who it is: there is no {self._name_claim}.")
        # People may type any address at some providers, so also that of an admin.
        if self._name_claim == "email" and str(claims.get("email_verified", True)).lower() != "true":
            raise SignInError("The provider has not verified the e-mail address.")
        groups = claims.get(self._groups_claim) or []
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return Person(name, tuple(str(group) for group in listed), "sign-in")

    async def _describe(self) -> dict[str, Any]:
        now = time.monotonic()
        if now - self._metadata_at >= _METADATA_S:
            found = await self._ask("GET", f"{self.issuer}/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != self.issuer:
                raise SignInError("The provider calls itself by another name than --oidc-issuer.")
            self._metadata, self._metadata_at = found, now
        return self._metadata

    async def _key_set(self, *, again: bool = False) -> KeySet:
        now = time.monotonic()
        if self._keys is None or (again and now - self._keys_at >= _KEYS_S):
            metadata = await self._describe()
            found: Any = await self._ask("GET", metadata["jwks_uri"])
            self._keys, self._keys_at = KeySet.import_key_set(found), now
        return self._keys

    async def _ask(self, verb: str, url: str, form: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout) as session,
                session.request(verb, url, data=form, headers={"Accept": "application/json"}) as reply,
            ):
                answer = await reply.json(content_type=None)
                if reply.status != 200 or not isinstance(answer, dict):
                    raise SignInError(f"The provider answers with {reply.status}.")
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            raise SignInError("The provider does not answer.") from error


def local_path(text: str, home: str) -> str:
    """Return *text* if it is a path of nsqadmin, else *home*: a sign-in redirects to no other site."""
    if not text.startswith("/") or text.startswith(("//", "/\\")) or any(one <= " " for one in text):
        return home
    parts = urlsplit(text)
    return home if parts.scheme or parts.netloc else text
