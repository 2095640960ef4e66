"""The settings of a client, named as in NSQ's own client library, and checked when they are built."""

import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final

from nsqclient.version import __version__
from nsqclient.wire.address import split_address
from nsqclient.wire.durations import SECOND, meant_duration, parse_duration
from nsqclient.wire.frames import MAX_FRAME_BYTES
from nsqclient.wire.headers import MAX_HEADER_BYTES

TLS_OPTIONS: Final = frozenset(
    ("tls_root_ca_file", "tls_insecure_skip_verify", "tls_cert", "tls_key", "tls_min_version")
)

# "ssl3.0" was accepted once. No library speaks it today, so it means the lowest version supported.
_VERSIONS: Final = {
    "ssl3.0": ssl.TLSVersion.MINIMUM_SUPPORTED,
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Build a client's context from ``tls_*`` options; ValueError says which option cannot be used."""
    try:
        context = ssl.create_default_context(cafile=options.get("tls_root_ca_file"))
    except OSError as error:
        raise ValueError(f"tls_root_ca_file {options.get('tls_root_ca_file')!r}: {error}") from error
    if options.get("tls_insecure_skip_verify") in _TRUE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = options.get("tls_cert"), options.get("tls_key")
    if bool(certificate) != bool(key):
        raise ValueError("tls_cert and tls_key are needed together")
    if certificate:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise ValueError(f"tls_cert {certificate!r} and tls_key {key!r}: {error}") from error
    if version := options.get("tls_min_version"):
        if version not in _VERSIONS:
            raise ValueError(f"tls_min_version {version!r} is none of {', '.join(_VERSIONS)}")
        context.minimum_version = _VERSIONS[version]
    return context


_MINUTE_S: Final = 60.0
_HOUR_S: Final = 60 * _MINUTE_S

# option -> smallest and largest value allowed
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "dial_timeout": (0, _HOUR_S),
    "read_timeout": (0.1, 5 * _MINUTE_S),
    "write_timeout": (0.1, 5 * _MINUTE_S),
    "lookupd_poll_interval": (0.01, 5 * _MINUTE_S),
    "lookupd_poll_jitter": (0, 1),
    "lookupd_poll_timeout": (0.01, _HOUR_S),
    "max_backoff_duration": (0, _HOUR_S),
    "backoff_multiplier": (0, _HOUR_S),
    "low_rdy_idle_timeout": (1, 5 * _MINUTE_S),
    "low_rdy_timeout": (1, 5 * _MINUTE_S),
    "rdy_redistribute_interval": (0.001, 5),
    "sample_rate": (0, 99),
    "deflate_level": (1, 9),
    "max_in_flight": (0, 2**31 - 1),
    "msg_timeout": (0, 24 * _HOUR_S),
    "max_msg_size": (0, 2**31 - 1),
    # -1 turns them off at nsqd
    "heartbeat_interval": (-1, _HOUR_S),
    "output_buffer_size": (-1, 2**31 - 1),
    "output_buffer_timeout": (-1, _HOUR_S),
}

DEFAULT_MAX_IN_FLIGHT: Final = 1

BACKOFF_STRATEGIES: Final = ("exponential", "full_jitter")


