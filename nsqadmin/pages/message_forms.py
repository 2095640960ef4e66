"""Actions on messages: explained with the number of messages, confirmed, carried out and reported."""

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from nsqadmin.changes.desk import Desk
from nsqadmin.changes.messages import Handled, MessageActions, Which
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.messages import BadSearchError, MessageReader
from nsqadmin.figures.present import plural
from nsqadmin.pages.message_effects import done_note, handled_effects, seek_effects
from nsqadmin.pages.messages import refuse_embedding, search_of
from nsqadmin.pages.render import PageNote, Renderer
from nsqadmin.pages.replies import Replies
from nsqclient.wire.durations import MILLISECOND, parse_duration
from nsqcore.http.api import ApiError, Request, Response
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

# Enough for a test message; larger ones are published by programs.
_FORM_LIMIT: Final = 1 << 20
# The word on the button of each action.
_WORDS: Final = {
    "finish": "Finish",
    "requeue": "Requeue",
    "send": "Send now",
    "cancel": "Cancel",
    "send_back": "Send back",
    "seek": "Seek",
    "publish": "Publish",
}
_HANDLING: Final = frozenset({"finish", "requeue", "send", "cancel"})
_FIELDS: Final = (
    "act",
    "topic",
    "channel",
    "state",
    "order",
    "start",
    "contains",
    "json",
    "node",
    "id",
    "defer",
    "to",
    "body",
    "headers",
)

Fields = dict[str, str]


