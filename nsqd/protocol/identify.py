"""The settings of one connection after IDENTIFY."""

from dataclasses import dataclass
from enum import Enum

from nsqclient.wire.errors import E_IDENTIFY_FAILED, ProtocolError
from nsqclient.wire.negotiated import DEFAULT_DEFLATE_LEVEL, DEFAULT_OUTPUT_BUFFER_SIZE, Negotiated
from nsqd.engine.identity import Identity, IdentityLimits, check_identity
from nsqd.engine.limits import Limits

_MS = 1_000_000


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

    Raises ProtocolError when a field is out of range, or for both compressions at once.

    Output buffers have no timer here: messages to a consumer are written immediately and in batches. So the
    client's settings for the output buffer are only reported back.
    """
    check_identity(
        identity,
        IdentityLimits(
            max_heartbeat_interval=limits.max_heartbeat_interval_ms,
            min_output_buffer_timeout=limits.min_output_buffer_timeout_ms,
            max_output_buffer_timeout=limits.max_output_buffer_timeout_ms,
            max_output_buffer_size=limits.max_output_buffer_size,
            max_msg_timeout=limits.max_msg_timeout_ns // _MS,
        ),
    )
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
