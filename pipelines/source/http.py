"""HTTP to the nodes of a cluster, blocking: Spark calls the source from threads and processes of its own."""

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

from nsqcore.cluster.errors import NodeError, Verb
from nsqcore.cluster.secret import NO_SECRET, SecretFile

T = TypeVar("T")
Params = Sequence[tuple[str, str]]

_HEADERS: Final[dict[str, str]] = {"Accept": "application/vnd.nsq; version=1.0"}
# The disk of a nsqd does not give a range just now; that passes.
CANNOT_READ: Final = "CANNOT_READ"
# Rests between attempts; the last one is repeated.
_RESTS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True)
class Answer:
    """A body with status 200, and the headers beside it."""

    url: str
    body: bytes
    headers: Mapping[str, str]


class Node:
    """One kept connection to the HTTP port of a nsqlookupd or nsqd. Not thread-safe.

    Every request may be repeated without harm, so one that got no answer is repeated for ``retry_s`` seconds:
    a nsqd that is restarted is back in that time. Every way of failing ends in a NodeError.
    """

    def __init__(
        self, address: str, timeout_s: float, retry_s: float, secret: SecretFile = NO_SECRET
    ) -> None:
        self.address = address
        self._secret = secret
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
        self._retry_s = retry_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str, params: Params) -> Answer:
        return self._request("GET", path, params)

    def get_json(self, path: str, params: Params, read: Callable[[Mapping[str, Any]], T]) -> T:
        """Ask for a JSON object and let *read* make a typed value of it."""
        answer = self.get(path, params)
        try:
            record = json.loads(answer.body)
            if not isinstance(record, dict):
                raise TypeError("not a JSON object")
            return read(record)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"unusable answer from {answer.url}: {error}"
            raise NodeError("GET", answer.url, self.address, reason, status=200) from error

    def post(self, path: str, params: Params) -> None:
        self._request("POST", path, params)

    def _request(self, verb: Verb, path: str, params: Params) -> Answer:
        target = f"{path}?{urlencode(params, quote_via=quote, safe='')}"
        deadline = time.monotonic() + self._retry_s
        attempt = 0
        while True:
            try:
                return self._once(verb, target)
            except NodeError as error:
                rest = _RESTS_S[min(attempt, len(_RESTS_S) - 1)]
                passes = error.unreachable or error.code == CANNOT_READ
                if not passes or time.monotonic() + rest > deadline:
                    raise
                time.sleep(rest)
                attempt += 1

    def _once(self, verb: Verb, target: str) -> Answer:
        url = f"http://{self.address}{target}"
        try:
            self._connection.request(verb, target, headers=_HEADERS | self._secret.headers())
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The next request opens another connection.
            self._connection.close()
            raise NodeError(verb, url, self.address, _reason(error, self._connection.timeout)) from error
        if response.status != http.HTTPStatus.OK:
            raise NodeError.from_status(verb, url, self.address, response.status, body)
        return Answer(url, body, dict(response.headers.items()))


def _reason(error: Exception, timeout_s: float | None) -> str:
    if isinstance(error, TimeoutError):
        return f"timed out after {timeout_s:g}s"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "the connection was closed before an answer came"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error) or type(error).__name__
