"""POST /message/*: finishing, requeueing, sending and cancelling one message of a channel, or those found.

    POST /message/finish?topic=T&channel=C&id=I      the message is finished, in whatever state it is
    POST /message/requeue?...[&defer=MS]             it waits again, behind waiting messages or after a delay
    POST /message/send?...                           a deferred message waits now
    POST /message/cancel?...                         a deferred message is finished

Instead of ``id`` a filter of `/messages` may select many. With ``dry_run`` they are only counted.
"""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.engine import handling
from nsqd.engine.backlog import MessageState
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.message_status import StateFilter
from nsqd.engine.topic import Topic
from nsqd.log.ids import ID_LENGTH
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.http.messages import topic_and_channel
from nsqd.server.http.openapi import refuse_unknown
from nsqd.server.http.topics import refuse_when_decommissioning
from nsqd.server.messages.finding import Finder, sequence_of
from nsqd.server.messages.query import MAX_LIMIT, MessageQuery, parse_query, refused, truth
from nsqd.server.write_batch import NotStored, WriteBatch

_MILLISECONDS: Final = re.compile(r"[0-9]{1,12}")
_NS_PER_MS: Final = 1_000_000

# An operation on messages of a channel; returns how many it affected.
MessageOperation = Callable[[Topic, Channel, list[int]], int]


class HandlingApi:
    """Applies an operator's requests to messages. A crash does not undo an answered request."""

    def __init__(self, broker: Broker, finder: Finder, write_batch: WriteBatch, log: Log) -> None:
        self._broker = broker
        self._finder = finder
        self._write_batch = write_batch
        self._log = log

    async def finish(self, request: Request) -> Response:
        """Finish messages; a consumer that has one in flight gets an error when it answers."""
        return await self._handle("finish", request, self._broker.finish_messages)

    async def requeue(self, request: Request) -> Response:
        """Requeue messages; a consumer that has one in flight loses it."""
        delay_ns = self._delay_ns(request, topic_and_channel(self._broker, request)[1])

        def operation(topic: Topic, channel: Channel, seqs: list[int]) -> int:
            return self._broker.requeue_messages(topic, channel, seqs, delay_ns, clock_ns())

        return await self._handle("requeue", request, operation)

    async def send(self, request: Request) -> Response:
        """Let deferred messages wait for delivery now."""

        def operation(topic: Topic, channel: Channel, seqs: list[int]) -> int:
            return self._broker.requeue_messages(topic, channel, seqs, 0, clock_ns())

        return await self._handle("send", request, operation, deferred=True)

    async def cancel(self, request: Request) -> Response:
        """Finish deferred messages, so that they are never delivered."""
        return await self._handle("cancel", request, self._broker.finish_messages, deferred=True)

    async def _handle(
        self, what: str, request: Request, deed: MessageOperation, *, deferred: bool = False
    ) -> Response:
        refuse_unknown(request, "POST", f"/message/{what}")
        topic, channel = topic_and_channel(self._broker, request)
        if channel is None:
            raise ApiError(400, "MISSING_ARG_CHANNEL")
        dry = truth(request.query, "dry_run")
        onward: int | None = None
        more = False
        message_id = request.query.get("id")
        if message_id is not None:
            seqs = [self._sequence(topic, message_id)]
        else:
            seqs, onward, more = await self._found(topic, channel, request, deferred=deferred)
            if channel.deleted:
                raise ApiError(404, "CHANNEL_NOT_FOUND")
        # Messages may have changed since they were found; from here to the deed they do not.
        meant = handling.deferred_of(channel, seqs) if deferred else handling.unfinished_of(channel, seqs)
        if message_id is not None and not meant:
            if deferred and handling.unfinished_of(channel, seqs):
                raise ApiError(409, "NOT_DEFERRED: the message waits or is in flight, and is not deferred")
            raise ApiError(409, "NOT_OWED: the channel does not deliver this message, or not yet")
        count = len(meant)
        if meant and not dry:
            refuse_when_decommissioning(self._broker)
            count = deed(topic, channel, meant)
            await self._durable(topic)
        answer = {"topic": topic.name, "channel": channel.name, "count": count, "dry_run": dry}
        return json_reply(answer | ({} if onward is None else {"next": str(onward), "more": more}))

    async def _found(
        self, topic: Topic, channel: Channel, request: Request, *, deferred: bool
    ) -> tuple[list[int], int, bool]:
        query = self._query(request, deferred=deferred)
        start, end = max(topic.log.log_start, sequence_of(topic, query.position)), topic.log.next_seq
        # Without a state all pending messages.
        sorting = StateFilter(channel, topic.backlog, query.state)
        found = await self._finder.find(topic, sorting, query.filter, start, end, limit=query.limit)
        return found.matches, found.position, found.position < end

    def _query(self, request: Request, *, deferred: bool) -> MessageQuery:
        arguments = dict(request.query)
        state = arguments.pop("state", "deferred" if deferred else "")
        if deferred and state != "deferred":
            raise refused("STATE", "only deferred messages can be sent or cancelled")
        if state == "finished":
            raise refused("STATE", "with finished messages there is nothing left to do")
        # Messages are handled in the order of the log, because a request can only continue in that order.
        arguments.setdefault("limit", str(MAX_LIMIT))
        arguments.setdefault("direction", "forward")
        query = parse_query(arguments, "", self._broker.ids, time.time_ns())
        if not query.forward:
            raise refused("DIRECTION", "messages are handled in the order of the log")
        if state:
            try:
                query = replace(query, state=MessageState(state))
            except ValueError:
                raise refused("STATE", "a state is waiting, deferred, in_flight or dead_lettering") from None
        if not query.filters and not truth(arguments, "all"):
            raise ApiError(400, "MISSING_ARG_ID: name an id, or a filter: state, contains, json, or all=true")
        return query

    def _sequence(self, topic: Topic, message_id: str) -> int:
        seq = self._broker.ids.decode(message_id.encode()) if len(message_id) == ID_LENGTH else -1
        if seq < 0:
            raise refused("ID", "that is no id of a message of this node")
        if not topic.log.log_start <= seq < topic.log.next_seq:
            raise ApiError(404, "MESSAGE_NOT_FOUND")
        return seq

    def _delay_ns(self, request: Request, channel: Channel | None) -> int:
        text = request.query.get("defer", "0")
        most_ns = channel.settings.max_defer_ns if channel is not None else 0
        most_ns = most_ns or self._broker.limits.max_req_timeout_ns
        if not _MILLISECONDS.fullmatch(text) or int(text) * _NS_PER_MS > most_ns:
            raise refused("DEFER", f"defer is a number of milliseconds up to {most_ns // _NS_PER_MS}")
        return int(text) * _NS_PER_MS

    async def _durable(self, topic: Topic) -> None:
        try:
            await self._write_batch.note_stored(topic, durable=True)
        except NotStored as error:
            self._log.error("what was done to messages is not on the disk yet - %s", error)
            raise ApiError(503, "NOT_STORED") from error
