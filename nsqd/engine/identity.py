"""IDENTIFY as a server reads it: the properties of a client, and the limits on them."""

import json
from dataclasses import dataclass
from typing import Any, Final

from nsqclient.wire.errors import E_BAD_BODY, ProtocolError
from nsqd.engine.limits import Limits

# How near a client is to this nsqd.
SAME_ZONE: Final = 0
SAME_REGION: Final = 1
ELSEWHERE: Final = 2

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
                # Half a surrogate pair is legal JSON, but cannot be encoded again.
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


class _Pairs:
    """A JSON object with its duplicate keys."""

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _checked(key: str, value: Any) -> bool:
    """Whether *key* is a known field; raises TypeError when its value has another type."""
    if key in _STRINGS:
        ok = isinstance(value, str)
    elif key in _BOOLS:
        ok = isinstance(value, bool)
    elif key in _INT64S:
        ok = type(value) is int and -(1 << 63) <= value < 1 << 63
    elif key in _INT32S:
        ok = type(value) is int and -(1 << 31) <= value < 1 << 31
    else:
        # extend_support is not in the original: values of other types are ignored, as the original does.
        return key == "extend_support" and isinstance(value, bool)
    if not ok:
        raise TypeError(key)
    return True


def _out_of_range(what: str, value: int) -> ProtocolError:
    return ProtocolError(E_BAD_BODY, f"IDENTIFY {what} ({value}) is invalid")


def nearness(limits: Limits, identity: Identity) -> int:
    """How near a client is, by its region and zone and those of this nsqd.

    An nsqd without zone and region is near no client, and a client that names none is near no nsqd.
    """
    if limits.topology_zone and identity.topology_zone == limits.topology_zone:
        return SAME_ZONE
    if limits.topology_region and identity.topology_region == limits.topology_region:
        return SAME_REGION
    return ELSEWHERE
