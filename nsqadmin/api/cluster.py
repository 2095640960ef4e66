"""The JSON API under ``/api``: the same keys and codes as NSQ's, lists never null."""

import json
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar

from nsqadmin.changes.action import Target
from nsqadmin.changes.actions import ACTIONS
from nsqadmin.changes.commands import ActionResult
from nsqadmin.changes.runner import ActionRunner
from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.stats.sums import on_node
from nsqadmin.stats.topic_records import channel_record, topic_record
from nsqclient.wire.names import is_valid_name
from nsqclient.wire.node_error import NodeError
from nsqcore import fields
from nsqcore.cluster.models import NodeInfo, TopicStats
from nsqcore.http.api import (
    ApiError,
    Request,
    Response,
    json_bytes,
    json_bytes_reply,
    json_reply,
    json_text,
)
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

T = TypeVar("T")

BODY_LIMIT: Final = 1 << 20
# The actions on the queue of a topic or channel.
QUEUE_ACTIONS: Final = ("pause", "unpause", "empty")


class Api:
    """Handlers of ``/api``; their statistics were requested from the nodes at most a second ago."""

    def __init__(self, cluster: Cluster, runner: ActionRunner, log: Log) -> None:
        self._cluster = cluster
        self._runner = runner
        self._log = log

    def routes(self) -> list[Route]:
        table = [
            ("GET", "/api/topics", self.topics),
            ("POST", "/api/topics", self.create),
            ("GET", "/api/topics/:topic", self.topic),
            ("POST", "/api/topics/:topic", self.change),
            ("DELETE", "/api/topics/:topic", self.delete),
            ("GET", "/api/topics/:topic/:channel", self.channel),
            ("POST", "/api/topics/:topic/:channel", self.change),
            ("DELETE", "/api/topics/:topic/:channel", self.delete),
            ("GET", "/api/nodes", self.nodes),
            ("GET", "/api/nodes/:node", self.node),
            ("DELETE", "/api/nodes/:node", self.tombstone),
            ("GET", "/api/counter", self.counter),
        ]
        return [Route(method, pattern, self._answering(handler)) for method, pattern, handler in table]

    # -- reading ------------------------------------------------------------------

    async def topics(self, request: Request) -> Response:
        if request.query.get("inactive") == "true":
            await self._cluster.collector.fresh_list(0.0)
            idle = await self._cluster.registrations.idle()
            return self._reply({"topics": idle.value}, idle)
        await self._cluster.collector.fresh_names(0.0)
        names = await self._cluster.registrations.topics()
        return self._reply({"topics": names.value}, names)

    async def topic(self, request: Request) -> Response:
        total = await self._cluster.queues.topic(request.params["topic"])
        return self._reply(topic_record(total.value), total)

    async def channel(self, request: Request) -> Response:
        total = await self._cluster.queues.channel(request.params["topic"], request.params["channel"])
        return self._reply(channel_record(total.value), total)

    async def nodes(self, request: Request) -> Response:  # noqa: ARG002 - handlers share a signature
        await self._cluster.collector.fresh_list(0.0)
        nodes = await self._cluster.nodes()
        return self._reply({"nodes": [_node_json(*node) for node in nodes.value]}, nodes)

    async def node(self, request: Request) -> Response:
        address = request.params["node"]
        found = await self._cluster.node_body(address)
        producer, read = found.value
        now_s = int(time.time())

        # The text can be megabytes. It is written one topic at a time, so that never all records exist at
        # once.
        def write() -> bytes:
            stats = read()
            out = bytearray(f'{{"node":{json_text(address)},"topics":['.encode())
            for topic in stats.topics:
                out += json_bytes(topic_record(on_node(producer, (topic, (), 0, address), now_s))) + b","
            rest = {
                "total_messages": sum(topic.message_count for topic in stats.topics),
                "total_clients": sum(len(one.clients) for topic in stats.topics for one in topic.channels),
                "message": self._message(found),
            }
            return bytes(out.removesuffix(b",")) + b"]," + json_bytes(rest)[1:]

        try:
            return json_bytes_reply(await self._cluster.collector.work.for_reader(write))
        except NodeError as error:
            raise UpstreamError("nsqd", [error]) from error

    async def counter(self, request: Request) -> Response:  # noqa: ARG002 - handlers share a signature
        await self._cluster.collector.refresh_stats(0.0)
        found = await self._cluster.stats_of_nodes()

        def write() -> bytes:
            out = bytearray(b'{"stats":{')
            for node, look in found.value:
                for topic in look.topics.values():
                    out += _counter_entries(node, topic)
            return (
                bytes(out.removesuffix(b",")) + f'}},"message":{json_text(self._message(found))}}}'.encode()
            )

        return json_bytes_reply(await self._cluster.collector.work.for_reader(write))

    # -- changing -----------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        self._runner.check(request)
        body = _decode(await request.read(BODY_LIMIT))
        topic, channel = _string(body, "topic"), _string(body, "channel")
        if not is_valid_name(topic):
            raise ApiError(400, "INVALID_TOPIC")
        if channel and not is_valid_name(channel):
            raise ApiError(400, "INVALID_CHANNEL")
        self._runner.check(request, "create", topic)
        return await self._do(request, "create", Target(topic, channel))

    async def change(self, request: Request) -> Response:
        self._runner.check(request)
        body = _decode(await request.read(BODY_LIMIT))
        action = body.get("action")
        if action not in QUEUE_ACTIONS:
            raise ApiError(400, "INVALID_ACTION")
        topic, channel = request.params["topic"], request.params.get("channel", "")
        self._runner.check(request, action, topic)
        return await self._do(request, action, Target(topic, channel))

    async def delete(self, request: Request) -> Response:
        self._runner.check(request, "delete", request.params["topic"])
        return await self._do(
            request, "delete", Target(request.params["topic"], request.params.get("channel", ""))
        )

    async def tombstone(self, request: Request) -> Response:
        self._runner.check(request)
        try:
            body = _decode(await request.read(BODY_LIMIT))
        except ApiError as error:
            raise ApiError(400, "INVALID_BODY") from error
        topic = _string(body, "topic")
        if not is_valid_name(topic):
            raise ApiError(400, "INVALID_TOPIC")
        self._runner.check(request, "tombstone", topic)
        return await self._do(request, "tombstone", Target(topic, node=request.params["node"]))

    # -- replying -----------------------------------------------------------------

    def _reply(self, shown: dict[str, Any], answer: Answer[Any]) -> Response:
        return json_bytes_reply(json_bytes({**shown, "message": self._message(answer)}))

    def _message(self, answer: Answer[Any]) -> str:
        if answer.message:
            self._log.warning("%s", answer.message.removeprefix("WARNING: "))
        return answer.message

    async def _do(self, request: Request, action: str, target: Target) -> Response:
        done: ActionResult = await self._runner.do(request, ACTIONS[action], target)
        if done.message:
            self._log.warning("%s", done.message.removeprefix("WARNING: "))
        return json_reply({"message": done.message})

    def _answering(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Any]:
        """Turn the errors of an unanswered request into the API's status codes."""

        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except UnknownError as error:
                raise ApiError(404, error.code) from error
            except UpstreamError as error:
                self._log.error("%s", error)
                raise ApiError(502, f"UPSTREAM_ERROR: {error}") from error

        return answer


