"""POST /topic/* and /channel/*: create, delete, empty, pause, unpause, seek."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from nsqclient.wire.names import is_valid_name
from nsqcore.http.api import ApiError, Request, Response, empty_reply, json_reply
from nsqcore.process.logs import Log
from nsqd.engine import all_logs, promoted
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel, Consumer
from nsqd.engine.topic import Topic
from nsqd.log.cursor import LogPosition, PositionKind
from nsqd.log.disk import Disk
from nsqd.log.gaps import CannotRead
from nsqd.log.ranges import Ranges, within
from nsqd.log.segment import Segment
from nsqd.log.segment_index import holes_in, largest
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.clock import now_ns
from nsqd.server.fsync import Fsync
from nsqd.server.http.messages import topic_and_channel_names
from nsqd.server.messages.finding import sequence_of
from nsqd.server.messages.query import position_of
from nsqd.server.topology_events import TopologyEvents
from nsqd.server.write_batch import NotStored, WriteBatch
from nsqd.storage.data_path import DataPath, claim
from nsqd.storage.topic_log import store_of

# While files are searched, others may be compacted, so the search is tried so many times.
_TRIES: Final = 4


def _do_nothing(topic: Topic, channel: Channel) -> None:
    """Do nothing: the default of *placed*."""


class TopicsApi:
    """Administration of topics and channels. The error words differ between the two, as in the original."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        write_batch: WriteBatch,
        fsync: Fsync,
        changes: TopologyEvents,
        checkpoints: Checkpointer,
        log: Log,
        *,
        placed: Callable[[Topic, Channel], None] = _do_nothing,
    ) -> None:
        """*placed* is called for a channel that was just set to a place, or created there."""
        self._placed = placed
        self._broker = broker
        self._data = data
        self._write_batch = write_batch
        self._fsync = fsync
        self._changes = changes
        self._checkpoints = checkpoints
        self._log = log

    # --- topics ---

    async def create_topic(self, request: Request) -> Response:
        name = request.require("topic")
        if not is_valid_name(name):
            raise ApiError(400, "INVALID_TOPIC")
        refuse_when_decommissioning(self._broker)
        topic = self._broker.topic(name, now_ns())
        answer = await self._saved(topic)
        # As in the original, a client that publishes next finds the channels that other nodes have.
        await self._changes.flowing(topic)
        return answer

    async def delete_topic(self, request: Request) -> Response:
        topic = await self._existing_topic(request)
        store = store_of(topic)
        async with self._checkpoints.quiesced(topic):
            if store is not None:
                await self._fsync.quiesce(store)
            try:
                self._delete_topic(topic)
            finally:
                if store is not None:
                    self._fsync.resume(store)
        await self._stored(self._write_batch.names_durable())
        await self._promoted_saved(topic)
        return empty_reply()

    def _delete_topic(self, topic: Topic) -> None:
        if topic.deleted:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        # This was checked before, but the request has waited for the topic's files since.
        refuse_when_decommissioning(self._broker)
        try:
            # Delete the files first: otherwise a topic whose files cannot be deleted would come back.
            self._data.delete(topic)
        except OSError as error:
            self._log.error("TOPIC(%s) failed to delete its files - %s", topic.name, error)
            raise ApiError(500, "NOT_DELETED") from error
        self._close(self._broker.delete_topic(topic.name))

    async def empty_topic(self, request: Request) -> Response:
        if not is_valid_name(request.require("topic")):
            raise ApiError(400, "INVALID_TOPIC")
        topic = await self._existing_topic(request)
        self._broker.empty_topic(topic)
        return await self._saved(topic)

    async def pause_topic(self, request: Request) -> Response:
        return await self._pause_topic(request, paused=True)

    async def unpause_topic(self, request: Request) -> Response:
        return await self._pause_topic(request, paused=False)

    async def _pause_topic(self, request: Request, *, paused: bool) -> Response:
        topic = await self._existing_topic(request)
        self._broker.pause_topic(topic, paused=paused)
        return await self._saved(topic)

    async def _existing_topic(self, request: Request) -> Topic:
        return await self._flowing(request.require("topic"))

    async def _flowing(self, name: str) -> Topic:
        """The topic, once it has its known channels and holds no messages back for them.

        A change to its channels then covers all of its messages.
        """
        while (topic := self._broker.topics.get(name)) is not None:
            if not await self._changes.flowing(topic):
                break
        else:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        refuse_when_decommissioning(self._broker)
        return topic

    # --- channels ---

    async def create_channel(self, request: Request) -> Response:
        """Create a channel as the original does.

        With ``start`` it must deliver all stored messages from there on.
        """
        topic, name = await self._topic_and_channel_name(request)
        holes: Ranges = []
        if request.query.get("start") and name not in topic.channels:
            holes = await self._holes(topic, self._position(topic, request, "start"))
            # Other requests may have run since.
            topic, name = await self._topic_and_channel_name(request)
        if not request.query.get("start") or name in topic.channels:
            self._broker.channel(topic, name)
            return await self._saved(topic)
        position = self._position(topic, request, "start")
        kept = within(claim(topic, holes), position, topic.log.next_seq)
        topic.forget_due(now_ns())
        channel = self._broker.channel(topic, name, kept)
        if position > topic.acknowledged(channel):
            # The topic has held back messages before this position for its first channel.
            self._broker.commit_channel(topic, channel, position)
        self._placed(topic, channel)
        return await self._saved(topic)

    async def seek_channel(self, request: Request) -> Response:
        """Seek a channel: it must deliver all stored messages from the position on, and none before."""
        topic, _ = await self._existing_channel(request)
        holes = await self._holes(topic, self._position(topic, request, "to"))
        # Other requests may have run since.
        topic, channel = await self._existing_channel(request)
        position = self._position(topic, request, "to")
        place = position_of(request.require("to"), "to", self._broker.ids, time.time_ns())
        topic.forget_due(now_ns())
        self._broker.seek_channel(topic, channel, position, claim(topic, holes))
        self._placed(topic, channel)
        if place.kind is not PositionKind.SEQUENCE:
            # A sequence is a place in this node's own log only.
            promoted.pass_over(self._broker, topic, channel.name, lambda one: _position_or_start(one, place))
        pending = all_logs.depth(channel) + all_logs.deferred(channel) + all_logs.in_flight(channel)
        await self._saved(topic)
        return json_reply(
            {"topic": topic.name, "channel": channel.name, "sequence": position, "pending": pending}
        )

    async def _holes(self, topic: Topic, position: int) -> Ranges:
        """The sequences that compacted files lack from *position* on; valid until the next await.

        Without compacted files it does not wait.
        """
        store = store_of(topic)
        if store is None:
            return []
        found: dict[Segment, Ranges] = {}
        for _ in range(_TRIES):
            unknown = [one for one in store.segments.compacted_from(position) if one not in found]
            if not unknown:
                break
            found |= await asyncio.to_thread(_find_holes, self._data.disk, unknown)
        return largest(hole for one in store.segments.compacted_from(position) for hole in found.get(one, ()))

    def _position(self, topic: Topic, request: Request, name: str) -> int:
        """The sequence of a position among the stored messages. Raises ApiError."""
        place = position_of(request.require(name), name, self._broker.ids, time.time_ns())
        position, first = sequence_of(topic, place, name), topic.log.log_start
        if position < first:
            raise ApiError(410, f"SEQUENCE_GONE: the log begins with {first}, behind {position}")
        return position

    async def delete_channel(self, request: Request) -> Response:
        topic, channel = await self._existing_channel(request)
        self._close(self._broker.delete_channel(topic, channel.name))
        return await self._saved(topic)

    async def empty_channel(self, request: Request) -> Response:
        topic, channel = await self._existing_channel(request)
        self._broker.empty_channel(topic, channel)
        return await self._saved(topic)

    async def pause_channel(self, request: Request) -> Response:
        return await self._pause_channel(request, paused=True)

    async def unpause_channel(self, request: Request) -> Response:
        return await self._pause_channel(request, paused=False)

    async def _pause_channel(self, request: Request, *, paused: bool) -> Response:
        topic, channel = await self._existing_channel(request)
        self._broker.pause_channel(topic, channel, paused=paused)
        return await self._saved(topic)

    async def _existing_channel(self, request: Request) -> tuple[Topic, Channel]:
        topic, name = await self._topic_and_channel_name(request)
        channel = topic.channels.get(name)
        if channel is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        return topic, channel

    async def _topic_and_channel_name(self, request: Request) -> tuple[Topic, str]:
        topic_name, channel_name = topic_and_channel_names(request)
        return await self._flowing(topic_name), channel_name

    async def _saved(self, topic: Topic) -> Response:
        """Wait until the change is durable, so that no crash or power cut undoes an answered request."""
        self._changes.persist_soon()
        await self._stored(self._write_batch.note_stored(topic, durable=True))
        await self._promoted_saved(topic)
        return empty_reply()

    async def _promoted_saved(self, topic: Topic) -> None:
        """Write checkpoints of the changed promoted copies, because nothing is noted in their logs."""
        for one in list(topic.promoted):
            if one.take_changed() and not await self._checkpoints.write_now(one):
                raise ApiError(503, "NOT_STORED")

    async def _stored(self, written: asyncio.Future[None]) -> None:
        """Wait for the note of a change that is made in any case. Raises ApiError.

        If the note was not written, the next checkpoint has the change.
        """
        try:
            await written
        except NotStored as error:
            self._log.error("a change of topics is not on the disk yet - %s", error)
            raise ApiError(503, "NOT_STORED") from error

    @staticmethod
    def _close(orphans: list[Consumer]) -> None:
        for consumer in orphans:
            consumer.sink.close()


def refuse_when_decommissioning(broker: Broker) -> None:
    """Refuse a change, which would not be made at the nsqd that has the messages now. Raises ApiError."""
    if broker.decommissioning:
        raise ApiError(503, "DECOMMISSIONED")


def _find_holes(disk: Disk, segments: list[Segment]) -> dict[Segment, Ranges]:
    return {one: holes_in(disk, one) for one in segments}


def _position_or_start(topic: Topic, place: LogPosition) -> int:
    """The sequence of *place* in the log; the log's beginning if it cannot be read at the moment."""
    first, end = topic.log.log_start, topic.log.next_seq
    try:
        return place.position(topic.log, first, end)
    except CannotRead:
        return first
