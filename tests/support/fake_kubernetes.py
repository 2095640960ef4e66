"""A Kubernetes API for tests: a few objects over HTTP, with some faults of a real one."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client

Object = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One wrong answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeKubernetes:
    """Objects by the path at which they are read; created objects are kept in order of arrival."""

    objects: dict[str, Object] = field(default_factory=dict)
    created: list[tuple[str, Object]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    """``GET /api/v1/nodes/a`` -> how often; a watch is ``WATCH``."""
    faults: dict[str, list[Fault | str]] = field(default_factory=dict)
    """What the next answers to such a request are; "hang up" closes the connection instead."""
    streams: dict[str, list[Callable[[], Iterator[Object]]]] = field(default_factory=dict)
    """What the next watches of a list yield before they end."""
    url: str = ""

    def client(self) -> client.ApiClient:
        settings = client.Configuration(host=self.url)
        settings.retries = False
        return client.ApiClient(settings)


def service(name: str, kind: str, *, ingress: list[Object] | None = None, node_ports: bool = True) -> Object:
    """Return the Service of one broker, as the API server shows it."""
    ports: list[Object] = [{"name": "tcp", "port": 4150}, {"name": "http", "port": 4151}]
    if node_ports:
        ports = [port | {"nodePort": port["port"] + 26000} for port in ports]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "mq", "resourceVersion": "7"},
        "spec": {"type": kind, "ports": ports},
        "status": {"loadBalancer": {"ingress": ingress} if ingress else {}},
    }


@contextmanager
def fake_kubernetes() -> Iterator[FakeKubernetes]:
    cluster = FakeKubernetes()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(cluster: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, body: Object, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _fails(self, request: str) -> bool:
            cluster.asked[request] += 1
            waiting = cluster.faults.get(request, [])
            if not waiting:
                return False
            fault = waiting.pop(0)
            if isinstance(fault, str):
                self.close_connection = True
                return True
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status}
            self._answer(fault.status, status, fault.headers)
            return True

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if "true" in parse_qs(url.query).get("watch", []):
                self._watch(url.path)
            elif not self._fails(f"GET {url.path}"):
                found = cluster.objects.get(url.path)
                self._answer(200 if found else 404, found or {"kind": "Status", "code": 404})

        def _watch(self, path: str) -> None:
            if self._fails(f"WATCH {path}"):
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            waiting = cluster.streams.get(path, [])
            for event in waiting.pop(0)() if waiting else ():
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()

        def do_POST(self) -> None:
            path = urlsplit(self.path).path
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self._fails(f"POST {path}"):
                cluster.created.append((path, body))
                self._answer(201, body)

        def log_message(self, *_: object) -> None:
            """Log nothing; the test inspects the requests."""

    return Handler
