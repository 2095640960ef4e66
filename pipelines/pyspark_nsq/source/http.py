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
from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.options import NodeOptions
from pyspark_nsq.source.range_answer import RangeAnswer

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


class Patience:
    """The time in which something is attempted again."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._attempts = 0

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def pause(self) -> bool:
        """Sleep before the next attempt; return False at once if there is no time for it."""
        seconds = _BACKOFF_S[min(self._attempts, len(_BACKOFF_S) - 1)]
        if seconds > self.left_s:
            return False
        time.sleep(seconds)
        self._attempts += 1
        return True


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The body of an answer with status 200, and its headers."""

    url: str
    body: bytes
    headers: Mapping[str, str]


def _with_secret(path: str) -> dict[str, str]:
    """Return the HTTP headers that show the secret in a file. Raises SourceError.

    The file is read for every use, so that it can be changed.
    """
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not text"
        raise SourceError(f"option authSecretFile: {path} cannot be read: {reason.lower()}") from error
    if not secret or any(character < " " for character in secret):
        raise SourceError(f"option authSecretFile: {path} is empty or has several lines")
    return _HEADERS | {"Authorization": f"Bearer {secret}"}


class NodeConnections:
    """Keep-alive connections to the nodes, one for each address; a copy in another process has none."""

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        self._nodes: dict[str, NodeConnection] = {}
        # Spark does not say when it no longer needs a reader. A `__del__` would be too late for a reader that
        # the garbage collector finds, because its sockets may be finalized first.
        weakref.finalize(self, _close_all, self._nodes)

    def __reduce__(self) -> tuple[type["NodeConnections"], tuple[NodeOptions]]:
        return NodeConnections, (self._options,)

    def node(self, address: str, retry_s: float) -> "NodeConnection":
        """Return the connection to *address*. Two threads must not use one address at the same time."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NodeConnection(address, self._options, retry_s)
        return node.retry_for(retry_s)

    def close(self) -> None:
        _close_all(self._nodes)


def _close_all(nodes: "dict[str, NodeConnection]") -> None:
    while nodes:
        nodes.popitem()[1].close()


class NodeConnection:
    """One keep-alive connection to the HTTP port of an nsqlookupd or nsqd. Not thread-safe.

    Every request may be repeated without harm, so a request without an answer is repeated for ``retry_s``
    seconds, in which an nsqd can restart. A node that insists on HTTPS is asked again at the port that it
    names. Every failure of a request ends in a NodeError.

    The AUTH secret is shown to a node that asks for it over HTTPS. Over plain HTTP it is shown only to a node
    that the options name without TLS, or with ``authAllowCleartext``.
    """

    def __init__(self, address: str, options: NodeOptions, retry_s: float) -> None:
        """*address* is ``host:port``, or begins with ``https://``."""
        self.address = address
        self._options = options
        self._retry_s = retry_s
        self._shows_secret = False
        # How many requests with a body got no answer, although the node may have done what they ask for.
        self.unanswered = 0
        place = address.removeprefix(_HTTPS)
        host, _, port = place.rpartition(":")
        self._host = host.strip("[]")
        self._connection = self._connect(int(port), https=place != address)

    def _connect(self, port: int, *, https: bool) -> http.client.HTTPConnection:
        timeout_s = self._options.request_timeout_s
        if https:
            # Imported here, because most executors do not need the client.
            from nsqclient._config import tls_context

            try:
                context = tls_context(self._options.tls)
            except ValueError as error:
                raise SourceError(f"the TLS options cannot be used: {error}") from error
            return http.client.HTTPSConnection(self._host, port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(self._host, port, timeout=timeout_s)

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
            raise self._unusable(answer, error) from error

    def log_bounds(self, topic: str, channel: str = "", log: str = "") -> Bounds:
        """Request the bounds of a log as a reader with this channel sees them. Raises NodeError.

        A reader without a channel sees all messages. *log* is the identity of the log: of the nsqd's own, the
        default, or of a promoted copy.
        """
        params = [("topic", topic), ("channel", channel), *of_log(log)]
        return self.get_json("/log/bounds", params, Bounds.from_json)

    def log_range(
        self, topic: str, start: int, end: int, *, channel: str = "", log: str = "", headers: bool = False
    ) -> RangeAnswer:
        """Request as much of a range as fits into one answer. Raises NodeError."""
        params = [("topic", topic), ("start", str(start)), ("end", str(end)), *of_log(log)]
        params += [("channel", channel)] if channel else []
        params += [("headers", "true")] if headers else []
        answer = self.get("/log/range", params)
        try:
            return RangeAnswer.parse(start, end, answer.headers, answer.body, extended=headers)
        except ValueError as error:
            raise self._unusable(answer, error) from error

    def post(self, path: str, params: Params, body: bytes = b"") -> None:
        self._request("POST", path, params, body)

    def _request(self, verb: str, path: str, params: Params, content: bytes = b"") -> NodeAnswer:
        target = f"{path}?{urlencode(params, quote_via=quote, safe='')}"
        patience = Patience(self._retry_s)
        while True:
            try:
                return self._once(verb, target, content)
            except NodeError as error:
                if not passes(error) or not patience.pause():
                    raise

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
        options = self._options
        if self._shows_secret or not options.auth_secret_file or _AUTH_REQUIRED.encode() not in body:
            return False
        named = self.address in (*options.nsqd_http_addresses, *options.lookupd_http_addresses)
        if not (self._is_https or options.auth_allow_cleartext or (named and not options.tls)):
            why = (
                "the TLS options say that it is to be encrypted"
                if options.tls
                else "it was named by nsqlookupd, where anybody may register"
            )
            raise SourceError(
                f"{self.address} asks for the AUTH secret over plain HTTP, and {why}: start the node with "
                "--tls-required, give its https:// address, or set authAllowCleartext"
            )
        return True

    def _unusable(self, answer: NodeAnswer, error: Exception) -> NodeError:
        reason = f"unusable answer from {answer.url}: {error}"
        return NodeError("GET", answer.url, self.address, reason, status=200)

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
        headers = _with_secret(self._options.auth_secret_file) if self._shows_secret else _HEADERS
        try:
            self._connection.request(verb, target, content or None, headers=headers)
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The next request opens a new connection.
            self._connection.close()
            if content and not isinstance(error, ConnectionRefusedError):
                self.unanswered += 1
            raise NodeError(verb, url, self.address, _reason(error, self._connection.timeout)) from error
        return response.status, body, dict(response.headers.items())


def of_log(identity: str) -> list[tuple[str, str]]:
    """Return the parameter that names a log; none without an identity."""
    return [("log", identity)] if identity else []


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
