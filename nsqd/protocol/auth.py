"""The grants of a client: an auth server's reply, and the check of one command against it."""

import json
from dataclasses import dataclass
from typing import Any, Final

from nsqd.protocol.patterns import BadPattern, Pattern

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
_PERMISSIONS: Final = frozenset((PUBLISH, SUBSCRIBE))
_NS_PER_S: Final = 1_000_000_000
# The clock of the original also ends here: a longer ttl means forever.
_MAX_TTL: Final = (1 << 63) // _NS_PER_S


class BadAnswer(ValueError):
    """An auth server's reply that is invalid and therefore grants nothing; the text says why.

    The text quotes nothing of the answer, because the text is logged and a server may repeat a client's
    secret.
    """


@dataclass(frozen=True, slots=True)
class Query:
    """The question for the auth server; with *answer* the client waits for the reply to AUTH."""

    secret: bytes
    answer: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """One authorization: which permissions it gives on which topics and channels."""

    topic: Pattern
    channels: tuple[Pattern, ...]
    permissions: frozenset[str]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        return (
            permission in self.permissions
            and self.topic.occurs_in(topic)
            and any(pattern.occurs_in(channel) for pattern in self.channels)
        )


@dataclass(frozen=True, slots=True)
class Authorizations:
    """All authorizations that an auth server gave a client; good until ``expires_ns``."""

    identity: str
    identity_url: str
    grants: tuple[Grant, ...]
    expires_ns: int

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        """Whether any grant matches; a publish has the empty string as its channel."""
        return any(grant.allows(permission, topic, channel) for grant in self.grants)

    def to_json(self) -> bytes:
        """The reply to AUTH."""
        return json.dumps(
            {
                "identity": self.identity,
                "identity_url": self.identity_url,
                "permission_count": len(self.grants),
            },
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode("utf-8", "replace")


def parse_authorizations(body: bytes, now_ns: int) -> Authorizations:
    """Read the answer of an auth server that came at *now_ns*. Raises BadAnswer."""
    try:
        fields = json.loads(body.decode("utf-8", "replace"), object_pairs_hook=_lower)
    except (ValueError, RecursionError) as error:
        raise BadAnswer("no JSON") from error
    if not isinstance(fields, dict):
        raise BadAnswer("not a JSON object")
    ttl = _field(fields, "ttl", int, 0)
    if ttl <= 0:
        raise BadAnswer(f"invalid TTL {ttl} (must be >0)")
    return Authorizations(
        identity=_field(fields, "identity", str, ""),
        identity_url=_field(fields, "identity_url", str, ""),
        grants=tuple(
            _grant(number, item) for number, item in enumerate(_field(fields, "authorizations", list, []))
        ),
        expires_ns=now_ns + min(ttl, _MAX_TTL) * _NS_PER_S,
    )


def _grant(number: int, fields: Any) -> Grant:
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise BadAnswer("an authorization is not a JSON object")
    permissions = frozenset(_strings(fields, "permissions"))
    if permissions - _PERMISSIONS:
        raise BadAnswer(f"unknown permission in authorization {number}")
    return Grant(
        topic=_pattern(f"topic of authorization {number}", _field(fields, "topic", str, "")),
        channels=tuple(
            _pattern(f"a channel of authorization {number}", text) for text in _strings(fields, "channels")
        ),
        permissions=permissions,
    )


def _pattern(what: str, text: str) -> Pattern:
    try:
        return Pattern(text)
    except BadPattern as error:
        raise BadAnswer(f"unable to compile {what}: {error}") from error


def _lower(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as the original reads it: the case of keys is ignored; of equal keys the last one counts."""
    return {key.lower(): value for key, value in pairs}


def _field(fields: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    # A bool is an int in Python, but not in JSON.
    if type(value) is not kind:
        raise BadAnswer(f"{name} is of the wrong type")
    return value


def _strings(fields: dict[str, Any], name: str) -> list[str]:
    values: list[Any] = ["" if value is None else value for value in _field(fields, name, list, [])]
    if not all(isinstance(value, str) for value in values):
        raise BadAnswer(f"{name} holds something else than text")
    return values
