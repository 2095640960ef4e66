"""JSON over HTTP to one node; every failure is a NodeError."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from nsqclient.wire.node_error import NodeError
from nsqclient.wire.version import ACCEPT
from nsqcore.cluster.secret import NO_SECRET, SecretFile
from nsqcore.pieces import add_piece
from nsqcore.version import POLL_HEADERS

T = TypeVar("T")
Verb = Literal["GET", "POST", "PUT", "DELETE"]
Params = Sequence[tuple[str, str]]

# No answer of a node is longer. Any service may listen at the address of a node.
MAX_ANSWER_BYTES: Final = 256 << 20

NOT_SENT: Final = (
    "asks for the AUTH secret, which is not sent without TLS to a node that nsqlookupd named; "
    "--auth-allow-cleartext allows it"
)

# The characters that end the host in a URL.
_BEYOND_A_HOST: Final = frozenset("/\\?#@ ")


class ClusterHttp:
    """A pool of connections to the HTTP ports of a cluster's nodes.

    ``connect_timeout`` and ``request_timeout`` are seconds; ``tls`` is used for nodes that require HTTPS.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 2.0,
        request_timeout: float = 5.0,
        tls: ssl.SSLContext | None = None,
        secret: SecretFile = NO_SECRET,
        configured: Collection[str] = (),
        allow_cleartext: bool = False,
        bodies_at_once: int = 64,
        most_answer: int = MAX_ANSWER_BYTES,
    ) -> None:
        """*secret* is sent over HTTPS, and without TLS to *configured* addresses that request it.

        Anybody may register at nsqlookupd. So other addresses get it without TLS only with *allow_cleartext*.

        *bodies_at_once* limits how many answers are in memory while they arrive, *most_answer* their size.
        """
        self._connect_timeout = connect_timeout
        self._request_timeout = request_timeout
        self._tls = tls
        self._secret = secret
        self._configured = frozenset(configured)
        self._allow_cleartext = allow_cleartext
        self._most_answer = most_answer
        self._session: aiohttp.ClientSession | None = None
        # Acquired only while a body arrives, so that unresponsive nodes do not block other answers.
        self._bodies = asyncio.Semaphore(bodies_at_once)
        # How requests ended, for /metrics.
        self.answered = 0
        self.refused = 0
        self.unreachable = 0

    async def __aenter__(self) -> Self:
        # A session belongs to the running loop, so it cannot be made earlier. The pool is unbounded: with a
        # bound, requests to healthy nodes would wait for those to a frozen node.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._request_timeout, sock_connect=self._connect_timeout),
            # Answers are not unpacked, because a short one could become endless.
            headers={"Accept": ACCEPT, "Accept-Encoding": "identity"},
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, address: str, path: str, params: Params, read: Callable[[Mapping[str, Any]], T]) -> T:
        """Request a JSON object from *address*, and return the result of *read*."""
        return read_object(address, path, params, await self.fetch(address, path, params), read)

    async def fetch(self, address: str, path: str, params: Params) -> bytes:
        """Send a request to *address* and return its answer unparsed."""
        return await self._request("GET", _url(address, path, params), address)

    @asynccontextmanager
    async def answer(self, address: str, path: str, params: Params) -> AsyncIterator[bytes]:
        """Like :meth:`fetch`, for large answers: each counts in *bodies_at_once* until its block is left."""
        body = await self._request("GET", _url(address, path, params), address, keeps_place=True)
        try:
            yield body
        finally:
            self._bodies.release()

    async def probe(self, address: str, path: str) -> None:
        """Send *address* a request that the status alone answers, such as a probe."""
        await self._request("GET", _url(address, path, ()), address)

    async def post(self, address: str, path: str, params: Params, content: bytes | None = None) -> None:
        """Send a command to *address*; the arguments are in the query string, as NSQ requires."""
        await self._request("POST", _url(address, path, params), address, content)

    async def post_for(
        self, address: str, path: str, params: Params, read: Callable[[Mapping[str, Any]], T]
    ) -> T:
        """Send a command to *address*, and return the result of *read* for its answer."""
        body = await self._request("POST", _url(address, path, params), address)
        return read_object(address, path, params, body, read)

    async def put(self, address: str, path: str, params: Params, content: bytes) -> None:
        """Store *content* at *address*."""
        await self._request("PUT", _url(address, path, params), address, content)

    async def delete(self, address: str, path: str, params: Params) -> None:
        """Delete something that *address* stores."""
        await self._request("DELETE", _url(address, path, params), address)

    async def _request(
        self,
        verb: Verb,
        url: str,
        address: str,
        content: bytes | None = None,
        *,
        keeps_place: bool = False,
    ) -> bytes:
        """Return the answer; with *keeps_place* the caller releases its slot in ``_bodies``."""
        if not address.startswith(("http://", "https://")) and not _BEYOND_A_HOST.isdisjoint(address):
            # Anybody may register at nsqlookupd: an address must not choose the request or its user.
            self.unreachable += 1
            raise NodeError(verb, url, address, "is no address, host:port is expected")
        # Without TLS others could listen, so a node that requires TLS must not be shown the secret before.
        secret = self._secret.headers()
        status, body = await self._once(verb, url, address, content, secret if _is_https(url) else {})
        if status == 403 and (upgraded := https_url(url, body)) is not None:
            self._bodies.release()
            url = upgraded
            status, body = await self._once(verb, url, address, content, secret)
        elif status == 401 and secret and not _is_https(url):
            self._bodies.release()
            if not (self._allow_cleartext or address in self._configured):
                self.refused += 1
                raise NodeError(verb, url, address, NOT_SENT, status=401)
            status, body = await self._once(verb, url, address, content, secret)
        if status != 200 or not keeps_place:
            self._bodies.release()
        if status != 200:
            self.refused += 1
            raise NodeError.from_status(verb, url, address, status, body)
        self.answered += 1
        return body

    async def _once(
        self, verb: Verb, url: str, address: str, content: bytes | None, secret: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Return status and body; the caller releases the slot of the body in ``_bodies``."""
        if self._session is None:
            raise RuntimeError("ClusterHttp is used outside its async with block")
        try:
            async with self._session.request(
                verb,
                URL(url, encoded=True),
                data=content,
                # Requests that come every few seconds need not fill the logs of the nodes.
                headers={**secret, **(POLL_HEADERS if verb == "GET" else {})},
                ssl=self._trust(url),
                allow_redirects=False,
            ) as response:
                await self._bodies.acquire()
                try:
                    return response.status, await self._read(response)
                except BaseException:
                    self._bodies.release()
                    raise
        except TimeoutError as error:
            self.unreachable += 1
            reason = f"timed out after {self._request_timeout:g}s"
            sent = not isinstance(error, aiohttp.ConnectionTimeoutError)
            if not sent:
                reason = f"timed out connecting after {self._connect_timeout:g}s"
            raise NodeError(verb, url, address, reason, sent=sent) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.unreachable += 1
            sent = not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL))
            raise NodeError(verb, url, address, _reason(error), sent=sent) from error

    def _trust(self, url: str) -> ssl.SSLContext | bool:
        """The TLS context for *url*; without authorities of its own, those of the system."""
        if self._tls is None and _is_https(url):
            # Reading them takes long. aiohttp's own context may be without them.
            self._tls = ssl.create_default_context()
        return self._tls or True

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._most_answer:
                raise ValueError(f"its answer is longer than {self._most_answer} bytes")
            add_piece(chunks, chunk)
        return b"".join(chunks)


# The errors that parsing an answer, and calculating with its numbers, may raise.
UNUSABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


def read_object(
    address: str, path: str, params: Params, body: bytes, read: Callable[[Mapping[str, Any]], T]
) -> T:
    """Return the result of *read* for the JSON object that *address* returned; raises NodeError."""
    with blaming(address, path, params):
        answer = json.loads(body)
        if not isinstance(answer, dict):
            raise TypeError("not a JSON object")
        return read(answer)


@contextmanager
def blaming(address: str, path: str, params: Params) -> Iterator[None]:
    """Make an error that an answer of *address* causes within the block a NodeError that names it."""
    try:
        yield
    except UNUSABLE as error:
        raise unusable(address, path, params, error) from error


def unusable(address: str, path: str, params: Params, error: Exception) -> NodeError:
    """Return the error for an answer that cannot be read.

    The node did answer, so it is not unreachable, but it is not the expected service.
    """
    url = _url(address, path, params)
    why = f"there is no {error} in it" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return NodeError("GET", url, address, f"unusable answer from {url}: {why}", status=200)


def _url(address: str, path: str, params: Params) -> str:
    """The URL of the request; *address* is ``host:port``, or begins with ``https://``."""
    query = urlencode(params, quote_via=quote, safe="")
    base = address if "://" in address else f"http://{address}"
    return f"{base}{path}?{query}" if query else f"{base}{path}"


def _is_https(url: str) -> bool:
    return url.startswith("https://")


def https_url(url: str, body: bytes) -> str | None:
    """Return the HTTPS URL of a server that requires TLS; None if its refusal names no port."""
    try:
        port = json.loads(body)["https_port"]
    except UNUSABLE:
        return None
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        return None
    return str(URL(url, encoded=True).with_scheme("https").with_port(port))


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate not accepted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"no such host: {error.host}"
    if isinstance(error, aiohttp.ClientConnectorError):
        # Event loops put their own words into strerror, so the text is made from the number.
        number = error.os_error.errno
        text = os.strerror(number) if number else str(error.os_error)
        return f"connect: {text[:1].lower()}{text[1:]}"
    if isinstance(error, aiohttp.ClientResponseError):
        # Instead of a line of HTTP the binary greeting of a daemon arrived.
        return "no answer in HTTP; is it a TCP port? HTTP is on 4151 (nsqd) and 4161 (nsqlookupd) by default"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer came"
    if isinstance(error, aiohttp.InvalidURL):
        return "not a usable address"
    return str(error) or type(error).__name__
