"""Blocking HTTP to the nodes of a cluster; Spark calls the source from its own threads and processes."""

import http.client
import json
import ssl
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

from nsqclient.wire.address import join_host_port
from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.options import SourceOptions

T = TypeVar("T")
Params = Sequence[tuple[str, str]]

_HEADERS: Final[dict[str, str]] = {"Accept": "application/vnd.nsq; version=1.0"}
_HTTPS: Final = "https://"
# nsqd's code for a missing AUTH secret.
_AUTH_REQUIRED: Final = "AUTH_REQUIRED"
# nsqd's code when it cannot read its disk at the moment; that may pass.
CANNOT_READ: Final = "CANNOT_READ"
# The code of an nsqd that has no log of that identity, neither its own nor a promoted copy.
LOG_NOT_FOUND: Final = "LOG_NOT_FOUND"
# The reason when the port speaks NSQ's own protocol.
NOT_HTTP: Final = "the answer is not HTTP"
# Pauses between attempts; the last one is repeated.
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The body of an answer with status 200, and its headers."""

    url: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """The text of a file without surrounding blanks, or no secret without a file.

    The file is read for every use, so that it can be changed.
    """

    path: str = ""

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that show the secret. Raises SourceError."""
        if not self.path:
            return {}
        try:
            secret = Path(self.path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not text"
            raise SourceError(
                f"option authSecretFile: {self.path} cannot be read: {reason.lower()}"
            ) from error
        if not secret or any(character < " " for character in secret):
            raise SourceError(f"option authSecretFile: {self.path} is empty or has several lines")
        return {"Authorization": f"Bearer {secret}"}


NO_SECRET: Final = SourceSecret()


class NodeConnections:
    """Keep-alive connections to the nodes, one for each address; a copy in another process has none."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._nodes: dict[str, NodeConnection] = {}
        # Spark does not say when it no longer needs a reader. A `__del__` would be too late for a reader that
        # the garbage collector finds, because its sockets may be finalized first.
        weakref.finalize(self, _close_all, self._nodes)

    def __reduce__(self) -> tuple[type["NodeConnections"], tuple[SourceOptions]]:
        return NodeConnections, (self._options,)

    def node(self, address: str, retry_s: float) -> "NodeConnection":
        """Return the connection to *address*. Two threads must not use one address at the same time."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = open_node(address, self._options, retry_s)
        return node.retry_for(retry_s)

    def close(self) -> None:
        _close_all(self._nodes)


def _close_all(nodes: "dict[str, NodeConnection]") -> None:
    while nodes:
        nodes.popitem()[1].close()


def open_node(address: str, options: SourceOptions, retry_s: float) -> "NodeConnection":
    """Make a connection to *address*; a node that does not answer is asked again for *retry_s*."""
    return NodeConnection(
        address,
        options.request_timeout_s,
        retry_s,
        SourceSecret(options.auth_secret_file),
        options.tls,
        allow_cleartext=options.auth_allow_cleartext
        or (not options.tls and address in (*options.nsqd_http_addresses, *options.lookupd_http_addresses)),
    )


class NodeConnection:
    """One keep-alive connection to the HTTP port of an nsqlookupd or nsqd. Not thread-safe.

    Every request may be repeated without harm, so a request without an answer is repeated for ``retry_s``
    seconds, in which an nsqd can restart. A node that insists on HTTPS is asked again at the port that it
    names. Every failure of a request ends in a NodeError.

    The AUTH secret is shown to a node that asks for it over HTTPS. Over plain HTTP it is shown only with
    ``allow_cleartext``.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float,
        retry_s: float,
        secret: SourceSecret = NO_SECRET,
        tls: Mapping[str, str] | None = None,
        *,
        allow_cleartext: bool = False,
    ) -> None:
        """*address* is ``host:port``, or begins with ``https://``; *tls* are words of :func:`tls_context`."""
        self.address = address
        self._secret = secret
        self._tls = tls or {}
        self._allow_cleartext = allow_cleartext
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._shows_secret = False
        # How many requests with a body got no answer, although the node may have done what they ask for.
        self.unanswered = 0
        place = address.removeprefix(_HTTPS)
        host, _, port = place.rpartition(":")
        self._host = host.strip("[]")
        self._connection = self._connect(int(port), https=place != address)

    def _connect(self, port: int, *, https: bool) -> http.client.HTTPConnection:
        if https:
            # Imported here, because most executors do not need the client.
            from nsqclient._config import tls_context

            try:
                context = tls_context(self._tls)
            except ValueError as error:
                raise SourceError(f"the TLS options cannot be used: {error}") from error
            return http.client.HTTPSConnection(self._host, port, timeout=self._timeout_s, context=context)
        return http.client.HTTPConnection(self._host, port, timeout=self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def retry_for(self, retry_s: float) -> Self:
        """Return the same node; from now on it is asked again for *retry_s*."""
        self._retry_s = retry_s
        return self

    def get(self, path: str, params: Params) -> NodeAnswer:
        return self._request("GET", path, params)

    def get_json(self, path: str, params: Params, read: Callable[[Mapping[str, Any]], T]) -> T:
        """Request a JSON object; return the typed value that *read* makes of it. Raises NodeError."""
        answer = self.get(path, params)
        try:
            record = json.loads(answer.body)
            if not isinstance(record, dict):
                raise TypeError("not a JSON object")
            return read(record)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"unusable answer from {answer.url}: {error}"
            raise NodeError("GET", answer.url, self.address, reason, status=200) from error

    def post(self, path: str, params: Params, body: bytes = b"") -> None:
        self._request("POST", path, params, body)

    def _request(self, verb: str, path: str, params: Params, content: bytes = b"") -> NodeAnswer:
        target = f"{path}?{urlencode(params, quote_via=quote, safe='')}"
        deadline = time.monotonic() + self._retry_s
        attempt = 0
        while True:
            try:
                return self._once(verb, target, content)
            except NodeError as error:
                rest = _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]
                if not passes(error) or time.monotonic() + rest > deadline:
                    raise
                time.sleep(rest)
                attempt += 1

    def _once(self, verb: str, target: str, content: bytes) -> NodeAnswer:
        status, body, headers = self._exchange(verb, target, content)
        port = _https_port(body) if status == http.HTTPStatus.FORBIDDEN else None
        if port is not None and not self._is_https:
            self._connection.close()
            self._connection = self._connect(port, https=True)
            status, body, headers = self._exchange(verb, target, content)
        if status == http.HTTPStatus.UNAUTHORIZED and self._may_show_secret(body):
            self._shows_secret = True
            status, body, headers = self._exchange(verb, target, content)
        if status != http.HTTPStatus.OK:
            raise NodeError.from_status(verb, self._url(target), self.address, status, body)
        return NodeAnswer(self._url(target), body, headers)

    @property
    def _is_https(self) -> bool:
        return isinstance(self._connection, http.client.HTTPSConnection)

    def _may_show_secret(self, body: bytes) -> bool:
        """Whether the node asks for the secret, and showing it is safe. Raises SourceError if it is not."""
        if self._shows_secret or not self._secret.path or _AUTH_REQUIRED.encode() not in body:
            return False
        if not (self._allow_cleartext or self._is_https):
            why = (
                "the TLS options say that it is to be encrypted"
                if self._tls
                else "it was named by nsqlookupd, where anybody may register"
            )
            raise SourceError(
                f"{self.address} asks for the AUTH secret over plain HTTP, and {why}: start the node with "
                "--tls-required, give its https:// address, or set authAllowCleartext"
            )
        return True

    def _url(self, target: str) -> str:
        if self._is_https:
            return f"https://{join_host_port(self._host, self._connection.port)}{target}"
        return f"http://{self.address}{target}"

    def _exchange(self, verb: str, target: str, content: bytes) -> tuple[int, bytes, dict[str, str]]:
        was_open = self._connection.sock is not None
        try:
            return self._on_wire(verb, target, content)
        except NodeError as error:
            # A node may close an idle connection; that does not mean that the node is down.
            if not was_open or not isinstance(error.__cause__, ConnectionError):
                raise
        return self._on_wire(verb, target, content)

    def _on_wire(self, verb: str, target: str, content: bytes) -> tuple[int, bytes, dict[str, str]]:
        url = self._url(target)
        secret = self._secret.headers() if self._shows_secret else {}
        try:
            self._connection.request(verb, target, content or None, headers=_HEADERS | secret)
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The next request opens a new connection.
            self._connection.close()
            if content and not isinstance(error, ConnectionRefusedError):
                self.unanswered += 1
            raise NodeError(verb, url, self.address, _reason(error, self._connection.timeout)) from error
        return response.status, body, dict(response.headers.items())


def passes(error: NodeError) -> bool:
    """Whether the same request may succeed a little later."""
    return error.code == CANNOT_READ or (
        error.unreachable and not isinstance(error.__cause__, ssl.SSLCertVerificationError)
    )


def _https_port(body: bytes) -> int | None:
    """Return the HTTPS port that a node names when it refuses plain HTTP; None if it names none."""
    try:
        port = json.loads(body)["https_port"]
    except (ValueError, TypeError, LookupError):
        return None
    return port if type(port) is int and 0 < port < 65536 else None


def _reason(error: Exception, timeout_s: float | None) -> str:
    if isinstance(error, TimeoutError):
        return f"timed out after {timeout_s:g}s"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "the connection was closed before an answer came"
    if isinstance(error, http.client.BadStatusLine):
        return NOT_HTTP
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error) or type(error).__name__
