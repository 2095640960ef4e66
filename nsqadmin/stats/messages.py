"""Messages as pages show them: their bodies as JSON, text or bytes, and their holders; PURE."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from nsqadmin.patterns import fill
from nsqcore.cluster.listed_messages import ListedMessage

_PREVIEW: Final = 160
_HEX_WIDTH: Final = 16
# W3C's trace context: version, trace, span, flags.
_TRACE_PARTS: Final = 4


class WrittenNumber(str):
    """A number of JSON with its spelling: 1.10 stays 1.10."""

    __slots__ = ()


@dataclass(frozen=True)
class FoundMessage:
    """A message and the nsqd that holds it."""

    node: str
    listed: ListedMessage
    # False for people who may not read messages: then body and headers are left out.
    readable: bool = True

    @cached_property
    def content(self) -> bytes:
        """The body; none if it may not be read."""
        return self.listed.content if self.readable else b""

    @cached_property
    def text(self) -> str | None:
        """The body if it is text, else None."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            return None

    @cached_property
    def tree(self) -> Any:
        """The body if it is a JSON or MessagePack object or array; else None.

        Numbers of JSON are spelled as in the body.
        """
        text = self.text
        if text is None:
            return _unpacked(self.content)
        if text.lstrip()[:1] not in {"{", "["}:
            return None
        try:
            return json.loads(
                text, parse_int=WrittenNumber, parse_float=WrittenNumber, parse_constant=WrittenNumber
            )
        except (ValueError, RecursionError):
            return None

    @property
    def format(self) -> str:
        """The format of the tree."""
        return "MessagePack" if self.text is None else "JSON"

    @property
    def preview(self) -> str:
        """The beginning of the body on one line."""
        if self.text is None:
            begin = self.content[: _PREVIEW // 4].hex(" ")
            return begin + ("…" if len(self.content) > _PREVIEW // 4 else "")
        line = " ".join(self.text[: 2 * _PREVIEW].split())
        return line[:_PREVIEW] + ("…" if len(line) > _PREVIEW or len(self.text) > 2 * _PREVIEW else "")

    @property
    def headers(self) -> Mapping[str, str]:
        return self.listed.headers if self.readable else {}

    @property
    def holder(self) -> str:
        """The consumer that has it in flight, in words."""
        client = self.listed.client
        name = client.get("client_id") or client.get("hostname", "")
        address = client.get("address", "")
        return f"{name} at {address}" if name and address else name or address

    @property
    def origin(self) -> tuple[str, str] | None:
        """The topic and channel that a dead letter came from; None for any other message."""
        headers = self.listed.headers
        place = headers.get("dead-topic", ""), headers.get("dead-channel", "")
        return place if all(place) else None

    def trace(self, pattern: str) -> str:
        """The address that *pattern* gives with the message's headers; empty if a header is missing."""
        values = dict(self.headers)
        parts = values.get("traceparent", "").split("-")
        if len(parts) == _TRACE_PARTS:
            values["trace_id"], values["span_id"] = parts[1:3]
        return fill(pattern, values)

    def to_json(self) -> dict[str, Any]:
        """All that nsqd returned for it, without body and headers if they may not be read.

        The body is as nsqd wrote it: in a number that is read, its spelling is lost, and 1e999 is none.
        """
        said = msgspec.structs.asdict(self.listed)
        if not self.readable:
            for key in ("body", "encoding", "headers", "truncated"):
                said.pop(key, None)
        return {
            "node": self.node,
            **{key: value for key, value in said.items() if value not in ("", {}, False)},
        }


def _unpacked(content: bytes) -> Any:
    """Return the object or array that *content* is in MessagePack, if it is one that is not empty."""
    try:
        tree = msgspec.msgpack.decode(content)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return tree if isinstance(tree, (dict, list)) and tree else None


def hex_lines(content: bytes) -> Iterator[str]:
    """Write *content* as a hex dump: offset, sixteen bytes, and the same bytes as text."""
    for at in range(0, len(content), _HEX_WIDTH):
        row = content[at : at + _HEX_WIDTH]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<{3 * _HEX_WIDTH}} {text}"
