"""Reading a topic's log by position, and acknowledging a channel up to one.

    GET  /log/bounds?topic=T                      what there is to read, and how far each channel is
    GET  /log/range?topic=T&start=S&end=E         the frames of S <= sequence < E, as they lie on disk
    POST /channel/commit?topic=T&channel=C&sequence=S   the channel owes nothing below S any more

All three may be repeated without harm. A range gives the same bytes each time, as long as some channel owes
its messages; reading does not touch any state.
"""

from typing import Final

from aiohttp import web

from nsqcore.service.httpapi import ApiError, Request, Response, empty_reply, json_reply
from nsqcore.wire.names import is_valid_name
from nsqd.engine.broker import Broker
from nsqd.engine.ids import SEQUENCE_MASK
from nsqd.engine.topic import Topic
from nsqd.server.turn import Turn
from nsqd.storage.data_path import DataPath

# One reply's frames at most, unless a single message is larger.
RANGE_BYTES: Final = 4 << 20
NEXT_HEADER: Final = "X-Nsq-Next-Sequence"


class LogApi:
    """The topic log over HTTP."""

    def __init__(self, broker: Broker, data: DataPath, turn: Turn) -> None:
        self._broker = broker
        self._data = data
        self._turn = turn

    async def bounds(self, request: Request) -> Response:
        """``first <= sequence < end`` can be read; ``acknowledged`` is where each channel stands.

        Messages are in the ``extents`` only: after a crash the sequence goes on at the clock's number.
        """
        topic = self._topic(request)
        return json_reply(
            {
                "topic": topic.name,
                "node_id": self._broker.ids.node_id,
                "first": topic.log.kept_from,
                "end": topic.log.next_seq,
                "extents": self._extents(topic),
                "channels": {
                    name: {"acknowledged": topic.acknowledged(channel)}
                    for name, channel in sorted(topic.channels.items())
                },
            }
        )

    async def range(self, request: Request) -> Response:
        """Frames, as many as fit into one reply; the header says with which sequence to go on.

        The next sequence is ``end`` when the range is complete. Messages of the range that are lost are
        left out. 410 SEQUENCE_GONE: its beginning is not kept any more. 416: it reaches past the end.
        """
        topic = self._topic(request)
        start, end = _sequence(request, "start"), _sequence(request, "end")
        if start > end or end > topic.log.next_seq:
            raise ApiError(416, "INVALID_RANGE")
        if start < end and start < topic.log.kept_from:
            raise ApiError(410, "SEQUENCE_GONE")
        pieces: list[bytes] = []
        room = RANGE_BYTES
        while start < end and room > 0:
            block = topic.log.block_from(start)
            if block is None or block.first >= end:
                start = end
                break
            start = max(start, block.first)
            stop = block.fitting(start, min(end, block.next), room)
            piece = block.frames(start, stop)
            pieces.append(piece)
            room -= len(piece)
            start = stop
        return web.Response(
            body=b"".join(pieces),
            headers={"Content-Type": "application/octet-stream", NEXT_HEADER: str(start)},
        )

    async def commit(self, request: Request) -> Response:
        """Acknowledge a channel up to a sequence; a lower one than before changes nothing."""
        topic_name = request.require("topic")
        if not is_valid_name(topic_name):
            raise ApiError(400, "INVALID_ARG_TOPIC")
        channel_name = request.require("channel")
        if not is_valid_name(channel_name):
            raise ApiError(400, "INVALID_ARG_CHANNEL")
        topic = self._topic(request)
        channel = topic.channels.get(channel_name)
        if channel is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        sequence = _sequence(request, "sequence")
        if sequence > topic.log.next_seq:
            raise ApiError(416, "INVALID_SEQUENCE")
        channel.commit(sequence)
        self._broker.serve(channel)
        self._turn.ask()
        return empty_reply()

    def _topic(self, request: Request) -> Topic:
        topic = self._broker.topics.get(request.require("topic"))
        if topic is None:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return topic

    def _extents(self, topic: Topic) -> list[tuple[int, int]]:
        """Where messages are that can be read."""
        log = topic.log
        found = [(log.kept_from, log.next_seq)] if topic.ephemeral else self._data.store(topic.name).extents()
        cut = [(max(start, log.kept_from), min(end, log.next_seq)) for start, end in found]
        return [(start, end) for start, end in cut if start < end]


def _sequence(request: Request, name: str) -> int:
    text = request.require(name)
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= SEQUENCE_MASK):
        raise ApiError(400, f"INVALID_ARG_{name.upper()}")
    return int(text)
