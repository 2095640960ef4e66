"""POST /dead_letters/send_back?topic=D: dead letters go back to the channel they came from, and to no other.

    &id=ID                      one of them
    &from=...&limit=N           some, from a place on, as with /messages
    &contains=...&json=...      those that a filter finds
    &dry_run=true               none: they are counted

Each dead letter is published again to its original topic, and only its channel must deliver it. Once that is
durable, it is finished in the dead-letter topic. A crash in between leaves the message in both, not in none.
"""

import time
from typing import Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.sending_back import DeadLetter, batch_of, finish, fitting, is_there
from nsqd.engine.topic import Refused, Topic
from nsqd.log.ids import ID_LENGTH
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.http.messages import topic_and_channel
from nsqd.server.http.openapi import refuse_unknown
from nsqd.server.messages.finding import Finder, Picked
from nsqd.server.messages.query import MessageQuery, parse_query, refused, truth
from nsqd.server.messages.shown import headers_and_body
from nsqd.server.write_batch import NotStored, WriteBatch

_DEFAULT_LIMIT: Final = "1000"


class DeadLettersApi:
    """See the module."""

    def __init__(self, broker: Broker, finder: Finder, write_batch: WriteBatch, log: Log) -> None:
        self._broker = broker
        self._finder = finder
        self._write_batch = write_batch
        self._log = log
        # Dead letters that are being sent back, so that no other request sends the same ones.
        self._moving: set[tuple[Topic, int]] = set()

    async def send_back(self, request: Request) -> Response:
        """Send back or count the dead letters that the request selects."""
        refuse_unknown(request, "POST", "/dead_letters/send_back")
        topic, _ = topic_and_channel(self._broker, request)
        dry = truth(request.query, "dry_run")
        query = self._query(request, topic)
        picked = await self._finder.pick(topic, None, query)
        letters = [
            DeadLetter(seq, *headers_and_body(block, seq))
            for seq, block in picked.messages
            # If the message with the id is gone, the next one is found, which must not be sent.
            if ("id" not in request.query or seq == query.position.number)
            and is_there(topic, seq)
            and (topic, seq) not in self._moving
        ]
        back, obstacles = self._sorted(letters)
        sent = 0 if dry else await self._send(topic, back)
        answer = {
            "topic": topic.name,
            "found": sum(map(len, back.values())),
            "sent": sent,
            "left": obstacles,
            "next": _next(topic, picked),
        }
        return json_reply(answer)

    def _query(self, request: Request, topic: Topic) -> MessageQuery:
        arguments = {key: text for key, text in request.query.items() if key in {"contains", "json"}}
        if "id" in request.query:
            message_id = request.query["id"]
            if len(message_id) != ID_LENGTH or self._broker.ids.decode(message_id.encode()) < 0:
                raise refused("ID", "that is no id of a message of this node")
            arguments |= {"from": f"id:{request.query['id']}", "limit": "1"}
        else:
            arguments["limit"] = request.query.get("limit", _DEFAULT_LIMIT)
            # Dead letters that were sent back earlier may still be stored before this position.
            arguments["from"] = request.query.get("from", str(topic.low_water()))
        return parse_query(arguments, "", self._broker.ids, time.time_ns())

    def _sorted(
        self, letters: list[DeadLetter]
    ) -> tuple[dict[tuple[str, str], list[DeadLetter]], dict[str, int]]:
        """The dead letters that can be sent back, by origin, and the number of others, by reason."""
        back: dict[tuple[str, str], list[DeadLetter]] = {}
        obstacles: dict[str, int] = {}
        for letter in letters:
            obstacle = self._obstacle(*letter.origin)
            if obstacle:
                obstacles[obstacle] = obstacles.get(obstacle, 0) + 1
            else:
                back.setdefault(letter.origin, []).append(letter)
        for (topic_name, _), found in back.items():
            count = fitting(self._broker.topics[topic_name], found)
            if count < len(found):
                full = f"topic {topic_name} is full"
                obstacles[full] = obstacles.get(full, 0) + len(found) - count
                del found[count:]
        return back, obstacles

    def _obstacle(self, topic_name: str, channel_name: str) -> str:
        if not (topic_name and channel_name):
            return "they do not say where they came from"
        origin = self._broker.topics.get(topic_name)
        if origin is None or channel_name not in origin.channels:
            return f"there is no channel {topic_name}/{channel_name}"
        if not origin.flowing:
            return f"topic {topic_name} is paused"
        return ""

    async def _send(self, topic: Topic, back: dict[tuple[str, str], list[DeadLetter]]) -> int:
        """Publish the dead letters to their origins, then finish them; returns how many. Raises ApiError."""
        if self._broker.draining:
            raise ApiError(503, "DRAINING")
        moving = {(topic, letter.seq) for letters in back.values() for letter in letters}
        self._moving |= moving
        self._broker.under_way += 1
        try:
            return await self._send_each(topic, back)
        finally:
            self._broker.under_way -= 1
            self._moving -= moving

    async def _send_each(self, topic: Topic, back: dict[tuple[str, str], list[DeadLetter]]) -> int:
        sent = 0
        for (topic_name, channel_name), picked in back.items():
            origin = self._broker.topics.get(topic_name)
            if origin is None or channel_name not in origin.channels or not origin.flowing or topic.deleted:
                continue  # it changed while earlier letters were stored
            # A consumer of the dead letters may have taken some of them since.
            letters = [letter for letter in picked if is_there(topic, letter.seq)]
            if not letters:
                continue
            try:
                origin.stage_for(channel_name, batch_of(letters), clock_ns())
                await self._write_batch.stored(origin, durable=True)
            except Refused as full:
                raise ApiError(429, f"{topic_name}: {full}; {sent} were sent back") from full
            except NotStored as error:
                raise ApiError(503, f"NOT_STORED: {error}; {sent} were sent back") from error
            finish(topic, [letter.seq for letter in letters])
            sent += len(letters)
            self._log.info(
                "TOPIC(%s): %d went back to channel %s of %s",
                topic.name,
                len(letters),
                channel_name,
                topic_name,
            )
        return sent


def _next(topic: Topic, picked: Picked) -> str | None:
    """The ``from`` of the next request; None when there are no more messages."""
    more = picked.position < topic.log.next_seq
    return str(picked.position) if more else None
