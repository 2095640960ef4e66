"""IDENTIFY: the properties of a client, the limits on them, and the settings of its connection."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from nsqclient.wire.errors import E_BAD_BODY, E_IDENTIFY_FAILED, ProtocolError
from nsqclient.wire.negotiated import DEFAULT_DEFLATE_LEVEL, DEFAULT_OUTPUT_BUFFER_SIZE, Negotiated
from nsqd.engine.credit import ELSEWHERE, SAME_REGION, SAME_ZONE
from nsqd.engine.limits import Limits

_MS: Final = 1_000_000
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


def check_identity(identity: Identity, limits: Limits) -> None:
    """Raise ProtocolError E_BAD_BODY for the first field that is out of range, in the original's order."""
    heartbeat = identity.heartbeat_interval
    if heartbeat not in {-1, 0} and not _MIN_INTERVAL_MS <= heartbeat <= limits.max_heartbeat_interval_ms:
        raise _out_of_range("heartbeat interval", heartbeat)
    timeout = identity.output_buffer_timeout
    low, high = limits.min_output_buffer_timeout_ms, limits.max_output_buffer_timeout_ms
    if timeout not in {-1, 0} and not low <= timeout <= high:
        raise _out_of_range("output buffer timeout", timeout)
    size = identity.output_buffer_size
    if size not in {-1, 0} and not _MIN_OUTPUT_BUFFER_SIZE <= size <= limits.max_output_buffer_size:
        raise _out_of_range("output buffer size", size)
    if not 0 <= identity.sample_rate <= _MAX_SAMPLE_RATE:
        raise _out_of_range("sample rate", identity.sample_rate)
    msg_timeout = identity.msg_timeout
    if msg_timeout and not _MIN_INTERVAL_MS <= msg_timeout <= limits.max_msg_timeout_ns // _MS:
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


class Upgrade(Enum):
    """A layer that may be put around a connection after IDENTIFY, by its name in the log."""

    TLS = "TLS"
    SNAPPY = "snappy"
    DEFLATE = "deflate"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times in the units that the names say; ``heartbeat_ms`` 0 means that there are no heartbeats."""

    heartbeat_ms: int
    msg_timeout_ns: int
    sample_rate: int
    output_buffer_size: int
    output_buffer_timeout_ms: int
    deflate_level: int = DEFAULT_DEFLATE_LEVEL
    extended: bool = False
    """Messages come with their headers."""


def default_settings(limits: Limits) -> ClientSettings:
    """The settings of a client that never sends IDENTIFY."""
    return ClientSettings(
        heartbeat_ms=limits.heartbeat_interval_ms,
        msg_timeout_ns=limits.msg_timeout_ns,
        sample_rate=0,
        output_buffer_size=DEFAULT_OUTPUT_BUFFER_SIZE,
        output_buffer_timeout_ms=limits.output_buffer_timeout_ms,
    )


def negotiate(
    identity: Identity, limits: Limits, present: tuple[Upgrade, ...] = ()
) -> tuple[ClientSettings, Negotiated]:
    """Apply the settings that the client requested.

    An upgrade that is *present* already is not granted again.

    Raises ProtocolError when a field is out of range, or for both compressions at the same time.

    Output buffers have no timer here: messages to a consumer are written immediately and in batches. So the
    client's settings for the output buffer are only reported back.
    """
    check_identity(identity, limits)
    defaults = default_settings(limits)
    buffer_size = {-1: 1, 0: defaults.output_buffer_size}.get(
        identity.output_buffer_size, identity.output_buffer_size
    )
    buffer_timeout = {-1: 0, 0: defaults.output_buffer_timeout_ms}.get(
        identity.output_buffer_timeout, identity.output_buffer_timeout
    )
    # Without feature negotiation the reply does not name the granted settings, so nothing is granted.
    negotiates = identity.feature_negotiation
    tls = negotiates and limits.tls_v1 and identity.tls_v1 and Upgrade.TLS not in present
    free = negotiates and not {Upgrade.DEFLATE, Upgrade.SNAPPY}.intersection(present)
    deflate = free and limits.deflate and identity.deflate
    snappy = free and limits.snappy and identity.snappy
    if deflate and snappy:
        raise ProtocolError(E_IDENTIFY_FAILED, "cannot enable both deflate and snappy compression")
    level = identity.deflate_level if deflate and identity.deflate_level > 0 else DEFAULT_DEFLATE_LEVEL
    settings = ClientSettings(
        heartbeat_ms={-1: 0, 0: defaults.heartbeat_ms}.get(
            identity.heartbeat_interval, identity.heartbeat_interval
        ),
        msg_timeout_ns=identity.msg_timeout * _MS or defaults.msg_timeout_ns,
        sample_rate=identity.sample_rate,
        output_buffer_size=buffer_size,
        output_buffer_timeout_ms=0 if identity.output_buffer_size == -1 else buffer_timeout,
        deflate_level=min(level, limits.max_deflate_level),
        extended=identity.extend_support,
    )
    return settings, Negotiated(
        max_rdy_count=limits.max_rdy_count,
        max_msg_timeout=limits.max_msg_timeout_ns // _MS,
        msg_timeout=settings.msg_timeout_ns // _MS,
        sample_rate=settings.sample_rate,
        deflate_level=settings.deflate_level,
        max_deflate_level=limits.max_deflate_level,
        output_buffer_size=settings.output_buffer_size,
        output_buffer_timeout=settings.output_buffer_timeout_ms,
        auth_required=limits.auth_required,
        topology_region=limits.topology_region,
        topology_zone=limits.topology_zone,
        tls_v1=tls,
        deflate=deflate,
        snappy=snappy,
        extend_support=settings.extended,
    )


def upgrades(negotiated: Negotiated) -> tuple[Upgrade, ...]:
    """The granted upgrades, in the order in which they are put around the connection."""
    granted = {
        Upgrade.TLS: negotiated.tls_v1,
        Upgrade.SNAPPY: negotiated.snappy,
        Upgrade.DEFLATE: negotiated.deflate,
    }
    return tuple(upgrade for upgrade, wanted in granted.items() if wanted)


def nearness(limits: Limits, identity: Identity) -> int:
    """How near a client is, by its region and zone and those of this nsqd.

    An nsqd without zone and region is near no client, and a client that names none is near no nsqd.
    """
    if limits.topology_zone and identity.topology_zone == limits.topology_zone:
        return SAME_ZONE
    if limits.topology_region and identity.topology_region == limits.topology_region:
        return SAME_REGION
    return ELSEWHERE
