"""The objects of NSQ's HTTP handlers: the request, the replies, and the error that becomes a reply.

    async def do_lookup(request: Request) -> Response:
        topic = request.require("topic")
        if not registry.has_topic(topic):
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return json_reply({"channels": [...], "producers": [...]})

The server that calls handlers is in :mod:`nsqcore.http.server`, its route table in ``router``.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from nsqcore.http.pace import Pace
from nsqcore.pieces import add_piece
from nsqcore.process.listen import peer_ip, shown_peer

Response: TypeAlias = web.StreamResponse

JSON_TYPE: Final = "application/json; charset=utf-8"
TEXT_TYPE: Final = "text/plain; charset=utf-8"

# Spelled as on the wire, whatever the documentation says.
_NSQ: Final = {"X-Nsq-Content-Type": "nsq; version=1.0"}
_NSQ_JSON: Final = {**_NSQ, "Content-Type": JSON_TYPE}
_NSQ_TEXT: Final = {**_NSQ, "Content-Type": TEXT_TYPE}

# How long a publisher may stall in the middle of its body, so that it does not hold a handler forever.
BODY_STALL_S: Final = 60.0

# How many items of a long list are written in one turn.
_ITEMS_PER_TURN: Final = 50

# Characters that a browser could take for markup, or for the end of a line of a script.
_ESCAPED: Final = (
    (b"&", b"\\u0026"),
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)

# The words of an argument that is true or false.
TRUE: Final = frozenset(("true", "1"))
FALSE: Final = frozenset(("false", "0"))

_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class ApiError(Exception):
    """Ends a handler with ``{"message": code}`` and this status.

    *retry_after_s* becomes the header Retry-After.
    """

    def __init__(self, status: int, code: str, *, close: bool = False, retry_after_s: int = 0) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.close = close
        self.retry_after_s = retry_after_s


class Request:
    """One HTTP request: the parts that NSQ's handlers use, each computed when it is used."""

    __slots__ = ("_query", "method", "params", "raw", "target")

    def __init__(self, raw: web.BaseRequest, params: dict[str, str]) -> None:
        self.raw = raw
        self.method = raw.method
        self.target = raw.raw_path
        self.params = params
        self._query: dict[str, str] | None = None

    @property
    def headers(self) -> Any:
        return self.raw.headers

    @property
    def peer(self) -> str:
        """``ip:port`` of the client, ``@`` on a unix socket."""
        return shown_peer(self.raw.get_extra_info("peername"))

    @property
    def remote_ip(self) -> str:
        """The client's IP address, empty on a unix socket."""
        return peer_ip(self.raw.get_extra_info("peername"))

    @property
    def query(self) -> dict[str, str]:
        """The arguments after ``?``, the first of each name; raises INVALID_REQUEST for a malformed query."""
        if self._query is None:
            self._query = parse_query(self.target.partition("?")[2])
        return self._query

    def require(self, name: str) -> str:
        """Return a query argument that must be given, but may be empty."""
        value = self.query.get(name)
        if value is None:
            raise ApiError(400, f"MISSING_ARG_{name.upper()}")
        return value

    def flag(self, name: str) -> bool:
        """Return whether a query argument is true; false if it is not given, INVALID_... if it is neither."""
        value = self.query.get(name, "false")
        if value not in TRUE | FALSE:
            raise ApiError(400, f"INVALID_{name.upper()}")
        return value in TRUE

    @property
    def content_length(self) -> int | None:
        return self.raw.content_length

    async def read(self, limit: int, too_big: str = "BODY_TOO_BIG") -> bytes:
        """Return the body; raises ApiError 413 *too_big* when it is longer than *limit*."""
        declared = self.raw.content_length
        if declared is not None and declared > limit:
            # Refused unread; the rest of the body belongs to no request, so the connection is closed.
            raise ApiError(413, too_big, close=True)
        content = self.raw.content
        chunks: list[bytes] = []
        size = 0
        try:
            while not content.at_eof():
                if content.is_eof() or content.total_bytes > size:
                    chunk = await content.readany()
                else:
                    if not size and self.headers.get("Expect", "").lower() == "100-continue":
                        await self._send_continue()
                    async with asyncio.timeout(BODY_STALL_S):
                        chunk = await content.readany()
                size += len(chunk)
                if size > limit:
                    raise ApiError(413, too_big, close=True)
                add_piece(chunks, chunk)
        except (OSError, HttpProcessingError, web.RequestPayloadError) as error:
            # The body keeps this error, whose traceback has the frames that hold the received bytes: together
            # they would stay until a collection.
            error.__traceback__ = None
            # A TimeoutError is an OSError: the stall counts as a body that cannot be read.
            raise ApiError(500, "INTERNAL_ERROR", close=True) from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _send_continue(self) -> None:
        """Send 100 Continue to a client that waits for it before its body; curl does so from 1 MiB on."""
        writer = self.raw.writer
        await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # Not counted, because the reply itself has not begun.
        writer.output_size = 0


