"""The V1 protocol between nsqd and nsqlookupd, both sides.

The announcing side sends four magic bytes and then text lines; only IDENTIFY carries a body. Every command is
answered, in order, by one length-prefixed payload: ``OK``, IDENTIFY's JSON, or ``CODE sentence``.
"""

import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nsqclient.wire.errors import E_BAD_BODY, E_BAD_PROTOCOL, E_INVALID, ProtocolError
from nsqcore import fields

MAGIC_V1: Final = b"  V1"
PING: Final = b"PING\n"

# Neither limit is part of the protocol: names are at most 64 bytes and an IDENTIFY is some hundred, so these
# only keep a hostile peer from filling the memory.
MAX_LINE: Final = 64 * 1024
MAX_BODY: Final = 1024 * 1024

_SIZE = struct.Struct(">i")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_WHITE: Final = b" \t\r\n\v\f"


# The obstacle of an nsqd that refuses publishes because its replicas are missing. It accepts other copies.
REPLICAS_MISSING: Final = "replicas"


@dataclass(frozen=True, slots=True)
class Identify:
    body: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class Register:
    """The names are as received: the session decides about missing (None), empty or invalid ones."""

    topic: str | None
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Unregister:
    topic: str | None
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Available:
    """Not in NSQ: whether publishes are accepted; *obstacle* is empty when they are."""

    obstacle: str


Command: TypeAlias = Identify | Ping | Register | Unregister | Available


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """An nsqd's description of itself in IDENTIFY."""

    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    hostname: str = ""
    topology_zone: str = ""
    topology_region: str = ""
    identity: str = ""
    """Not in the original: the identity of its data path, in hexadecimal digits."""
    accepts_replicas: bool = False
    """Not in the original: whether it accepts replicas of the logs of other nsqd."""


@dataclass(frozen=True, slots=True)
class LookupdInfo:
    """An nsqlookupd's description of itself in reply; an old one may omit any field."""

    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    accepts_availability: bool = False
    """Whether it knows AVAILABLE and UNAVAILABLE; these commands end the connection to any other."""


# -- nsqd's side: commands out, replies in ---------------------------------------


def encode_identify(info: Mapping[str, object]) -> bytes:
    body = json.dumps(info, separators=(",", ":"), sort_keys=True).encode()
    return b"IDENTIFY\n" + _SIZE.pack(len(body)) + body


def encode_register(topic: str, channel: str | None = None) -> bytes:
    return _line("REGISTER", topic, channel)


def encode_unregister(topic: str, channel: str | None = None) -> bytes:
    return _line("UNREGISTER", topic, channel)


def encode_available(obstacle: str) -> bytes:
    """Report that publishes are accepted, or the obstacle."""
    return f"UNAVAILABLE {obstacle}\n".encode() if obstacle else b"AVAILABLE\n"


def encode_registrations(registrations: Iterable[tuple[str, Iterable[str]]]) -> list[bytes]:
    """List the commands that announce everything: one per channel, or one for a topic without channels."""
    commands = []
    for topic, channels in registrations:
        names = sorted(channels)
        commands += [encode_register(topic, name) for name in names] or [encode_register(topic)]
    return commands


def decode_lookupd_info(payload: bytes) -> LookupdInfo:
    """Read the reply to IDENTIFY; raises ValueError with the peer's words when they are no JSON object."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        shown = payload[:200].decode("utf-8", "replace")
        raise ValueError(shown or "empty reply to IDENTIFY")  # noqa: TRY004 - it is the text that is wrong
    address, version = value.get("broadcast_address"), value.get("version")
    tcp_port, http_port = value.get("tcp_port"), value.get("http_port")
    return LookupdInfo(
        broadcast_address=address if isinstance(address, str) else "",
        tcp_port=tcp_port if isinstance(tcp_port, int) else 0,
        http_port=http_port if isinstance(http_port, int) else 0,
        version=version if isinstance(version, str) else "",
        accepts_availability=value.get("availability") is True,
    )


class ReplyParser:
    """Cuts the bytes of an nsqlookupd into reply payloads."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_reply(self) -> bytes | None:
        """Return the next whole payload, or None until more bytes are fed."""
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        (size,) = _SIZE.unpack_from(buffer)
        if buffer.startswith(b"HTTP"):
            raise ProtocolError(
                E_BAD_BODY, "answer in HTTP: this is an HTTP port, nsqlookupd's TCP port is 4160 by default"
            )
        if not 0 <= size <= self._max_size:
            raise ProtocolError(E_BAD_BODY, f"response size {size} is not within {self._max_size}")
        if len(buffer) < 4 + size:
            return None
        payload = bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        return payload


# -- nsqlookupd's side: commands in, replies out ----------------------------------


