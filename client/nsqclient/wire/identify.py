"""IDENTIFY: what a client says of itself, the limits on it, and what it is answered."""

import json
from dataclasses import dataclass, fields
from typing import Any, Final

from nsqclient.wire.errors import E_BAD_BODY, ProtocolError
from nsqclient.wire.version import NSQ_VERSION

DEFAULT_OUTPUT_BUFFER_SIZE: Final = 16_384
DEFAULT_DEFLATE_LEVEL: Final = 6
_MIN_INTERVAL_MS: Final = 1_000
_MIN_OUTPUT_BUFFER_SIZE: Final = 64
_MAX_SAMPLE_RATE: Final = 99

_STRINGS: Final = frozenset(("client_id", "hostname", "user_agent", "topology_region", "topology_zone"))
_BOOLS: Final = frozenset(("feature_negotiation", "tls_v1", "snappy", "deflate"))
_INT64S: Final = frozenset(
    ("heartbeat_interval", "output_buffer_timeout", "output_buffer_size", "msg_timeout", "deflate_level")
)
_INT32S: Final = frozenset(("sample_rate",))


@dataclass(frozen=True, slots=True)
class Identity:
    """The body of IDENTIFY; times in milliseconds, 0 where the client leaves the choice to the server."""

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    feature_negotiation: bool = False
    heartbeat_interval: int = 0
    output_buffer_size: int = 0
    output_buffer_timeout: int = 0
    msg_timeout: int = 0
    sample_rate: int = 0
    tls_v1: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 0
    topology_region: str = ""
    topology_zone: str = ""
    extend_support: bool = False


@dataclass(frozen=True, slots=True)
class IdentityLimits:
    """What the server allows; times in milliseconds."""

    max_heartbeat_interval: int
    min_output_buffer_timeout: int
    max_output_buffer_timeout: int
    max_output_buffer_size: int
    max_msg_timeout: int


def parse_identity(body: bytes) -> Identity:
    """Read the JSON body as the original does: keys in any letter case, the last of equal ones wins, null
    is absent, integers are integer literals, unknown keys are ignored.

    Raises ProtocolError E_BAD_BODY.
    """
    try:
        pairs = json.loads(body.decode("utf-8", "replace"), object_pairs_hook=_Pairs, parse_constant=_refuse)
        if pairs is None:
            return Identity()
        if not isinstance(pairs, _Pairs):
            raise TypeError("not an object")
        fields: dict[str, Any] = {}
        for raw_key, value in pairs.items:
            key = raw_key.lower()
            if value is not None and _checked(key, value):
                # Half a surrogate pair is legal JSON but cannot be written anywhere again.
                fields[key] = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        return Identity(**fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(E_BAD_BODY, "IDENTIFY failed to decode JSON body") from error


def check_identity(identity: Identity, limits: IdentityLimits) -> None:
    """Raise ProtocolError E_BAD_BODY for the first field that is out of range, in the original's order."""
    heartbeat = identity.heartbeat_interval
    if heartbeat not in {-1, 0} and not _MIN_INTERVAL_MS <= heartbeat <= limits.max_heartbeat_interval:
        raise _out_of_range("heartbeat interval", heartbeat)
    timeout = identity.output_buffer_timeout
    low, high = limits.min_output_buffer_timeout, limits.max_output_buffer_timeout
    if timeout not in {-1, 0} and not low <= timeout <= high:
        raise _out_of_range("output buffer timeout", timeout)
    size = identity.output_buffer_size
    if size not in {-1, 0} and not _MIN_OUTPUT_BUFFER_SIZE <= size <= limits.max_output_buffer_size:
        raise _out_of_range("output buffer size", size)
    if not 0 <= identity.sample_rate <= _MAX_SAMPLE_RATE:
        raise _out_of_range("sample rate", identity.sample_rate)
    msg_timeout = identity.msg_timeout
    if msg_timeout and not _MIN_INTERVAL_MS <= msg_timeout <= limits.max_msg_timeout:
        raise _out_of_range("msg timeout", msg_timeout)


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What holds for the connection, in the key order of the original's answer; times in milliseconds.

    The defaults are those of a server that does not negotiate.
    """

    max_rdy_count: int = 2500
    version: str = NSQ_VERSION
    max_msg_timeout: int = 15 * 60 * 1000
    msg_timeout: int = 60_000
    sample_rate: int = 0
    deflate_level: int = 0
    max_deflate_level: int = 0
    output_buffer_size: int = DEFAULT_OUTPUT_BUFFER_SIZE
    output_buffer_timeout: int = 250
    topology_region: str = ""
    topology_zone: str = ""
    tls_v1: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_required: bool = False
    extend_support: bool = False  # messages come with their headers, and some are taken

    def to_json(self) -> bytes:
        """The body of the response frame."""
        return json.dumps(
            {
                "max_rdy_count": self.max_rdy_count,
                "version": self.version,
                "max_msg_timeout": self.max_msg_timeout,
                "msg_timeout": self.msg_timeout,
                "tls_v1": self.tls_v1,
                "deflate": self.deflate,
                "deflate_level": self.deflate_level,
                "max_deflate_level": self.max_deflate_level,
                "snappy": self.snappy,
                "sample_rate": self.sample_rate,
                "auth_required": self.auth_required,
                "output_buffer_size": self.output_buffer_size,
                "output_buffer_timeout": self.output_buffer_timeout,
                "topology_region": self.topology_region,
                "topology_zone": self.topology_zone,
                # Who does not know it is answered as the original answers.
                **({"extend_support": True} if self.extend_support else {}),
            },
            separators=(",", ":"),
        ).encode()


def parse_negotiated(answer: bytes) -> Negotiated:
    """Read the answer to IDENTIFY as a client; a plain ``OK`` comes from a server that does not negotiate.

    Raises ValueError.
    """
    if not answer.startswith(b"{"):
        return Negotiated(version="")
    try:
        granted = json.loads(answer)
        known = {option.name: granted[option.name] for option in fields(Negotiated) if option.name in granted}
    except (ValueError, RecursionError) as error:
        raise ValueError("it is no JSON object") from error
    for option in fields(Negotiated):
        if option.name in known and type(known[option.name]) is not option.type:
            raise ValueError(f"{option.name} is {known[option.name]!r}")
    return Negotiated(**{"version": "", **known})


class _Pairs:
    """A JSON object that keeps its duplicate keys."""

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _checked(key: str, value: Any) -> bool:
    """Whether *key* is one of ours; raises TypeError when its value is of another type."""
    if key in _STRINGS:
        ok = isinstance(value, str)
    elif key in _BOOLS:
        ok = isinstance(value, bool)
    elif key in _INT64S:
        ok = type(value) is int and -(1 << 63) <= value < 1 << 63
    elif key in _INT32S:
        ok = type(value) is int and -(1 << 31) <= value < 1 << 31
    else:
        # Not of the original's: whatever else stands there is passed over, as it does.
        return key == "extend_support" and isinstance(value, bool)
    if not ok:
        raise TypeError(key)
    return True


def _out_of_range(what: str, value: int) -> ProtocolError:
    return ProtocolError(E_BAD_BODY, f"IDENTIFY {what} ({value}) is invalid")