def _duration(seconds: float) -> Any:
    """A field of seconds; as text it is written with a unit (``90s``)."""
    return field(default=seconds, metadata={"duration": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one client, with all durations in seconds. Immutable: a change makes a copy."""

    # connection
    client_id: str = field(default_factory=lambda: socket.gethostname().partition(".")[0])
    hostname: str = field(default_factory=socket.gethostname)
    user_agent: str = f"nsqclient/{__version__}"
    topology_region: str = ""
    topology_zone: str = ""
    dial_timeout: float = _duration(1)
    read_timeout: float = _duration(_MINUTE_S)
    write_timeout: float = _duration(1)
    local_addr: str = ""  # host:port to connect from
    heartbeat_interval: float = _duration(30)
    output_buffer_size: int = 16384
    output_buffer_timeout: float = _duration(0.25)
    auth_secret: str = field(default="", repr=False)
    # Whether auth_secret is sent without TLS to an nsqd that nsqlookupd named. One given by address gets it.
    auth_allow_cleartext: bool = False
    # Receive and publish headers of messages; needs an nsqd that supports them.
    headers: bool = False

    # True trusts the certificate authorities of this machine; a path is the file of a certificate authority.
    tls: bool | ssl.SSLContext | str | os.PathLike[str] = False
    deflate: bool = False
    deflate_level: int = 6
    snappy: bool = False

    # discovery
    lookupd_poll_interval: float = _duration(_MINUTE_S)
    lookupd_poll_jitter: float = 0.3
    lookupd_poll_timeout: float = _duration(_MINUTE_S)
    # For nsqlookupd over https, if it differs from tls.
    lookupd_tls: bool | ssl.SSLContext | str | os.PathLike[str] = False
    # Whether auth_secret is sent to nsqlookupd as a bearer token.
    lookupd_authorization: bool = True

    # consuming
    # At this default, a consumer raises it to the number of messages that its handlers process concurrently.
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    msg_timeout: float = _duration(0)  # 0 leaves it to the server
    max_msg_size: int = 0  # 0 means any size that nsqd allows
    sample_rate: int = 0  # percent; 0 means all
    # Or a function from the back-off level (1 for the first) to the seconds to stop.
    backoff_strategy: str | Callable[[int], float] = "exponential"
    backoff_multiplier: float = _duration(1)
    max_backoff_duration: float = _duration(2 * _MINUTE_S)  # 0 disables backing off
    low_rdy_idle_timeout: float = _duration(10)
    low_rdy_timeout: float = _duration(30)
    rdy_redistribute_interval: float = _duration(5)

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, timedelta) and name in _DURATIONS:
                value = value.total_seconds()
                object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} {value!r} is not a number")
            if not low <= value <= high:
                raise ValueError(f"{name} {value:g} is out of range {low:g}-{high:g}")
        if not callable(self.backoff_strategy) and self.backoff_strategy not in BACKOFF_STRATEGIES:
            raise ValueError(f"backoff_strategy {self.backoff_strategy!r} is not exponential or full_jitter")
        if self.heartbeat_interval > self.read_timeout:
            raise ValueError("heartbeat_interval must not be above read_timeout")
        if self.deflate and self.snappy:
            raise ValueError("deflate and snappy exclude each other")
        for name in ("tls", "lookupd_tls"):
            value = getattr(self, name)
            if isinstance(value, str | os.PathLike):
                object.__setattr__(self, name, tls_context({"tls_root_ca_file": os.fspath(value)}))
            elif not isinstance(value, bool | ssl.SSLContext):
                raise TypeError(f"{name} {value!r} is neither a bool nor an ssl.SSLContext nor a path")
        if self.snappy and find_spec("cramjam") is None:
            raise ValueError("snappy needs the package cramjam: pip install nsqclient[snappy]")
        if self.local_addr:
            split_address(self.local_addr)

    def with_options(self, *options: str) -> "Config":
        """Return a copy changed by options as command lines give them: ``max_in_flight,200`` or ``snappy``.

        A name alone means true. Durations need a unit. Raises ValueError, which says what is wrong with which
        option.
        """
        changes: dict[str, Any] = {}
        tls: dict[str, str] = {}
        for option in options:
            name, value = check_option(option)
            if name in TLS_OPTIONS:
                tls[name] = value
            else:
                changes[name] = value
        context = tls_context(tls) if tls else None
        wanted = changes.pop("tls_v1", bool(self.tls))
        if context is not None and not wanted:
            raise ValueError(f"{', '.join(tls)} without tls_v1 would leave the connection in the clear")
        if context is not None or wanted != bool(self.tls):
            changes["tls"] = context or wanted
        return replace(self, **changes)

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for nsqd, if it was given; without one the authorities of this machine count."""
        return self.tls if isinstance(self.tls, ssl.SSLContext) else None

    @property
    def lookupd_tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for nsqlookupd, if one was given."""
        tls = self.lookupd_tls or self.tls
        return tls if isinstance(tls, ssl.SSLContext) else None

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame accepted from nsqd, in bytes: a body with its message header and headers."""
        if not self.max_msg_size:
            return MAX_FRAME_BYTES
        # nsqd allows headers in addition to the largest body.
        return self.max_msg_size + 1024 + (MAX_HEADER_BYTES if self.headers else 0)

    def identify_settings(self) -> dict[str, Any]:
        """The fields of IDENTIFY; times in milliseconds."""
        return {
            "client_id": self.client_id,
            "hostname": self.hostname,
            "user_agent": self.user_agent,
            "short_id": self.client_id,  # read by nsqd before 0.3
            "long_id": self.hostname,
            "topology_region": self.topology_region,
            "topology_zone": self.topology_zone,
            "feature_negotiation": True,
            "heartbeat_interval": _milliseconds(self.heartbeat_interval),
            "sample_rate": self.sample_rate,
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": _milliseconds(self.output_buffer_timeout),
            "msg_timeout": _milliseconds(self.msg_timeout),
            "tls_v1": bool(self.tls),
            "deflate": self.deflate,
            "deflate_level": self.deflate_level,
            "snappy": self.snappy,
            **({"extend_support": True} if self.headers else {}),
        }


# The options that with_options() reads from text: name -> type, whether it is a duration.
_OPTIONS: Final = {
    option.name: (getattr(option.type, "__name__", ""), "duration" in option.metadata)
    for option in fields(Config)
    if option.name not in {"tls", "lookupd_tls", "lookupd_authorization"}
} | {"backoff_strategy": ("str", False), "tls_v1": ("bool", False)}
_DURATIONS: Final = frozenset(option.name for option in fields(Config) if "duration" in option.metadata)

_BOOLS: Final = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


def _milliseconds(seconds: float) -> int:
    return -1 if seconds == -1 else round(seconds * 1000)


def check_option(option: str) -> tuple[str, Any]:
    """Return the field and the value that one option for :meth:`Config.with_options` sets.

    Raises ValueError when the option does not exist or its value cannot be read. Ranges, and whether options
    fit together, are checked when the whole configuration is built.
    """
    name, comma, text = option.partition(",")
    name = name.strip().replace("-", "_")
    value = text.strip() if comma else "true"
    if name in TLS_OPTIONS:
        return name, value
    if name == "skip_lookupd_authorization":  # go-nsq's name for the opposite
        return "lookupd_authorization", option_value(name, "bool", value, duration=False)
    if name not in _OPTIONS:
        raise ValueError(f"invalid option {name}")
    kind, duration = _OPTIONS[name]
    return name, option_value(name, kind, value, duration=duration)


def option_value(name: str, kind: str, text: str, *, duration: bool) -> Any:
    """Read the value of an option of a command line; durations in seconds. Raises ValueError."""
    try:
        if duration:
            try:
                return parse_duration(text) / SECOND
            except ValueError as error:
                raise ValueError(f"{error}{meant_duration(text)}") from None
        if kind == "bool":
            return _BOOLS[text]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"failed to coerce option {name} ({text}) - {error}") from error
