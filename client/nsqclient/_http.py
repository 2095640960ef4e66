"""One GET over HTTP in a thread, for queries to nsqlookupd."""

import asyncio
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from nsqclient._in_threads import DaemonThreads

# A thousand nsqd with a thousand topics each are about 40 MB of /nodes.
_MAX_BODY_BYTES: Final = 256 * 1024 * 1024

NOT_HTTP: Final = (
    "no answer in HTTP; is it a TCP port? HTTP is on 4151 (nsqd) and 4161 (nsqlookupd) by default"
)


class HttpError(ConnectionError):
    """There is no answer, or it cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    location: str  # where a redirect points to
    body: bytes


async def get(
    url: str, *, headers: Mapping[str, str], tls: ssl.SSLContext | None = None, seconds: float
) -> HttpAnswer:
    """Get *url* over a new connection; raises HttpError, which says why there is no answer.

    *tls* is for https; without it the certificate authorities of this machine are trusted.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} is not a URL that can be asked")
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=seconds, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
    query = quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]")
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (f"?{query}" if query else "")
    threads = DaemonThreads(1, "nsqlookupd")
    # The connection forgets its socket when it reads the answer.
    sockets: list[socket.socket] = []
    has_ended = threading.Event()
    try:
        async with asyncio.timeout(seconds):
            return await threads.run(
                _exchange, connection, sockets, has_ended, target, {**headers, "Connection": "close"}
            )
    except TimeoutError as error:
        raise HttpError(f"it did not answer in {seconds:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(_reason(error, parts.hostname)) from error
    finally:
        threads.stop()
        has_ended.set()
        for one in sockets:  # a thread that still waits for the answer ends
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _exchange(
    connection: http.client.HTTPConnection,
    sockets: list[socket.socket],
    has_ended: threading.Event,
    target: str,
    headers: Mapping[str, str],
) -> HttpAnswer:
    try:
        # Invalid headers are refused before the connection is opened.
        connection.putrequest("GET", target)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.connect()
        sockets.append(connection.sock)
        if has_ended.is_set():
            raise TimeoutError
        connection.endheaders()
        with connection.getresponse() as answer:
            body = answer.read(_MAX_BODY_BYTES + 1)
            if len(body) > _MAX_BODY_BYTES:
                raise HttpError(f"the answer is larger than {_MAX_BODY_BYTES >> 20} MB")
            if answer.length:
                raise http.client.IncompleteRead(body, answer.length)
            return HttpAnswer(answer.status, answer.getheader("location", ""), body)
    finally:
        connection.close()


def _reason(error: Exception, host: str) -> str:
    if isinstance(error, HttpError):
        return str(error)
    if isinstance(error, http.client.RemoteDisconnected):
        # A daemon's TCP port closes the connection after a first line that is no command.
        return f"the connection was closed before an answer came: {NOT_HTTP}"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was closed in the middle of the answer"
    if isinstance(error, http.client.HTTPException):
        return NOT_HTTP
    if isinstance(error, socket.gaierror):
        return f"no such host: {host}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    text = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return f"connect: {text[:1].lower()}{text[1:]}"
