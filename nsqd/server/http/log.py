"""Reading a topic's log by position, and acknowledging a channel up to a position.

    GET  /log/bounds?topic=T[&channel=C]          what can be read, and how far each channel is
    GET  /log/range?topic=T&start=S&end=E         the frames of S <= sequence < E, as a consumer gets them
    POST /channel/commit?topic=T&channel=C&sequence=S   the channel has nothing pending below S any more

With ``log=IDENTITY`` they are about the log of that origin: this nsqd's own, or a promoted copy here.

All three may be repeated without harm. A range gives the same bytes each time, as long as some channel must
deliver its messages; reading does not change any state. Missing messages are part of the answer, as named
gaps. Messages that cannot be read at the moment are an error, never an answer that looks complete.
"""

from collections.abc import Iterator
from typing import Final

from aiohttp import web

from nsqcore.http.api import TRUE, ApiError, Request, Response, empty_reply, json_reply
from nsqcore.http.pieces import InPieces
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.log.cursor import Cursor
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead, Gap, Why
from nsqd.log.headers import other_kind
from nsqd.log.ids import SEQUENCE_MASK
from nsqd.log.ranges import Ranges, merged, within, without
from nsqd.server.http.messages import of_log, topic_and_channel_names
from nsqd.server.http.topics import refuse_when_decommissioning
from nsqd.server.write_batch import NotStored, WriteBatch
from nsqd.storage.data_path import DataPath, extents_of
from nsqd.storage.topic_log import store_of

FRAMES_TYPE: Final = "application/octet-stream"
# The most bytes of frames in one reply, unless a single message is larger.
RANGE_BYTES: Final = 4 << 20
NEXT_HEADER: Final = "X-Nsq-Next-Sequence"
# "start-end why" of each gap, separated by commas; absent when nothing is missing.
GAPS_HEADER: Final = "X-Nsq-Gaps"
# The reason of a gap whose messages every channel had finished before this channel was created.
EARLIER: Final = "earlier"
# A reply names about so many gaps at most, and ends with the last of them.
_MAX_GAPS: Final = 64