def _counter_entries(node: str, topic: TopicStats) -> bytes:
    """Write an entry of ``/api/counter``, and a comma, for each channel of a topic on one node.

    A cluster may have a hundred thousand entries, so they are written without making records first.
    """
    node_text, topic_text = json_text(node), json_text(topic.topic_name)
    entries: list[str] = []
    for channel in topic.channels:
        name = json_text(channel.channel_name)
        entries.append(
            f'"{topic_text[1:-1]}:{name[1:-1]}:{node_text[1:-1]}":{{"node":{node_text},'
            f'"topic_name":{topic_text},"channel_name":{name},"message_count":{channel.message_count}}},'
        )
    return "".join(entries).encode()


def _node_json(producer: NodeInfo, out_of_date: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "remote_addresses": list(producer.remote_addresses),
        "remote_address": producer.remote_address,
        "hostname": producer.hostname,
        "broadcast_address": producer.broadcast_address,
        "tcp_port": producer.tcp_port,
        "http_port": producer.http_port,
        "version": producer.version,
    }
    if producer.topology_zone:
        shown["topology_zone"] = producer.topology_zone
    if producer.topology_region:
        shown["topology_region"] = producer.topology_region
    shown["topics"] = [
        {"topic": registration.topic, "tombstoned": registration.tombstoned}
        for registration in producer.topics
    ]
    shown["out_of_date"] = out_of_date
    return shown


def _decode(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a request. Raises ApiError with a sentence if it is none."""
    text = body.decode("utf-8", "replace").lstrip()
    if not text:
        raise ApiError(400, "EOF")
    try:
        # Text after the first value is ignored, as a decoder of JSON streams does.
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text):
            raise ApiError(400, "unexpected EOF") from error
        where = "looking for beginning of value" if error.pos == 0 else f"at offset {error.pos}"
        raise ApiError(400, f"invalid character '{text[error.pos]}' {where}") from error
    except RecursionError as error:
        raise ApiError(400, "exceeded max depth") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object")
    return value


def _string(body: dict[str, Any], key: str) -> str:
    try:
        return fields.text(body, key)
    except TypeError as error:
        raise ApiError(400, str(error)) from error
