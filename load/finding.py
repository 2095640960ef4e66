"""Queries the cluster over HTTP, on blocking sockets, for its nsqd and the cost of its daemons."""

import http.client
import json
import re
import ssl
from typing import Any, Final
from urllib.parse import quote

from load.connection import Access
from load.daemons import Cost, ListedNsqd

TIMEOUT_SECONDS: Final = 5

_METRIC: Final = re.compile(
    rb"^(process_cpu_seconds_total|process_resident_memory_bytes) (\S+)$", re.MULTILINE
)


class Unreachable(ConnectionError):
    """A daemon gave no answer or a wrong one; the text says which daemon and what happened."""


class ClusterAsker:
    """Asks daemons over HTTP, or HTTPS if a daemon requires it; sends the AUTH secret if there is one."""

    def __init__(self, access: Access) -> None:
        self._access = access
        # HTTP address -> where the same daemon serves HTTPS
        self._https: dict[str, str] = {}

    def ask(self, address: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send one request on a new connection and return status and body. Raises Unreachable."""
        if address in self._https:
            return self._once(self._https[address], path, body, self._access.tls)
        status, answer = self._once(address, path, body, None)
        if status == 403 and self._access.tls is not None and (port := _https_port(answer)):
            self._https[address] = f"{address.rpartition(':')[0]}:{port}"
            return self.ask(address, path, body)
        return status, answer

    def _once(
        self, address: str, path: str, body: bytes | None, tls: ssl.SSLContext | None
    ) -> tuple[int, bytes]:
        if address.startswith("https://"):
            tls = self._access.tls or ssl.create_default_context()
        headers = self._access.headers(encrypted=tls is not None)
        try:
            connection = connect(address.rpartition("/")[2], tls)
            try:
                connection.request("GET" if body is None else "POST", path, body, headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no daemon answers at {address}: {error or type(error).__name__}") from error

    def get_json(self, address: str, path: str) -> Any:
        status, body = self.ask(address, path)
        if status != 200:
            text = body[:100].decode(errors="replace").strip()
            raise Unreachable(f"{address} answered {path} with {status} {text}")
        try:
            return json.loads(body)
        except ValueError as error:
            raise Unreachable(f"{address} answered {path} with something that is no JSON") from error

    def all_nsqd(self, lookupds: list[str]) -> list[ListedNsqd]:
        """Return every nsqd that any of the nsqlookupds lists. Raises Unreachable if none of them answers."""
        return self._of_any(lookupds, "/nodes")

    def nsqds_of(self, lookupds: list[str], topic: str) -> list[ListedNsqd]:
        """Return the nsqds that have the topic; none before it was created. Raises Unreachable."""
        return self._of_any(lookupds, f"/lookup?topic={quote(topic, safe='')}")

    def _of_any(self, lookupds: list[str], path: str) -> list[ListedNsqd]:
        found: dict[str, ListedNsqd] = {}
        failed: list[str] = []
        for address in lookupds:
            try:
                status, body = self.ask(address, path)
                if status == 404 and path.startswith("/lookup"):
                    continue
                if status != 200:
                    raise Unreachable(f"{address} answered {path} with {status}: it is no nsqlookupd")
                for nsqd in json.loads(body)["producers"]:
                    host = nsqd["broadcast_address"]
                    host = f"[{host}]" if ":" in host else host
                    tcp = f"{host}:{nsqd['tcp_port']}"
                    found[tcp] = ListedNsqd(tcp, f"{host}:{nsqd['http_port']}")
            except Unreachable as error:
                failed.append(str(error))
            except (ValueError, LookupError, TypeError):
                failed.append(f"{address} answered {path} with something else than a list of nsqd")
        if lookupds and len(failed) == len(lookupds):
            raise Unreachable(failed[0])
        return [found[tcp] for tcp in sorted(found)]

    def cost_of(self, address: str) -> Cost | None:
        """Return CPU and memory of a daemon from its /metrics; None if it has none (the original)."""
        try:
            status, body = self.ask(address, "/metrics")
        except Unreachable:
            return None
        values = {name: float(value) for name, value in _METRIC.findall(body)}
        if status != 200 or len(values) != 2:
            return None
        return Cost(values[b"process_cpu_seconds_total"], values[b"process_resident_memory_bytes"] / 1e6)


def connect(address: str, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    if tls is not None:
        return http.client.HTTPSConnection(address, timeout=TIMEOUT_SECONDS, context=tls)
    return http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)


def _https_port(refusal: bytes) -> int | None:
    try:
        port = json.loads(refusal)["https_port"]
    except (ValueError, LookupError, TypeError):
        return None
    return port if isinstance(port, int) and port > 0 else None