def parse_query(text: str) -> dict[str, str]:
    """Decode a query string strictly: an invalid escape or a ``;`` makes the whole request invalid."""
    if not text:
        return {}
    if ";" in text or _BAD_ESCAPE.search(text):
        raise ApiError(400, "INVALID_REQUEST")
    query: dict[str, str] = {}
    for pair in text.split("&"):
        if pair:
            key, _, value = pair.partition("=")
            if "%" in pair or "+" in pair:
                key = unquote(key.replace("+", " "))
                value = unquote(value.replace("+", " "))
            query.setdefault(key, value)
    return query


# -- replies -------------------------------------------------------------------


def json_text(value: object) -> str:
    """Write JSON as Go does: without blanks, and without characters a browser could take for markup."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # These characters can occur only inside strings, so they can be replaced in the whole text.
    return (
        text.replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def json_bytes(value: object) -> bytes:
    """Write JSON as :func:`json_text` does, but faster; *value* must not have halves of surrogate pairs."""
    text = msgspec.json.encode(value)
    # Most texts have nothing to escape, and searching is cheaper than copying.
    for raw, escaped in _ESCAPED:
        if raw in text:
            text = text.replace(raw, escaped)
    return text


def json_reply(value: object, status: int = 200) -> web.Response:
    body = json_text(value).encode("utf-8", "replace")
    return web.Response(body=body, status=status, headers=_NSQ_JSON)


async def paced_json_reply(value: dict[str, Any]) -> web.Response:
    """The same for an object with long lists: other tasks run between the items."""
    pace = Pace(_ITEMS_PER_TURN)
    members: list[str] = []
    for key, member in value.items():
        if isinstance(member, list):
            items = []
            for item in member:
                items.append(json_text(item))
                await pace.done()
            text = f"[{','.join(items)}]"
        else:
            text = json_text(member)
        members.append(f"{json_text(key)}:{text}")
    return json_bytes_reply(f"{{{','.join(members)}}}".encode("utf-8", "replace"))


def json_bytes_reply(body: bytes, status: int = 200) -> web.Response:
    """Reply with JSON that is already encoded."""
    return web.Response(body=body, status=status, headers=_NSQ_JSON)


async def json_stream(request: Request) -> web.StreamResponse:
    """Begin a reply whose JSON is written in chunks, as fast as the client reads."""
    reply = web.StreamResponse(headers=_NSQ_JSON)
    await reply.prepare(request.raw)
    return reply


def text_reply(text: str | bytes, status: int = 200) -> web.Response:
    body = text if isinstance(text, bytes) else text.encode()
    return web.Response(body=body, status=status, headers=_NSQ_TEXT)


def empty_reply() -> web.Response:
    """Success without data: no body, and therefore no content type."""
    return web.Response(headers=_NSQ)


def plain_reply(text: str, status: int = 200) -> web.Response:
    """The style of ``/ping``: text without the NSQ header."""
    return web.Response(body=text.encode(), status=status, headers={"Content-Type": TEXT_TYPE})


def tls_required(https_port: int) -> Callable[[], Response]:
    """The answer to every request without TLS; clients of NSQ then use that port."""
    # With the original's blanks.
    body = json.dumps({"message": "TLS_REQUIRED", "https_port": https_port}).encode()
    return lambda: json_bytes_reply(body, 403)


def error_reply(status: int, code: str) -> web.Response:
    return json_reply({"message": code}, status)
