"""One action on many topics or channels: its effects, the confirmation, and a summary by node."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from nsqadmin.changes.actions import Done, QueueAction
from nsqadmin.changes.desk import Desk
from nsqadmin.changes.messages import MessageActions
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.messages import BadSearchError, MessageReader
from nsqadmin.figures.present import plural
from nsqadmin.figures.sums import ChannelSum
from nsqadmin.pages.bulk_effects import (
    WORDS,
    BulkItem,
    channels_effects,
    seeks_effects,
    summary,
    topics_effects,
)
from nsqadmin.pages.effects import silent_effects
from nsqadmin.pages.forms import MANY_MESSAGES
from nsqadmin.pages.render import PageNote, Renderer
from nsqadmin.pages.replies import Replies
from nsqcore.http.api import ApiError, Request, Response
from nsqcore.http.router import Route

_FORM_LIMIT: Final = 65536
# As many as a list shows; and how many are worked on at a time.
MOST_PICKED: Final = 50
_AT_ONCE: Final = 4
_MOST_WARNINGS: Final = 8

Given = Mapping[str, Sequence[str]]


class Bulk:
    """``POST /bulk``: without ``confirmed`` it asks for confirmation, with it it acts."""

    def __init__(self, cluster: Cluster, desk: Desk, replies: Replies, render: Renderer) -> None:
        self._cluster = cluster
        self._desk = desk
        self._replies = replies
        self._render = render
        self._reader = MessageReader(cluster)
        self._messages = MessageActions(cluster)

    def routes(self) -> list[Route]:
        return [Route("POST", "/bulk", self._replies.explaining(self.act))]

    async def act(self, request: Request) -> Response:
        body = (await request.read(_FORM_LIMIT)).decode("utf-8", "replace")
        given = parse_qs(body, keep_blank_values=True)
        action = _one(given, "action")
        if action not in WORDS:
            raise UnknownError("ACTION_NOT_FOUND")
        picked = self._picked(given, action)
        for topic in {one.topic for one in picked}:
            self._desk.check(request, action, topic)
        if not picked or len(picked) > MOST_PICKED:
            if "text/html" not in request.headers.get("Accept", ""):
                raise ApiError(400, "INVALID_SELECTION")
            problem = f"Select at least one row and at most {MOST_PICKED}."
            return self._render.page(
                request,
                "problem.html",
                status=400,
                problem=problem,
                retries=False,
                topic="",
                channel="",
                node="",
            )
        to = _one(given, "to").strip()
        confirmed = bool(_one(given, "confirmed"))
        problem = ""
        if confirmed and self._is_typed(action, picked) and _one(given, "typed").strip() != str(len(picked)):
            problem = f"Type {len(picked)} to confirm."
        elif confirmed and action == "seek" and (not to or to != _one(given, "shown")):
            # Only a seek whose effects were shown is carried out.
            confirmed = False
        if not confirmed or problem:
            return await self._ask(request, action, picked, to, problem)
        return await self._do(request, action, picked, to)

    def _is_typed(self, action: str, picked: Sequence[BulkItem]) -> bool:
        """Tell whether the number of what is picked must be typed to confirm the action."""
        if action != "empty":
            return action == "delete"
        return sum(self._cluster.messages_in(one.topic, one.channel) for one in picked) > MANY_MESSAGES

    def _picked(self, given: Given, action: str) -> list[BulkItem]:
        """Read the selection; for a seek a topic stands for all its channels."""
        found = [BulkItem(topic) for topic in given.get("topic", ())]
        if action == "seek":
            sums = [self._cluster.topic_sum(one.topic) for one in found]
            found = [
                BulkItem(one.name, channel.channel_name)
                for one in sums
                if one is not None
                for channel in one.channels
            ]
        for text in given.get("channel", ()):
            topic, _, channel = text.partition("/")
            if topic and channel:
                found.append(BulkItem(topic, channel))
        return list(dict.fromkeys(found))

    # -- asking -------------------------------------------------------------------------

    async def _ask(
        self, request: Request, action: str, picked: Sequence[BulkItem], to: str, problem: str
    ) -> Response:
        effects: list[str] = []
        if action == "seek":
            if to:
                try:
                    effects = await self._seek_effects(picked, to)
                except BadSearchError as error:
                    problem = f"{error}."
        elif picked[0].channel:
            effects = channels_effects(action, [one for one in map(self._channel_sum, picked) if one])
        else:
            sums = [self._cluster.topic_sum(one.topic) for one in picked]
            effects = topics_effects(action, [one for one in sums if one is not None])
        topics = {one.topic for one in picked}
        silent = sorted({node for topic in topics for node in self._cluster.queues.silent_holders(topic)})
        if silent and (effects or action != "seek"):
            effects += silent_effects(silent)
        return self._render.page(
            request,
            "bulk.html",
            status=422 if problem else 200,
            action=action,
            verb=WORDS[action][0],
            what=plural(len(picked), picked[0].kind),
            picked=picked,
            effects=effects,
            problem=problem,
            typed=self._is_typed(action, picked),
            to=to,
            back=self._back(picked),
        )

    def _channel_sum(self, picked: BulkItem) -> ChannelSum | None:
        topic = self._cluster.topic_sum(picked.topic)
        channels = topic.channels if topic is not None else ()
        return next((one for one in channels if one.channel_name == picked.channel), None)

    async def _seek_effects(self, picked: Sequence[BulkItem], to: str) -> list[str]:
        """Describe how much lies behind the place *to*. Raises BadSearchError if no node understands it."""
        gate = asyncio.Semaphore(_AT_ONCE)
        failed: list[str] = []
        owed: dict[str, int] = {}

        async def look(place: BulkItem) -> None:
            async with gate:
                try:
                    found = await self._reader.seek_preview(place.topic, place.channel, to)
                except UnknownError:
                    failed.append(f"{place.name} is not there any more.")
                    return
                except UpstreamError as error:
                    failed.extend(f"{place.name}: {one}." for one in self._replies.sentences(error.errors))
                    return
            for one in found.value:
                owed[one.node] = owed.get(one.node, 0) + one.owed

        await asyncio.gather(*map(look, picked))
        sums = [one for one in map(self._channel_sum, picked) if one is not None]
        now = sum(one.depth + one.in_flight_count + one.deferred_count for one in sums)
        return [*seeks_effects(now, owed), *failed[:_MOST_WARNINGS]]

    # -- doing it -----------------------------------------------------------------------

    async def _do(self, request: Request, action: str, picked: Sequence[BulkItem], to: str) -> Response:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(place: BulkItem) -> Done | str:
            async with gate:
                try:
                    return await self._to_one(request, action, place, to)
                except UnknownError:
                    return f"{place.name} is not there any more"
                except (UpstreamError, BadSearchError) as error:
                    errors = error.errors if isinstance(error, UpstreamError) else ()
                    return f"{place.name}: {'; '.join(self._replies.sentences(errors)) or error}"

        results = await asyncio.gather(*map(one, picked))
        done = [result for result in results if not isinstance(result, str)]
        kind = picked[0].kind
        details, by_node = summary(done, kind)
        warnings = [result for result in results if isinstance(result, str)][:_MOST_WARNINGS] + by_node
        # Where every nsqd refused, nothing was done, though nsqlookupd may have done its part.
        count = sum(one.is_done for one in done)
        were = "was" if count == 1 else "were"
        to_place = f" to {to}" if action == "seek" else ""
        text = f"{plural(count, kind)} of {len(picked)} {were} {WORDS[action][1]}{to_place}."
        return self._render.redirect(self._back(picked), PageNote(text, tuple(warnings), tuple(details)))

    async def _to_one(self, request: Request, action: str, place: BulkItem, to: str) -> Done:
        topic, channel = place.topic, place.channel
        if action == "seek":
            work = self._messages.seek(topic, channel, to, "")
            return await self._desk.carry_out(request, ["seek_channel"], topic, work, channel)
        if action == "delete":
            return await self._desk.delete(request, topic, channel)
        return await self._desk.change(request, topic, channel, QueueAction(action))

    def _back(self, picked: Sequence[BulkItem]) -> str:
        """Return the address of the list from which the selection was made."""
        urls = self._render.urls
        topics = {one.topic for one in picked}
        if picked[0].channel and len(topics) == 1:
            return urls.topic(picked[0].topic)
        return urls.page("topics")


def _one(given: Given, name: str) -> str:
    return next(iter(given.get(name, ())), "")
