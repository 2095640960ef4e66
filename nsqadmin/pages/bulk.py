"""One action for many topics: what it would hit, the confirmation, and one summary by node."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

from nsqadmin.changes.actions import Done, QueueAction
from nsqadmin.changes.desk import Desk
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.figures.present import plural
from nsqadmin.pages.render import PageNote, Renderer
from nsqadmin.pages.replies import Replies
from nsqcore.http.api import ApiError, Request, Response
from nsqcore.http.router import Route

_FORM_LIMIT: Final = 65536
# As many as a list shows; what is worked on at a time.
MOST_TOPICS: Final = 50
_AT_ONCE: Final = 4
# As many names as are read in a note.
_MOST_NAMES: Final = 8

_WORDS: Final = {
    "pause": ("Pause", "paused"),
    "unpause": ("Resume", "resumed"),
    "empty": ("Empty", "emptied"),
    "delete": ("Delete", "deleted"),
}


class Bulk:
    """``POST /bulk``: without ``confirmed`` it asks, with it it does."""

    def __init__(self, cluster: Cluster, desk: Desk, replies: Replies, render: Renderer) -> None:
        self._cluster = cluster
        self._desk = desk
        self._replies = replies
        self._render = render

    def routes(self) -> list[Route]:
        return [Route("POST", "/bulk", self._replies.explaining(self.act))]

    async def act(self, request: Request) -> Response:
        body = (await request.read(_FORM_LIMIT)).decode("utf-8", "replace")
        given = parse_qs(body, keep_blank_values=True)
        action = given.get("action", [""])[0]
        topics = list(dict.fromkeys(given.get("topic", [])))
        if action not in _WORDS:
            raise UnknownError("ACTION_NOT_FOUND")
        for topic in topics:
            self._desk.check(request, action, topic)
        if not topics or len(topics) > MOST_TOPICS:
            raise ApiError(400, "INVALID_SELECTION")
        wanted = f"{len(topics)}"
        confirmed = given.get("confirmed", [""])[0]
        typed = given.get("typed", [""])[0].strip()
        if not confirmed or (action == "delete" and typed != wanted):
            problem = f"Nothing was done: type {wanted} to confirm." if confirmed else ""
            return self._ask(request, action, topics, problem)
        return await self._do(request, action, topics)

    def _ask(self, request: Request, action: str, topics: Sequence[str], problem: str) -> Response:
        found = [self._cluster.topic_sum(topic) for topic in topics]
        owed = sum(one.depth + one.in_flight + one.deferred for one in found if one is not None)
        own = sum(one.own_depth for one in found if one is not None)
        consumers = sum(one.consumers for one in found if one is not None)
        effects = {
            "pause": ["Messages stay in these topics; channels get no new ones until they are resumed."],
            "unpause": [f"What waits in these topics ({plural(own, 'message')}) goes on to their channels."],
            "empty": [f"What waits in the topics themselves ({plural(own, 'message')}) is thrown away."],
            "delete": [
                f"What is not finished yet ({plural(owed, 'message')}) is thrown away, with all channels.",
                f"Connections that close: {plural(consumers, 'consumer')}.",
            ],
        }[action]
        silent = sorted({node for topic in topics for node in self._cluster.silent_holders(topic)})
        if silent:
            effects.append(f"These do not answer, and keep what they hold: {', '.join(silent)}.")
        return self._render.page(
            request,
            "bulk.html",
            status=422 if problem else 200,
            action=action,
            verb=_WORDS[action][0],
            topics=topics,
            effects=effects,
            problem=problem,
        )

    async def _do(self, request: Request, action: str, topics: Sequence[str]) -> Response:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(topic: str) -> Done | str:
            async with gate:
                try:
                    if action == "delete":
                        return await self._desk.delete(request, topic, "")
                    return await self._desk.change(request, topic, "", QueueAction(action))
                except UnknownError:
                    return f"{topic} is not there any more"
                except UpstreamError as error:
                    return f"{topic}: {'; '.join(self._replies.sentences(error.errors))}"

        results = await asyncio.gather(*(one(topic) for topic in topics))
        done = [result for result in results if not isinstance(result, str)]
        # What went wrong is told by node: one that is down is down for all topics.
        failed = Counter(
            f"{node}: {word}" for result in done for node, word in result.results if word != "done"
        )
        silent = Counter(node for result in done for node in result.silent)
        warnings = [result for result in results if isinstance(result, str)][:_MOST_NAMES]
        warnings += [
            f"{text} ({plural(number, 'topic')})" for text, number in failed.most_common(_MOST_NAMES)
        ]
        warnings += [
            f"{node} does not answer and keeps what it holds of {plural(number, 'topic')}"
            for node, number in silent.most_common(_MOST_NAMES)
        ]
        were = "was" if len(done) == 1 else "were"
        text = f"{plural(len(done), 'topic')} of {len(topics)} {were} {_WORDS[action][1]}."
        return self._render.redirect(self._render.urls.page("topics"), PageNote(text, tuple(warnings)))
