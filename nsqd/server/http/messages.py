"""GET /messages: reads the messages of a log, and their states on a channel. It changes no state."""

import time
from typing import Any, Final

from aiohttp import web

from nsqclient.wire.names import is_valid_name
from nsqcore.http.api import JSON_TYPE, ApiError, Request, Response, json_bytes
from nsqcore.http.pace import Pace
from nsqcore.http.pieces import InPieces
from nsqd.engine.backlog import MessageState
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.credit import Credit
from nsqd.engine.message_status import MessageStatus, StatusSnapshot, work_on
from nsqd.engine.topic import Topic
from nsqd.server.http.openapi import refuse_unknown
from nsqd.server.messages.finding import Finder, Picked
from nsqd.server.messages.query import MessageQuery, parse_query
from nsqd.server.messages.shown import message_json, state_of
from nsqd.server.tcp import ClientConnection

NEXT_HEADER: Final = "X-Nsq-Next"
LINES_TYPE: Final = "application/x-ndjson"
# How many messages are written in one go, in a millisecond; so many bytes count as one more message.
_MESSAGES_PER_TURN: Final = 50
_BYTES_OF_ONE: Final = 2 << 10
# How many spans and runs are searched in the event loop; a thread searches more.
_LITTLE: Final = 5_000


class MessagesApi:
    """Shows messages."""

    def __init__(self, broker: Broker, finder: Finder) -> None:
        self._broker = broker
        self._finder = finder

    async def browse(self, request: Request) -> Response:
        """Show messages from a place on, forward or back: all, or those that a filter or state selects."""
        refuse_unknown(request, "GET", "/messages")
        topic, channel = topic_and_channel(self._broker, request)
        others = [
            {"log": one.origin, "first": one.log.log_start, "end": one.log.next_seq} for one in topic.promoted
        ]
        if request.query.get("log"):
            topic, channel = of_log(topic, channel, request.query["log"])
        accept = request.headers.get("Accept", "")
        query = parse_query(request.query, accept, self._broker.ids, time.time_ns())
        picked = await self._finder.pick(topic, channel, query)
        pieces = await self._shown(topic, channel, picked, query)
        # If the topic or channel was deleted during that, the result may be incomplete.
        if topic.deleted:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        if channel is not None and channel.deleted:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        onward = _next(topic, picked, query)
        if query.lines:
            headers = {"Content-Type": LINES_TYPE}
            if onward is not None:
                headers[NEXT_HEADER] = onward
            return web.Response(body=InPieces(_each_before(pieces, b"\n"), LINES_TYPE), headers=headers)
        answer = {
            "topic": topic.name,
            **({"channel": channel.name} if channel else {}),
            "first": topic.log.log_start,
            "end": topic.log.next_seq,
            "next": onward,
            "more": _more(topic, picked, query),
            "scanned": picked.scanned,
            **({"promoted": others} if others else {}),
            "gaps": [{"start": gap.start, "end": gap.end, "why": gap.why.value} for gap in picked.gaps],
        }
        head = json_bytes(answer)[:-1] + b',"messages":['
        body = [head, *_each_before(pieces, b",")[:-1], b"]}"]
        return web.Response(body=InPieces(body, JSON_TYPE), headers={"Content-Type": JSON_TYPE})

    async def _shown(
        self, topic: Topic, channel: Channel | None, picked: Picked, query: MessageQuery
    ) -> list[bytes]:
        pace = Pace(_MESSAGES_PER_TURN)
        found: list[MessageStatus] | None = None
        if channel is not None and work_on(channel, topic.backlog) > _LITTLE:
            # All messages together, because each resolution goes through everything that waits.
            seqs = [seq for seq, _ in picked.messages]
            found = await self._finder.aside(StatusSnapshot(channel, topic.backlog, seqs).resolve)
        pieces: list[bytes] = []
        for first in range(0, len(picked.messages), _MESSAGES_PER_TURN):
            some = picked.messages[first : first + _MESSAGES_PER_TURN]
            standings = [] if found is None else found[first : first + _MESSAGES_PER_TURN]
            if channel is not None and found is None:
                standings = StatusSnapshot(channel, topic.backlog, [seq for seq, _ in some]).resolve()
            for place, (seq, block) in enumerate(some):
                if query.state and standings[place].state is not query.state:
                    # It changed its state since it was found.
                    continue
                message = message_json(block, seq, query.max_body, exact=query.exact)
                if channel is not None:
                    message = self._state(topic, channel, seq, standings[place]) | message
                pieces.append(json_bytes(message))
                await pace.done(1 + len(pieces[-1]) // _BYTES_OF_ONE)
        return pieces

    @staticmethod
    def _state(topic: Topic, channel: Channel, seq: int, message_status: MessageStatus) -> dict[str, Any]:
        backlog = channel.backlog if seq < channel.backlog.end else topic.backlog
        attempts = backlog.attempts.get(seq, 1 if message_status.state is MessageState.IN_FLIGHT else 0)
        state = state_of(message_status, attempts, topic.wall.offset_ns, _client(message_status.consumer))
        if message_status.state is MessageState.FINISHED:
            # The number of attempts is forgotten when a message is finished.
            del state["attempts"]
        return state


def _each_before(pieces: list[bytes], end: bytes) -> list[bytes]:
    """The chunks, each followed by *end*."""
    ended = [end] * (2 * len(pieces))
    ended[::2] = pieces
    return ended


def topic_and_channel_names(request: Request) -> tuple[str, str]:
    """The names of both, of a request that needs both. Raises ApiError."""
    topic_name = request.require("topic")
    if not is_valid_name(topic_name):
        raise ApiError(400, "INVALID_ARG_TOPIC")
    channel_name = request.require("channel")
    if not is_valid_name(channel_name):
        raise ApiError(400, "INVALID_ARG_CHANNEL")
    return topic_name, channel_name


def topic_and_channel(broker: Broker, request: Request) -> tuple[Topic, Channel | None]:
    """The topic and, if one is named, the channel of the request. Raises ApiError."""
    topic_name, channel_name = request.require("topic"), request.query.get("channel", "")
    if not is_valid_name(topic_name):
        raise ApiError(400, "INVALID_ARG_TOPIC")
    if channel_name and not is_valid_name(channel_name):
        raise ApiError(400, "INVALID_ARG_CHANNEL")
    topic = broker.topics.get(topic_name)
    if topic is None:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    if channel_name and channel_name not in topic.channels:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return topic, topic.channels.get(channel_name)


def of_log(topic: Topic, channel: Channel | None, log: str) -> tuple[Topic, Channel | None]:
    """Topic and channel in the promoted copy of the log of that identity. Raises ApiError."""
    found = next((one for one in topic.promoted if one.origin == log), None)
    if found is None:
        raise ApiError(404, "LOG_NOT_FOUND")
    if channel is not None and channel.name not in found.channels:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return found, None if channel is None else found.channels[channel.name]


def _next(topic: Topic, picked: Picked, query: MessageQuery) -> str | None:
    """The ``from`` of the next request; forward there is always one, because messages may still come."""
    if picked.next_from is not None:
        return "{}.{}".format(*picked.next_from) if picked.full else None
    if query.forward or picked.position >= topic.log.log_start:
        return str(picked.position)
    return None


def _more(topic: Topic, picked: Picked, query: MessageQuery) -> bool:
    """Whether more messages are available now."""
    if picked.next_from is not None:
        return picked.full
    return picked.position < topic.log.next_seq if query.forward else picked.position >= topic.log.log_start


def _client(consumer: Credit | None) -> dict[str, str]:
    sink = consumer.sink if consumer is not None else None
    if not isinstance(sink, ClientConnection):
        return {}
    identity = sink.session.identity
    return {"address": sink.peer, "client_id": identity.client_id, "hostname": identity.hostname}
