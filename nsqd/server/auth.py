"""Queries to the auth servers: the identity of a client, and its grants.

A client's secret must not get into the log. The URL contains it, most errors of aiohttp quote the URL, and a
server may quote the request; so no text from a server or from aiohttp is logged word for word.
"""

import asyncio
import json
import random
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from nsqclient.wire.version import ACCEPT
from nsqcore.cluster.http import https_url
from nsqcore.process.logs import Log
from nsqcore.process.tls import reason
from nsqd.protocol.auth import Authorizations, BadAnswer, parse_authorizations
from nsqd.server.clock import now_ns as clock_ns

# The largest reply that is accepted, in bytes; a list of one client's grants is shorter.
MAX_ANSWER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Asker:
    """The data about a client that an auth server receives."""

    secret: bytes
    remote_ip: str
    tls: bool
    common_name: str

    def arguments(self) -> list[tuple[str, bytes]]:
        """The arguments of the request, sorted by name."""
        return [
            ("common_name", self.common_name.encode("utf-8", "replace")),
            ("remote_ip", self.remote_ip.encode()),
            ("secret", self.secret),
            ("tls", b"true" if self.tls else b"false"),
        ]


class AuthServers:
    """The configured auth servers; the HTTP session belongs to the event loop and is made when needed."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        log: Log,
        *,
        method: str,
        connect_timeout_s: float,
        request_timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """*method* is get or post; *tls* verifies auth servers that use HTTPS."""
        self._endpoints = [address if "://" in address else f"http://{address}/auth" for address in addresses]
        self._log = log
        self._method = method
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, sock_connect=connect_timeout_s)
        self._tls = tls
        self._http: aiohttp.ClientSession | None = None

    async def ask(self, asker: Asker, peer: str) -> Authorizations | None:
        """The first usable answer of a server; None, and a warning in the log, if there is none."""
        endpoints = self._endpoints
        first = random.randrange(len(endpoints))
        failures: list[str] = []
        for endpoint in endpoints[first:] + endpoints[:first]:
            try:
                body = await self._query(endpoint, asker)
                return parse_authorizations(body, clock_ns())
            except (aiohttp.ClientError, OSError, ValueError) as error:
                failures.append(f"failed auth request: {_without_query(endpoint)} {_why(error)}")
        self._log.warning("PROTOCOL(V2): [%s] AUTH failed %s", peer, "; ".join(failures))
        return None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _query(self, endpoint: str, asker: Asker) -> bytes:
        status, body = await self._once(endpoint, asker)
        if status == 403 and not endpoint.startswith("https://"):
            over_tls = https_url(endpoint, body)
            if over_tls is None:
                raise BadAnswer("got response 403 without a valid https_port")
            status, body = await self._once(over_tls, asker)
        if status != 200:
            raise BadAnswer(f"got response {status} of {len(body)} bytes")
        return body

    async def _once(self, endpoint: str, asker: Asker) -> tuple[int, bytes]:
        arguments = asker.arguments()
        data = None
        if self._method == "get":
            endpoint = f"{endpoint}?{urlencode(arguments)}"
        else:
            values = {name: [value.decode("utf-8", "replace")] for name, value in arguments}
            data = json.dumps(values).encode()
        headers = {"Accept": ACCEPT} | ({"Content-Type": "application/json"} if data is not None else {})
        url = URL(endpoint, encoded=True)
        async with self._session().request(self._method, url, data=data, headers=headers) as response:
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > MAX_ANSWER:
                    raise BadAnswer(f"the answer is longer than {MAX_ANSWER} bytes")
            return response.status, bytes(body)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            # Unlimited: with a limit, clients would wait behind those that a slow server keeps waiting.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._http


def asker_at(transport: asyncio.BaseTransport | None, remote_ip: str, secret: bytes) -> Asker:
    """The client on this transport, as auth servers receive it, with the CN of its certificate if any."""
    if transport is None:
        return Asker(secret=secret, remote_ip=remote_ip, tls=False, common_name="")
    over_tls = transport.get_extra_info("sslcontext") is not None
    certificate = transport.get_extra_info("peercert") or {}
    names = [dict(names).get("commonName") for names in certificate.get("subject", ())]
    common_name = str(next(filter(None, names), ""))
    return Asker(secret=secret, remote_ip=remote_ip, tls=over_tls, common_name=common_name)


def _why(error: Exception) -> str:
    """Why a server gave no usable answer, in words that contain nothing of the request."""
    if isinstance(error, BadAnswer):
        return str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return reason(error.certificate_error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _without_query(endpoint: str) -> str:
    """A configured address without user, password and query."""
    url = URL(endpoint, encoded=True)
    return str(url.with_user(None).with_query(None))