class MessageForms:
    """``/messages/act``: GET explains and asks, POST acts and redirects to the list."""

    def __init__(self, cluster: Cluster, desk: Desk, replies: Replies, render: Renderer, log: Log) -> None:
        self._cluster = cluster
        self._actions = MessageActions(cluster)
        self._reader = MessageReader(cluster)
        self._desk = desk
        self._replies = replies
        self._render = render
        self._log = log

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/messages/act", self._replies.explaining(self.ask), logged=False),
            Route("POST", "/messages/act", self._replies.explaining(self.act)),
        ]

    async def ask(self, request: Request) -> Response:
        refuse_embedding(request)
        fields = _fields(request.query)
        self._check(request, fields)
        return await self._question(request, fields)

    async def act(self, request: Request) -> Response:
        body = (await request.read(_FORM_LIMIT)).decode("utf-8", "replace")
        fields = _fields({key: values[0] for key, values in parse_qs(body, keep_blank_values=True).items()})
        self._check(request, fields)
        try:
            note = await self._do(request, fields)
        except (BadSearchError, ValueError) as error:
            return await self._question(request, fields, f"Nothing was done: {error}.", 422)
        except UpstreamError as error:
            self._log.error("%s", error)
            sentences = "; ".join(self._replies.sentences(error.errors))
            return await self._question(request, fields, f"It failed: {sentences}.", 502)
        return self._render.redirect(self._back(fields), note)

    def _check(self, request: Request, fields: Fields) -> None:
        act = fields["act"]
        if act not in _WORDS:
            raise UnknownError("ACTION_NOT_FOUND")
        search_of(fields)
        needs = "handle" if act in _HANDLING else act
        if request.method == "POST":
            self._desk.check(request, needs, fields["topic"])
        elif not self._desk.may(request, needs, fields["topic"]):
            raise ApiError(HTTPStatus.FORBIDDEN, "FORBIDDEN")
        if (act in _HANDLING or act == "seek") and not fields["channel"]:
            raise UnknownError("CHANNEL_NOT_FOUND")

    # -- doing it -----------------------------------------------------------------------

    async def _do(self, request: Request, fields: Fields) -> PageNote:
        act, topic, channel = fields["act"], fields["topic"], fields["channel"]
        if act == "publish":
            return await self._publish(request, fields)
        if act == "seek":
            if not fields["to"]:
                raise BadSearchError("say where to set the channel to")
            # A place that no node understands is refused before anything is changed.
            await self._reader.seek_preview(topic, channel, fields["to"], fields["node"])
            work = self._actions.seek(topic, channel, fields["to"], fields["node"])
        elif act == "send_back":
            work = self._actions.send_back(_which(fields), dry=False)
        else:
            work = self._actions.handle(act, _which(fields), dry=False)
        words = [{"send_back": "send_back_dead_letters", "seek": "seek_channel"}.get(act, f"{act}_messages")]
        done = await self._desk.carry_out(request, words, topic, work, channel, node=fields["node"])
        text, warnings = done_note(act, topic, channel, done)
        return PageNote(text, (*self._replies.sentences(done.errors), *warnings))

    async def _publish(self, request: Request, fields: Fields) -> PageNote:
        topic, node = fields["topic"], fields["node"]
        # Browsers end the lines of a form with CR LF.
        content = fields["body"].replace("\r\n", "\n").encode()
        if not content:
            raise BadSearchError("a message needs a body")
        work = self._actions.publish(topic, node, content, _headers(fields["headers"]), _milliseconds(fields))
        await self._desk.carry_out(request, ["publish_message"], topic, work, node=node)
        return PageNote(f"A message of {plural(len(content), 'byte')} was published to {topic} on {node}.")

    # -- asking ---------------------------------------------------------------------------

    async def _question(
        self, request: Request, fields: Fields, problem: str = "", status: int = 200
    ) -> Response:
        act = fields["act"]
        effects: list[str] = []
        try:
            effects = await self._effects(fields)
        except (BadSearchError, ValueError) as error:
            problem = problem or f"{error}."
        except UpstreamError as error:
            effects = [
                f"What it would change is not known: {'; '.join(self._replies.sentences(error.errors))}."
            ]
        nodes = await self._nodes(fields["topic"]) if act in {"publish", "seek"} else []
        return self._render.page(
            request,
            "message_act.html",
            status=status,
            at_s=time.time(),
            fields=fields,
            verb=_WORDS[act],
            effects=effects,
            problem=problem,
            nodes=nodes,
            back=self._back(fields),
        )

    async def _effects(self, fields: Fields) -> list[str]:
        act = fields["act"]
        if act == "publish":
            return []
        if act == "seek":
            if not fields["to"]:
                return []
            previews = await self._reader.seek_preview(
                fields["topic"], fields["channel"], fields["to"], fields["node"]
            )
            total = (await self._cluster.queues.topic_view(fields["topic"], 0.0)).value.total
            channels = [one for one in total.channels if one.channel_name == fields["channel"]]
            owed = {node.node: node.owed for one in channels for node in one.nodes}
            return seek_effects(previews.value, owed, self._replies.sentences(previews.errors))
        which = _which(fields)
        dry: Handled = await (
            self._actions.send_back(which, dry=True)
            if act == "send_back"
            else self._actions.handle(act, which, dry=True)
        )
        return handled_effects(act, dry, one=bool(fields["id"]))

    async def _nodes(self, topic: str) -> list[str]:
        """Return the nodes on which the message can be published: holders of the topic first."""
        try:
            holders = (await self._reader.holders(topic)).value
        except UnknownError:
            holders = []
        views = (await self._cluster.overview()).value.nodes
        takes = [view.address for view in views if view.answers and view.remaining is None]
        return [one for one in takes if one in holders] + [one for one in takes if one not in holders]

    def _back(self, fields: Fields) -> str:
        kept = ("topic", "channel", "state", "order", "start", "contains", "json")
        query = {key: fields[key] for key in kept if fields[key]}
        if not fields["id"] and fields["node"] and fields["act"] not in {"publish", "seek"}:
            query["node"] = fields["node"]
        return self._render.urls.page("messages", **query)


def _fields(given: Mapping[str, str]) -> Fields:
    return {key: given.get(key, "") for key in _FIELDS}


def _which(fields: Fields) -> Which:
    """Read which messages are meant. Raises BadSearchError if they are a list that nodes cannot pick."""
    search = search_of(fields)
    if not (fields["id"] or search.can_be_done_to_all):
        way_out = "leave From empty" if search.by_due_time else "list the oldest first, or leave From empty"
        raise BadSearchError(f"a list with From cannot be taken whole: {way_out}")
    defer_ms = _milliseconds(fields) if fields["act"] == "requeue" else 0
    return Which(search, fields["id"], defer_ms)


def _milliseconds(fields: Fields) -> int:
    """Read the delay of a message in milliseconds. Raises ValueError with a sentence if it is none."""
    text = fields["defer"].strip()
    if not text:
        return 0
    try:
        found = parse_duration(text) // MILLISECOND
    except ValueError:
        raise ValueError(f"{text} is no time such as 90s or 1h30m") from None
    if found < 0:
        raise ValueError("a message cannot be put off into the past")
    return found


def _headers(text: str) -> dict[str, str]:
    """Read lines ``name: value``. Raises ValueError with a sentence if a line is none."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{line[:60]} is no header: write NAME: VALUE")
        found[name.strip()] = value.strip()
    return found
