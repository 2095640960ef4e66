"""POST /topic/* and /channel/*: create, delete, empty, pause, unpause."""

import time

from nsqcore.service.httpapi import ApiError, Request, Response, empty_reply
from nsqcore.wire.names import is_valid_name
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.consumer import Consumer
from nsqd.engine.topic import Topic
from nsqd.server.changes import Changes
from nsqd.server.turn import Turn


class TopicsApi:
    """Administration of topics and channels. The error words differ between the two, as in the original."""

    def __init__(self, broker: Broker, turn: Turn, changes: Changes) -> None:
        self._broker = broker
        self._turn = turn
        self._changes = changes

    # --- topics ---

    async def create_topic(self, request: Request) -> Response:
        name = request.require("topic")
        if not is_valid_name(name):
            raise ApiError(400, "INVALID_TOPIC")
        self._broker.topic(name, time.time_ns())
        return await self._saved()

    async def delete_topic(self, request: Request) -> Response:
        topic = self._existing_topic(request)
        self._close(self._broker.delete_topic(topic.name))
        return await self._saved()

    async def empty_topic(self, request: Request) -> Response:
        if not is_valid_name(request.require("topic")):
            raise ApiError(400, "INVALID_TOPIC")
        self._existing_topic(request).empty()
        return self._done()

    async def pause_topic(self, request: Request) -> Response:
        return await self._pause_topic(request, paused=True)

    async def unpause_topic(self, request: Request) -> Response:
        return await self._pause_topic(request, paused=False)

    async def _pause_topic(self, request: Request, *, paused: bool) -> Response:
        topic = self._existing_topic(request)
        topic.paused = paused
        self._broker.resume(topic)
        self._changes.paused(topic)
        return await self._saved()

    def _existing_topic(self, request: Request) -> Topic:
        topic = self._broker.topics.get(request.require("topic"))
        if topic is None:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return topic

    # --- channels ---

    async def create_channel(self, request: Request) -> Response:
        topic, name = self._topic_and_channel_name(request)
        self._broker.channel(topic, name)
        return await self._saved()

    async def delete_channel(self, request: Request) -> Response:
        topic, channel = self._existing_channel(request)
        self._close(self._broker.delete_channel(topic, channel.name))
        return await self._saved()

    async def empty_channel(self, request: Request) -> Response:
        topic, channel = self._existing_channel(request)
        channel.empty()
        topic.changed = True
        return self._done()

    async def pause_channel(self, request: Request) -> Response:
        return await self._pause_channel(request, paused=True)

    async def unpause_channel(self, request: Request) -> Response:
        return await self._pause_channel(request, paused=False)

    async def _pause_channel(self, request: Request, *, paused: bool) -> Response:
        topic, channel = self._existing_channel(request)
        channel.paused = paused
        self._broker.serve(channel)
        self._changes.paused(topic)
        return await self._saved()

    def _existing_channel(self, request: Request) -> tuple[Topic, Channel]:
        topic, name = self._topic_and_channel_name(request)
        channel = topic.channels.get(name)
        if channel is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        return topic, channel

    def _topic_and_channel_name(self, request: Request) -> tuple[Topic, str]:
        topic_name = request.require("topic")
        if not is_valid_name(topic_name):
            raise ApiError(400, "INVALID_ARG_TOPIC")
        channel_name = request.require("channel")
        if not is_valid_name(channel_name):
            raise ApiError(400, "INVALID_ARG_CHANNEL")
        topic = self._broker.topics.get(topic_name)
        if topic is None:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return topic, channel_name

    async def _saved(self) -> Response:
        """Done, and nsqd.dat says so: what was answered is not undone by a crash."""
        self._turn.ask()
        await self._changes.saved()
        return empty_reply()

    def _done(self) -> Response:
        self._turn.ask()
        return empty_reply()

    @staticmethod
    def _close(orphans: list[Consumer]) -> None:
        for consumer in orphans:
            consumer.sink.close()
