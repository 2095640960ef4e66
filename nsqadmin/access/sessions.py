"""Signed cookies: who signed in, until the session expires or is ended; PURE, time arrives as ``now_s``."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from nsqadmin.access.roles import Person

# Beyond this number the sessions that were ended first are forgotten.
_MAX_ENDED: Final = 10_000


@dataclass(slots=True)
class Signer:
    """Writes signed values that expire; *secret* returns the current secret."""

    secret: Callable[[], bytes]

    def write(self, purpose: str, value: dict[str, Any], until_s: float) -> str:
        body = base64.urlsafe_b64encode(json.dumps({**value, "until": until_s}).encode()).rstrip(b"=")
        return f"{body.decode()}.{self._signature(purpose, body)}"

    def read(self, purpose: str, text: str, now_s: float) -> dict[str, Any] | None:
        """Return the value, or None if it was not signed here, has another purpose, or has expired."""
        if not text.isascii():
            return None
        body, dot, signature = text.partition(".")
        if not dot or not hmac.compare_digest(
            signature.encode(), self._signature(purpose, body.encode()).encode()
        ):
            return None
        try:
            value = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            return None
        return value if isinstance(value, dict) and value.get("until", 0) > now_s else None

    def _signature(self, purpose: str, body: bytes) -> str:
        return hmac.new(self.secret(), purpose.encode() + b"\0" + body, hashlib.sha256).hexdigest()


@dataclass(slots=True)
class Sessions:
    """Sessions of people who signed in."""

    signer: Signer
    lasts_s: float
    # Ended sessions, the latest last. An expired one stays remembered: the clock may be set back.
    _ended: dict[str, None] = field(default_factory=dict)

    def create(self, number: str, person: Person, now_s: float) -> str:
        """Return the cookie of a new session; *number* must be impossible to guess."""
        value = {"id": number, "name": person.name, "groups": list(person.groups)}
        return self.signer.write("session", value, now_s + self.lasts_s)

    def person(self, cookie: str, now_s: float) -> Person | None:
        value = self.signer.read("session", cookie, now_s)
        if value is None or value.get("id") in self._ended:
            return None
        return Person(str(value["name"]), tuple(map(str, value["groups"])), "sign-in")

    def end(self, cookie: str, now_s: float) -> None:
        """End the session of *cookie*, including all copies of the cookie."""
        value = self.signer.read("session", cookie, now_s)
        if value is None:
            return
        while len(self._ended) >= _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[str(value["id"])] = None
