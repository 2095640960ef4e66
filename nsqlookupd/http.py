"""The reading side of nsqlookupd: its HTTP API."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from nsqclient.wire.names import is_valid_name
from nsqclient.wire.version import NSQ_VERSION
from nsqcore.http.api import (
    ApiError,
    Request,
    Response,
    empty_reply,
    json_bytes_reply,
    json_reply,
    json_stream,
    json_text,
    plain_reply,
)
from nsqcore.http.metrics_on_demand import MetricsOnDemand
from nsqcore.http.router import Route
from nsqcore.lookup_protocol import is_identity
from nsqcore.process.clock import steady_ns
from nsqcore.process.logs import Log
from nsqcore.version import build
from nsqlookupd.openapi import description
from nsqlookupd.readiness import Readiness
from nsqlookupd.registry import NEVER, Key, ListedNode, LostNode, Peer, Registry

# After so many entries of a long answer other connections are served: nsqd waits one second for a PING.
_ENTRIES_PER_TURN: Final = 16
# A long answer is sent to the client in chunks of about this size.
_PIECE_BYTES: Final = 1 << 16


class HttpApi:
    """The handlers, around one registry."""

    def __init__(self, registry: Registry, readiness: Readiness, metrics: MetricsOnDemand, log: Log) -> None:
        self._registry = registry
        self._readiness = readiness
        self._metrics = metrics
        self._log = log

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/ping", self.ping, head=True),
            Route("GET", "/ready", self.ready, logged=False),
            Route("GET", "/info", self.info),
            Route("GET", "/metrics", self.metrics, head=True),
            Route("GET", "/openapi.json", self.openapi),
            Route("GET", "/debug", self.debug),
            Route("GET", "/lookup", self.lookup),
            Route("GET", "/lookup/producers", self.publishable),
            Route("GET", "/lookup/nodes", self.replication_nodes),
            Route("GET", "/lookup/lost", self.lost),
            Route("GET", "/topics", self.topics),
            Route("GET", "/channels", self.channels),
            Route("GET", "/nodes", self.nodes),
            Route("POST", "/topic/create", self.create_topic),
            Route("POST", "/topic/delete", self.delete_topic),
            Route("POST", "/topic/tombstone", self.tombstone_topic),
            Route("POST", "/channel/create", self.create_channel),
            Route("POST", "/channel/delete", self.delete_channel),
        ]

    # -- reading ---------------------------------------------------------------------

    async def ping(self, _: Request) -> Response:
        return plain_reply("OK")

    async def ready(self, _: Request) -> Response:
        """Whether the answers to lookups are complete; for a while after a start they are not."""
        if self._readiness.ready:
            return plain_reply("OK")
        return plain_reply(f"NOK - {self._readiness.reason}", 503)

    async def info(self, _: Request) -> Response:
        return json_reply({"version": NSQ_VERSION, "build": build()})

    async def metrics(self, _: Request) -> Response:
        return self._metrics.reply()

    async def openapi(self, _: Request) -> Response:
        return json_reply(description())

    async def topics(self, _: Request) -> Response:
        return json_reply({"topics": self._registry.topics()})

    async def channels(self, request: Request) -> Response:
        return json_reply({"channels": self._registry.channels(request.require("topic"))})

    async def lookup(self, request: Request) -> Response:
        topic = request.require("topic")
        if not self._registry.knows(topic):
            raise ApiError(404, "TOPIC_NOT_FOUND")
        producers = _joined(self._registry.producers(topic, steady_ns()))
        channels = json_text(self._registry.channels(topic)).encode()
        return json_bytes_reply(b'{"channels":%b,"producers":[%b]}' % (channels, producers))

    async def publishable(self, request: Request) -> Response:
        """The nsqds that accept publishes now: not draining, healthy, and not tombstoned for the topic."""
        topic = request.query.get("topic", "")
        if topic and not is_valid_name(topic):
            raise ApiError(400, "INVALID_ARG_TOPIC")
        found = self._registry.publishable(topic, steady_ns())
        return json_bytes_reply(b'{"producers":[%b]}' % _joined(found))

    async def lost(self, request: Request) -> Response:
        """The nsqds that disconnected a moment ago: a reader of the topic misses their messages."""
        topic, now_ns = request.query.get("topic", ""), steady_ns()
        return await _listed(
            "nodes", (_lost_text(one, topic, now_ns) for one in self._registry.lost(topic, now_ns))
        )

    async def replication_nodes(self, request: Request) -> Response:
        """The nsqds with these identities; without identities, the nsqds that accept replicas."""
        asked = request.query.get("identity")
        if asked is None:
            found = self._registry.replica_candidates(steady_ns())
        else:
            identities = frozenset(asked.split(","))
            if not all(map(is_identity, identities)):
                raise ApiError(400, "INVALID_ARG_IDENTITY")
            found = self._registry.with_identities(identities, steady_ns())
        return await _listed("nodes", map(_node_text, found))

    async def nodes(self, _: Request) -> Response:
        return await _listed("producers", _with_topics(self._registry.nodes(steady_ns())))

    async def debug(self, request: Request) -> Response:
        """All pairs of key and producer, or those of one topic; half a gigabyte in a large fleet."""
        # A query that cannot be read is refused, which is possible only before the answer has begun.
        topic = request.query.get("topic", "")
        reply = await json_stream(request)
        piece = bytearray(b"{")
        done = 0
        for key, producers in self._registry.entries(topic):
            piece += b"," * (done > 0) + json_text(":".join(key)).encode() + b":["
            for number, (peer, since_ns) in enumerate(producers):
                entry = json_text(_debug_entry(peer, since_ns))
                piece += b"," * (number > 0) + entry.encode("utf-8", "replace")
                done += 1
                if len(piece) >= _PIECE_BYTES:
                    # Waits while the client does not read.
                    await reply.write(bytes(piece))
                    piece.clear()
                if done % _ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
            piece += b"]"
        await reply.write(bytes(piece + b"}"))
        return reply

    # -- changing ----------------------------------------------------------------------

    async def create_topic(self, request: Request) -> Response:
        topic = _valid_name(request, "topic")
        self._log.info("DB: adding topic(%s)", topic)
        self._registry.create_topic(topic)
        return empty_reply()

    async def delete_topic(self, request: Request) -> Response:
        topic = _valid_name(request, "topic")
        self._note_removed(self._registry.delete_topic(topic))
        return empty_reply()

    async def tombstone_topic(self, request: Request) -> Response:
        request.require("topic")
        node = request.require("node")
        topic = _valid_name(request, "topic")
        self._log.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
        self._registry.tombstone(topic, node, steady_ns())
        return empty_reply()

    async def create_channel(self, request: Request) -> Response:
        topic = _valid_name(request, "topic")
        channel = _valid_name(request, "channel")
        self._log.info("DB: adding channel(%s) in topic(%s)", channel, topic)
        self._registry.create_channel(topic, channel)
        return empty_reply()

    async def delete_channel(self, request: Request) -> Response:
        topic = _valid_name(request, "topic")
        channel = _valid_name(request, "channel")
        if not self._registry.delete_channel(topic, channel):
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        self._note_removed([("channel", topic, channel)])
        return empty_reply()

    def _note_removed(self, keys: Iterable[Key]) -> None:
        for category, topic, channel in keys:
            if category == "channel":
                self._log.info("DB: removing channel(%s) from topic(%s)", channel, topic)
            else:
                self._log.info("DB: removing topic(%s)", topic)


def _valid_name(request: Request, argument: str) -> str:
    name = request.require(argument)
    if not is_valid_name(name):
        raise ApiError(400, f"INVALID_ARG_{argument.upper()}")
    return name


def _joined(peers: Iterable[Peer]) -> bytes:
    return b",".join([peer.text or _text(peer) for peer in peers])


async def _listed(key: str, parts: Iterable[bytes]) -> Response:
    """Answer with a long list, and serve other connections between its parts."""
    taken: list[bytes] = []
    for part in parts:
        taken.append(part)
        if len(taken) % _ENTRIES_PER_TURN == 0:
            await asyncio.sleep(0)
    return json_bytes_reply(b'{"%b":[%b]}' % (key.encode(), b",".join(taken)))


def _with_topics(nodes: Iterable[ListedNode]) -> Iterator[bytes]:
    names: list[str] = []
    marks: list[bool] = []
    topics = tombstones = b""
    for node in nodes:
        # A thousand nodes may have the same thousand topics: a list that nodes share is encoded once.
        if node.tombstones is not marks:
            marks = node.tombstones
            tombstones = b",".join([b"true" if marked else b"false" for marked in marks])
        if node.topics is not names:
            names = node.topics
            # Valid names need no escapes.
            topics = b'"' + '","'.join(names).encode() + b'"' if names else b""
        yield b'%b,"tombstones":[%b],"topics":[%b]}' % (_text(node.peer)[:-1], tombstones, topics)


def _lost_text(one: LostNode, topic: str, now_ns: int) -> bytes:
    shown = {
        **_producer(one.peer),
        # A thousand nodes may have a thousand topics each, of which a reader of one topic needs none.
        "topics": [topic] if topic else sorted(one.topics),
        "seconds": (now_ns - one.since_ns) / 1e9,
    }
    return json_text(shown).encode("utf-8", "replace")


def _text(peer: Peer) -> bytes:
    """A producer in JSON. One answer in a fleet has a thousand of them, so each is encoded once."""
    if not peer.text:
        peer.text = json_text(_producer(peer)).encode("utf-8", "replace")
    return peer.text


def _node_text(peer: Peer) -> bytes:
    """An nsqd in an answer of `/lookup/nodes`, which has no topics: a large fleet asks often."""
    if not peer.node_text:
        info = peer.info
        shown = {
            "identity": info.identity,
            "broadcast_address": info.broadcast_address,
            "tcp_port": info.tcp_port,
            "hostname": info.hostname,
            "topology_zone": info.topology_zone,
            "accepts_replicas": peer.accepts_replicas,
        }
        peer.node_text = json_text(shown).encode("utf-8", "replace")
    return peer.node_text


def _producer(peer: Peer) -> dict[str, object]:
    info = peer.info
    # Left out for nsqds that do not report them: the original's answers have no such keys.
    replication = {"identity": info.identity, "accepts_replicas": peer.accepts_replicas}
    return {
        "remote_address": peer.id,
        "hostname": info.hostname,
        "broadcast_address": info.broadcast_address,
        "tcp_port": info.tcp_port,
        "http_port": info.http_port,
        "version": info.version,
        "topology_zone": info.topology_zone,
        "topology_region": info.topology_region,
        **(replication if info.identity else {}),
    }


def _debug_entry(peer: Peer, tombstoned_at_ns: int) -> dict[str, object]:
    shown = _producer(peer)
    del shown["remote_address"]
    return {
        **shown,
        "id": peer.id,
        "last_update": peer.last_update_ns,
        # Stays true after the tombstone's lifetime, as in the original; `tombstoned_at` tells.
        "tombstoned": tombstoned_at_ns != NEVER,
        "tombstoned_at": tombstoned_at_ns,
    }