def encode_reply(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload


class CommandParser:
    """Cuts the bytes of an announcing peer into commands.

    Feed the bytes that arrive, then take commands until None. After a ProtocolError it cannot continue.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._magic_seen = False
        self._identified = False
        self._in_body = False

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next_command(self) -> Command | None:
        """Return the next whole command, or None until more bytes are fed."""
        if not self._magic_seen and not self._take_magic():
            return None
        if self._in_body:
            return self._identify_body()
        end = self._buffer.find(b"\n", self._at)
        if end < 0 or end - self._at > MAX_LINE:
            if len(self._buffer) - self._at > MAX_LINE:
                raise ProtocolError(E_INVALID, f"line is longer than {MAX_LINE} bytes")
            return None
        line = bytes(self._buffer[self._at : end]).strip(_WHITE)
        self._at = end + 1
        # With surrogateescape, bytes that are not UTF-8 reach the error sentence that echoes them.
        word, *params = line.decode("utf-8", "surrogateescape").split(" ")
        if word == "PING":
            return Ping()
        if word == "REGISTER":
            return Register(*_names(params))
        if word == "UNREGISTER":
            return Unregister(*_names(params))
        if word == "AVAILABLE":
            return Available("")
        if word == "UNAVAILABLE":
            return Available(params[0] if params and params[0] else "unavailable")
        if word == "IDENTIFY":
            # Refused before its body arrives, because the peer may not send one.
            if self._identified:
                raise ProtocolError(E_INVALID, "cannot IDENTIFY again")
            self._identified = True
            self._in_body = True
            return self._identify_body()
        raise ProtocolError(E_INVALID, f"invalid command {word}")

    def end_of_stream(self) -> None:
        """Raise ProtocolError when the stream ends inside a body; an unfinished line is dropped silently."""
        if self._in_body:
            what = "body" if len(self._buffer) - self._at >= 4 else "body size"
            raise ProtocolError(E_BAD_BODY, f"IDENTIFY failed to read {what}")

    def _take_magic(self) -> bool:
        if len(self._buffer) < 4:
            return False
        if self._buffer[:4] != MAGIC_V1:
            raise ProtocolError(E_BAD_PROTOCOL)
        self._at = 4
        self._magic_seen = True
        return True

    def _identify_body(self) -> Identify | None:
        start = self._at + 4
        if len(self._buffer) < start:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._at)
        if size < 0:
            raise ProtocolError(E_BAD_BODY, "IDENTIFY failed to read body size")
        if size > MAX_BODY:
            raise ProtocolError(E_BAD_BODY, f"IDENTIFY body too big {size} > {MAX_BODY}")
        if len(self._buffer) < start + size:
            return None
        self._at = start + size
        self._in_body = False
        return Identify(bytes(self._buffer[start : start + size]))


def decode_peer_info(body: bytes) -> PeerInfo:
    """Read the JSON of IDENTIFY; raises the ProtocolError to answer with."""
    try:
        value = json.loads(body.decode("utf-8", "replace"), parse_constant=_no_constant)
        # The original matches keys in any letter case, and reads null as a record without fields.
        given = {} if value is None else {key.lower(): field for key, field in value.items()}
        info = PeerInfo(
            broadcast_address=fields.text(given, "broadcast_address"),
            tcp_port=fields.integer(given, "tcp_port"),
            http_port=fields.integer(given, "http_port"),
            version=fields.text(given, "version"),
            hostname=fields.text(given, "hostname"),
            topology_zone=fields.text(given, "topology_zone"),
            topology_region=fields.text(given, "topology_region"),
            identity=_identity(given.get("identity")),
            accepts_replicas=given.get("accepts_replicas") is True,
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ProtocolError(E_BAD_BODY, "IDENTIFY failed to decode JSON body") from None
    if not (info.broadcast_address and info.tcp_port and info.http_port and info.version):
        raise ProtocolError(E_BAD_BODY, "IDENTIFY missing fields")
    return info


def is_identity(text: str) -> bool:
    """Whether a text is the identity of a data path, in hexadecimal digits."""
    return _IDENTITY.fullmatch(text) is not None


def _identity(value: object) -> str:
    """The identity of a data path; empty when a field of this name holds something else."""
    return value if isinstance(value, str) and is_identity(value) else ""


def _no_constant(word: str) -> None:
    raise ValueError(word)


def _names(params: list[str]) -> tuple[str | None, str | None]:
    """Split topic and channel off; an empty channel parameter means none."""
    topic = params[0] if params else None
    return topic, params[1] if len(params) > 1 else None


def _line(word: str, topic: str, channel: str | None) -> bytes:
    return f"{word} {topic} {channel}\n".encode() if channel else f"{word} {topic}\n".encode()
