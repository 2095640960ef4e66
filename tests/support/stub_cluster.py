"""One process that answers HTTP as many nsqd and nsqlookupd would: ``python -m tests.support.stub_cluster``.

The counts of every topic grow with time, and each channel has two consumers that keep up.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

HOST: Final = "127.0.0.1"
CONSUMERS: Final = 2

_CHANNEL: Final = (
    '{"channel_name":"%s","depth":%%d,"backend_depth":0,"in_flight_count":7,"deferred_count":0,'
    '"message_count":%%d,"global_msg_count":%%d,"requeue_count":3,"timeout_count":1,"client_count":'
    f"{CONSUMERS}"
    ',"clients":@,"paused":false,"e2e_processing_latency":{"count":0,"percentiles":null}}'
)
_TOPIC: Final = (
    '{"topic_name":"%s","channels":[%s],"depth":0,"backend_depth":0,"message_count":%%d,'
    '"message_bytes":%%d,"paused":false,"e2e_processing_latency":{"count":0,"percentiles":null}}'
)
_CLIENT: Final = (
    '{"client_id":"%s","hostname":"%s","version":"V2","remote_address":"10.0.%d.%d:%d","state":3,'
    '"ready_count":100,"in_flight_count":3,"message_count":%d,"finish_count":%d,"requeue_count":3,'
    '"connect_ts":1790000000,"sample_rate":0,"deflate":false,"snappy":false,"user_agent":"stub/1.0",'
    '"tls":false,"tls_cipher_suite":"","tls_version":"","tls_negotiated_protocol":"",'
    '"tls_negotiated_protocol_is_mutual":false}'
)


@dataclass(frozen=True)
class Size:
    nodes: int
    topics: int
    channels: int
    spread: int  # how many nodes each topic is on

    def topics_of(self, node: int) -> list[int]:
        return [t for t in range(self.topics) if (node - t) % self.nodes < self.spread]


class Node:
    """One nsqd; the text of its ``/stats`` is prepared, and only the numbers are filled in on request."""

    def __init__(self, number: int, size: Size) -> None:
        self.number = number
        self.size = size
        self.port = 0
        self.began = time.monotonic()
        self.started_at = int(time.time())
        self.topics = size.topics_of(number)
        random.seed(number)
        self._base = {topic: random.randrange(1_000_000) for topic in self.topics}
        self._rate = {topic: random.choice((1, 5, 20, 100, 500)) for topic in self.topics}
        self._text = {topic: self._template(topic) for topic in self.topics}
        self.frozen = asyncio.Event()
        self.frozen.set()  # set while it answers
        self.server: asyncio.Server | None = None
        self.posted: list[str] = []
        # The requests it got, and the changes a test makes to its answers.
        self.asked: list[str] = []
        self.delay_s = 0.0
        self.edit: Callable[[dict[str, Any]], None] | None = None

    def _template(self, topic: int) -> str:
        channels = ",".join(_CHANNEL % channel_name(number) for number in range(self.size.channels))
        return _TOPIC % (topic_name(topic), channels)

    def _clients(self, topic: int, count: int) -> str:
        names = [f"app-{topic % 40}-{place}" for place in range(CONSUMERS)]
        shown = [
            _CLIENT % (name, f"{name}.example.com", self.number, place, 20_000 + topic % 40_000, count, count)
            for place, name in enumerate(names)
        ]
        return f"[{','.join(shown)}]"

    def _topic(self, topic: int, passed: float, *, clients: bool) -> str:
        count = self._base[topic] + int(self._rate[topic] * passed)
        depth = count % 7
        numbers = [depth, count, count] * self.size.channels
        text = self._text[topic] % (*numbers, count, count * 200)
        return text.replace("@", self._clients(topic, count // CONSUMERS) if clients else "null")

    def stats(self, query: dict[str, str]) -> bytes:
        passed = time.monotonic() - self.began
        clients = query.get("include_clients") != "false"
        wanted = self.topics
        if "topic" in query:
            wanted = [topic for topic in self.topics if topic_name(topic) == query["topic"]]
        topics = ",".join(self._topic(topic, passed, clients=clients) for topic in wanted)
        head = f'"version":"1.3.0","health":"OK","start_time":{self.started_at}'
        if query.get("channel"):
            (topic,) = json.loads(f"[{topics}]") or [{"channels": []}]
            topic["channels"] = [c for c in topic["channels"] if c["channel_name"] == query["channel"]]
            topics = json.dumps(topic, separators=(",", ":"))
        text = f'{{{head},"topics":[{topics}],"memory":{{}},"producers":null}}'
        if self.edit is not None:
            answer = json.loads(text)
            self.edit(answer)
            text = json.dumps(answer)
        return text.encode()

    def describe(self) -> dict[str, Any]:
        return {
            "remote_address": f"{HOST}:{40_000 + self.number}",
            "hostname": f"stub-{self.number}",
            "broadcast_address": HOST,
            "tcp_port": self.port - 1,
            "http_port": self.port,
            "version": "1.3.0",
        }

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        if method == "POST":
            self.posted.append(path)
            return 200, b""
        match path:
            case "/stats":
                return 200, self.stats(query)
            case "/info":
                return 200, json.dumps(self.describe() | {"start_time": self.started_at}).encode()
            case "/ping" | "/ready":
                return 200, b"OK"
        return 404, b'{"message":"NOT_FOUND"}'


def topic_name(number: int) -> str:
    return f"topic.{number:04d}.events"


def channel_name(number: int) -> str:
    return ("billing", "search", "archive", "audit", "mail", "metrics", "replica", "webhooks")[number % 8] + (
        f"-{number // 8}" if number >= 8 else ""
    )


class StubCluster:
    """The nodes and the nsqlookupds that list them."""

    def __init__(self, size: Size, lookupds: int) -> None:
        self.size = size
        self.nodes = [Node(number, size) for number in range(size.nodes)]
        self.lookupd_ports = [0] * lookupds
        self.dead: set[int] = set()
        self._servers: list[asyncio.Server] = []
        # Numbers of the nsqlookupds that do not answer.
        self.silent_lookupds: set[int] = set()
        self.unlisted: set[int] = set()
        # Topics and channels that only nsqlookupd knows.
        self.registered: dict[str, list[str]] = {}

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for node in self.nodes:
            await self._listen(node)
        for place in range(len(self.lookupd_ports)):
            server = await loop.create_server(
                lambda at=place: _Connection(partial(self._lookupd, at)), HOST, 0
            )
            self.lookupd_ports[place] = server.sockets[0].getsockname()[1]
            self._servers.append(server)

    async def _listen(self, node: Node) -> None:
        loop = asyncio.get_running_loop()
        node.server = await loop.create_server(
            lambda: _Connection(lambda *asked: self._nsqd(node, *asked)), HOST, node.port, backlog=512
        )
        node.port = node.server.sockets[0].getsockname()[1]

    async def _nsqd(self, node: Node, method: str, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        node.asked.append(f"{method} {path}?{urlencode(query)}")
        await node.frozen.wait()
        # The answer states the moment of the request, however long it takes to send.
        answer = node.answer(method, path, query)
        if node.delay_s:
            await asyncio.sleep(node.delay_s)
        return answer

    def kill(self, node: Node) -> None:
        """End the node's port and its connections; no nsqlookupd lists it any more."""
        self.dead.add(node.number)
        if node.server:
            node.server.close()
        for connection in list(_Connection.of_port.get(node.port, ())):
            connection.drop()

    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.number not in self.dead]

    def listed(self) -> list[Node]:
        return [node for node in self.alive() if node.number not in self.unlisted]

    async def stop(self) -> None:
        for server in (*self._servers, *(node.server for node in self.nodes)):
            if server is not None:
                server.close()
        ports = {*self.lookupd_ports, *(node.port for node in self.nodes)}
        for port in ports:
            for connection in list(_Connection.of_port.get(port, ())):
                connection.drop()

    async def _lookupd(self, place: int, method: str, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        if place in self.silent_lookupds:
            return 500, b'{"message":"INTERNAL_ERROR"}'
        if method == "POST":
            return 200, b""
        match path:
            case "/topics":
                return 200, _json({"topics": [*map(topic_name, range(self.size.topics)), *self.registered]})
            case "/nodes":
                listed = [
                    {
                        **node.describe(),
                        "tombstones": [False] * len(node.topics),
                        "topics": [topic_name(topic) for topic in node.topics],
                    }
                    for node in self.listed()
                ]
                return 200, _json({"producers": listed})
            case "/channels":
                names = [channel_name(c) for c in range(self.size.channels)]
                return 200, _json({"channels": self.registered.get(query["topic"], names)})
            case "/lookup":
                known = [n.describe() for n in self.listed() if query["topic"] in map(topic_name, n.topics)]
                if not known:
                    return 404, b'{"message":"TOPIC_NOT_FOUND"}'
                channels = [channel_name(c) for c in range(self.size.channels)]
                return 200, _json({"channels": channels, "producers": known})
            case "/ping":
                return 200, b"OK"
        return 404, b'{"message":"NOT_FOUND"}'


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Connection(asyncio.Protocol):
    """The part of HTTP needed here: requests one after another, bodies ignored."""

    of_port: Final[dict[int, set["_Connection"]]] = {}

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._buffer = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port = transport.get_extra_info("sockname")[1]
        self.of_port.setdefault(self._port, set()).add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.of_port[self._port].discard(self)

    def drop(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            task = asyncio.ensure_future(self._answer(method, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, method: str, target: str) -> None:
        url = urlsplit(target)
        status, body = await self._ask(method, url.path, dict(parse_qsl(url.query)))
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def serve(size: Size, lookupds: int) -> None:
    cluster = StubCluster(size, lookupds)
    await cluster.start()
    places = {
        "lookupds": [f"{HOST}:{port}" for port in cluster.lookupd_ports],
        "nsqds": [f"{HOST}:{node.port}" for node in cluster.nodes],
    }
    print(json.dumps(places), flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.stub_cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--topics", type=int, default=1000)
    args = parser.parse_args()
    asyncio.run(serve(Size(args.nodes, args.topics, channels=5, spread=args.nodes), lookupds=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