class LogApi:
    """The topic log over HTTP."""

    def __init__(self, broker: Broker, data: DataPath, write_batch: WriteBatch) -> None:
        self._broker = broker
        self._data = data
        self._write_batch = write_batch

    async def bounds(self, request: Request) -> Response:
        """``first <= sequence < end`` can be read; ``acknowledged`` is the position of each channel.

        Messages are in the ``extents`` only: after a start the sequence has a higher number. ``gaps``
        are ranges before, between or behind the extents that were stored once and are lost. ``data_path``
        names the data path, wherever it is mounted; a copy of it has another name.

        ``promoted`` has the identities of the origins of promoted copies here.

        With *channel*, messages that were sent to other channels alone count as numbers without a message.
        """
        topic = self._topic(request)
        channel_name = request.query.get("channel", "")
        return json_reply(
            {
                "topic": topic.name,
                "node_id": self._broker.ids.node_id,
                "data_path": topic.origin or self._identity,
                "promoted": [one.origin for one in topic.promoted],
                "first": _first(topic, channel_name),
                "end": topic.log.next_seq,
                "extents": _visible(topic, channel_name, extents_of(topic)),
                "gaps": self._losses(topic, channel_name),
                "channels": {
                    name: {"acknowledged": topic.acknowledged(channel)}
                    for name, channel in sorted(topic.channels.items())
                },
            }
        )

    async def range(self, request: Request) -> Response:
        """As many frames as fit into one reply; a header has the next sequence to read.

        The next sequence is ``end`` when the range is complete. Another header names the gaps: damaged or
        removed messages were lost, compacted ones were finished by every channel, unused numbers were never
        given to messages. With *channel*, messages that were compacted before that channel was created are
        called earlier, and those that were sent to other channels alone unused. With ``headers=true`` each
        body begins with its extension, as for a subscriber with ``extend_support``. 410 SEQUENCE_GONE: the
        beginning is not stored any more. 416: the range reaches past the end. 503 CANNOT_READ: retry later.
        """
        extended = request.query.get("headers", "false") in TRUE
        topic = self._topic(request)
        channel_name = request.query.get("channel", "")
        channel = topic.channels.get(channel_name)
        start, end = _sequence(request, "start"), _sequence(request, "end")
        if start > end or end > topic.log.next_seq:
            raise ApiError(416, "INVALID_RANGE")
        if start < end and start < _first(topic, channel_name):
            raise ApiError(410, "SEQUENCE_GONE")
        pieces: list[bytes] = []
        gaps: list[str] = []
        room = RANGE_BYTES
        try:
            for first, stop, found in _scan(topic, channel_name, start, end):
                if isinstance(found, Block):
                    start = found.fitting(first, stop, room)
                    if found.has_headers is extended:
                        piece = found.frames(first, start)
                    else:
                        piece = other_kind(found, first, start)
                    pieces.append(piece)
                    room -= len(piece)
                else:
                    start = stop
                    gaps += _named(first, stop, found.why, channel)
                if start < stop or room <= 0 or len(gaps) >= _MAX_GAPS:
                    break
        except CannotRead as error:
            if not pieces and not gaps:
                raise ApiError(503, "CANNOT_READ") from error
        headers = {"Content-Type": FRAMES_TYPE, NEXT_HEADER: str(start)}
        if gaps:
            headers[GAPS_HEADER] = ", ".join(gaps)
        return web.Response(body=InPieces(pieces, FRAMES_TYPE), headers=headers)

    async def commit(self, request: Request) -> Response:
        """Acknowledge a channel up to a sequence; a lower sequence than before changes nothing."""
        _, channel_name = topic_and_channel_names(request)
        topic = self._topic(request)
        channel = topic.channels.get(channel_name)
        if channel is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        sequence = _sequence(request, "sequence")
        if sequence > topic.log.next_seq:
            raise ApiError(416, "INVALID_SEQUENCE")
        refuse_when_decommissioning(self._broker)
        if topic.origin:
            channel.commit(sequence)
            topic.changed = True
            self._broker.serve(channel)
            # The next checkpoint has it. After a kill before that, the reader acknowledges again.
            return empty_reply()
        self._broker.commit_channel(topic, channel, sequence)
        try:
            # An answered commit survives the death of the process, so no reader reads its messages again.
            await self._write_batch.note_stored(topic)
        except NotStored as error:
            raise ApiError(503, "NOT_STORED") from error
        return empty_reply()

    def _topic(self, request: Request) -> Topic:
        topic = self._broker.topics.get(request.require("topic"))
        if topic is None:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        log = request.query.get("log", "")
        return topic if log in {"", self._identity} else of_log(topic, None, log)[0]

    @property
    def _identity(self) -> str:
        return self._data.reservation.identity.hex()

    @staticmethod
    def _losses(topic: Topic, channel_name: str) -> list[dict[str, int | str]]:
        store = store_of(topic)
        losses = [] if store is None else store.segments.losses(topic.log.log_start)
        return [
            {"start": start, "end": end, "why": gap.why.value}
            for gap in losses
            for start, end in _visible(topic, channel_name, [(gap.start, gap.end)])
        ]


def _visible(topic: Topic, channel_name: str, ranges: Ranges) -> Ranges:
    """The parts of sorted *ranges* that a reader with this channel receives; all without a channel."""
    return topic.exclusive.without_others(channel_name, ranges) if channel_name else ranges


def _first(topic: Topic, channel_name: str) -> int:
    """The first sequence for a reader with this channel: it has no messages from there to the log start."""
    log_start = topic.log.log_start
    return topic.exclusive.start_of_others(channel_name, log_start) if channel_name else log_start


def _scan(topic: Topic, channel_name: str, start: int, end: int) -> Iterator[tuple[int, int, Block | Gap]]:
    """Yield the messages of ``start <= seq < end`` for this channel's reader, like :meth:`Cursor.scan`."""
    for first, stop in _visible(topic, channel_name, [(start, end)]):
        if start < first:
            yield start, first, Gap(start, first, Why.UNUSED)
        yield from Cursor(topic.log).scan(first, stop)
        start = stop
    if start < end:
        yield start, end, Gap(start, end, Why.UNUSED)


def _named(start: int, end: int, why: Why, channel: Channel | None) -> list[str]:
    """The parts of a gap as the header names them.

    Compaction keeps every message that a channel must deliver. So messages of a compacted gap that *channel*
    must deliver, or that were absent when it was created at a place or set to one, were removed before that.
    """
    if why is not Why.COMPACTED or channel is None:
        return [f"{start}-{end} {why.value}"]
    earlier = merged([*channel.backlog.unfinished(start, end), *within(channel.absent, start, end)])
    parts = [(*one, EARLIER) for one in earlier]
    parts += [(*one, why.value) for one in without([(start, end)], earlier)]
    return [f"{first}-{stop} {reason}" for first, stop, reason in sorted(parts)]


def _sequence(request: Request, name: str) -> int:
    text = request.require(name)
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= SEQUENCE_MASK):
        raise ApiError(400, f"INVALID_ARG_{name.upper()}")
    return int(text)
