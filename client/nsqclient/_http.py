"""One GET over HTTP/1.1 on asyncio, as far as queries to nsqlookupd need it."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

# A head is short; a peer that sends none in so many bytes does not speak HTTP.
_MAX_HEAD_BYTES: Final = 64 * 1024
# A thousand nsqd with a thousand topics each are about 40 MB of /nodes.
_MAX_BODY_BYTES: Final = 256 * 1024 * 1024

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: |$)")
_INTERIM: Final = range(100, 200)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

NOT_HTTP: Final = (
    "no answer in HTTP; is it a TCP port? HTTP is on 4151 (nsqd) and 4161 (nsqlookupd) by default"
)


class HttpError(ConnectionError):
    """There is no answer, or it cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


async def get(
    url: str, *, headers: Mapping[str, str], tls: ssl.SSLContext | None = None, seconds: float
) -> HttpAnswer:
    """Get *url* over a new connection; raises HttpError, which says why there is no answer.

    *tls* is for https; without it the certificate authorities of this machine are trusted.
    """
    request, host, port, context = _request(url, headers, tls)
    try:
        async with asyncio.timeout(seconds):
            return await _exchange(request, host, port, context)
    except TimeoutError as error:
        raise HttpError(f"it did not answer in {seconds:g} s") from error
    except OSError as error:
        raise HttpError(_reason(error, host)) from error


def _request(
    url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> tuple[bytes, str, int, ssl.SSLContext | None]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} is not a URL that can be asked")
    context = None
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]")
    lines = [f"GET {path}?{query} HTTP/1.1" if query else f"GET {path} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Connection: close", "", ""]
    if any(_CONTROL.search(line) for line in lines):
        raise ValueError("a header of HTTP cannot hold control characters")
    request = "\r\n".join(lines).encode("latin-1")
    return request, parts.hostname, parts.port or (80 if context is None else 443), context


async def _exchange(request: bytes, host: str, port: int, context: ssl.SSLContext | None) -> HttpAnswer:
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=_MAX_HEAD_BYTES)
    try:
        writer.write(request)
        status, headers = await _head(reader)
        while status in _INTERIM:
            status, headers = await _head(reader)
        return HttpAnswer(status, headers, await _body(reader, headers))
    except asyncio.IncompleteReadError as error:
        raise HttpError("the connection was closed in the middle of the answer") from error
    except asyncio.LimitOverrunError as error:
        raise HttpError("the answer has a chunk whose size does not end") from error
    finally:
        writer.transport.abort()  # no more is to be sent


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise HttpError(NOT_HTTP) from error
    except asyncio.IncompleteReadError as error:
        if error.partial and not b"HTTP/".startswith(error.partial[:5]):
            raise HttpError(NOT_HTTP) from error
        # A daemon's TCP port closes the connection after a first line that is no command.
        raise HttpError(f"the connection was closed before an answer came: {NOT_HTTP}") from error
    first, *lines = head[:-4].split(b"\r\n")
    found = _STATUS_LINE.match(first)
    if found is None:
        raise HttpError(NOT_HTTP)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise HttpError(f"the answer has a header without a colon: {name[:40]!r}")
        headers[name.strip().lower()] = value.strip()
    return int(found[1]), headers


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "identity").lower() == "chunked":
        return await _chunks(reader)
    if (length := headers.get("content-length")) is not None:
        return await reader.readexactly(_size(length, 10))
    pieces: list[bytes] = []
    total = 0
    while piece := await reader.read(_MAX_HEAD_BYTES):
        total = _checked(total + len(piece))
        pieces.append(piece)
    return b"".join(pieces)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while True:
        line = await reader.readuntil(b"\r\n")
        size = _size(line.partition(b";")[0].decode("latin-1"), 16)
        if size == 0:
            return b"".join(pieces)  # trailers may follow; they are not read
        total = _checked(total + size)
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)


def _size(text: str, base: int) -> int:
    try:
        size = int(text.strip(), base)
    except ValueError:
        size = -1
    if size < 0:
        raise HttpError(f"the answer announces a size of {text.strip()[:40]!r}")
    return _checked(size)


def _checked(size: int) -> int:
    if size > _MAX_BODY_BYTES:
        raise HttpError(f"the answer is larger than {_MAX_BODY_BYTES >> 20} MB")
    return size


def _reason(error: OSError, host: str) -> str:
    if isinstance(error, HttpError):
        return str(error)
    if isinstance(error, socket.gaierror):
        return f"no such host: {host}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    # Event loops put their own words into the text, so the text is made from the number.
    text = os.strerror(error.errno) if error.errno else str(error)
    return f"connect: {text[:1].lower()}{text[1:]}"
