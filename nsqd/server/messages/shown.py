"""One message as JSON shows it. Pure."""

import base64
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from nsqd.engine.message_status import MessageStatus
from nsqd.log.frames import FRAME_OVERHEAD, ID_SPAN, Block
from nsqd.log.headers import BadHeaders, message

_NS: Final = 1_000_000_000
_ID_END: Final = sum(ID_SPAN)


def message_json(block: Block, seq: int, most_body: int, *, exact: bool = False) -> dict[str, Any]:
    """A message, independent of channels; at most *most_body* bytes of its body, as JSON, text or base64.

    With *exact* every body is base64; otherwise JSON is shown without the blanks between its parts.
    """
    frame = block.frames(seq, seq + 1)
    headers, body = headers_and_body(block, seq)
    time_ns = block.timestamp_ns(seq)
    shown_as: dict[str, Any] = {
        "id": frame[ID_SPAN[0] : _ID_END].decode("ascii", "replace"),
        "sequence": seq,
        "timestamp": time_ns,
        "time": time_text(time_ns),
        "size": len(body),
    }
    if headers:
        shown_as["headers"] = headers
    if len(body) > most_body:
        shown_as["truncated"] = True
        body = body[:most_body]
    if exact:
        shown_as["encoding"], shown_as["body"] = "base64", base64.b64encode(body).decode("ascii")
    else:
        shown_as["encoding"], shown_as["body"] = body_of(body, whole="truncated" not in shown_as)
    return shown_as


def headers_and_body(block: Block, seq: int) -> tuple[dict[str, str], bytes]:
    """Headers and body of a message; headers that cannot be parsed are the beginning of the body."""
    try:
        return message(block, seq)
    except BadHeaders:
        return {}, bytes(block.view(seq, seq + 1)[FRAME_OVERHEAD:])


def body_of(body: bytes, *, whole: bool = True) -> tuple[str, Any]:
    """A body's encoding and its value: ``json`` for an object or an array, ``text``, or ``base64``."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body).decode("ascii")
    if whole and text.lstrip(" \t\r\n")[:1] in {"{", "["}:
        try:
            # On one line, with numbers and names as they were written.
            return "json", msgspec.Raw(msgspec.json.format(body, indent=-1))
        except (msgspec.DecodeError, RecursionError):
            pass
    return "text", text


def state_of(
    message_status: MessageStatus, attempts: int, offset_ns: int, client: dict[str, str]
) -> dict[str, Any]:
    """The state of a message on a channel; *offset_ns* converts the engine's clock to the wall clock."""
    state: dict[str, Any] = {"state": message_status.state.value}
    if message_status.ordinal:
        state["place"] = message_status.ordinal
    if message_status.since_ns:
        state["since"] = time_text(message_status.since_ns + offset_ns)
    if message_status.until_ns:
        state["until"] = time_text(message_status.until_ns + offset_ns)
    if client:
        state["client"] = client
    return state | {"attempts": attempts}


def time_text(time_ns: int) -> str:
    """The time in RFC 3339, in UTC, with nine decimals; empty when it is outside the calendar."""
    try:
        when = datetime.fromtimestamp(time_ns // _NS, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{when:%Y-%m-%dT%H:%M:%S}.{time_ns % _NS:09}Z"
