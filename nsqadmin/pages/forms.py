"""Changes made from the pages: the effects of an action, the confirmation, and the result."""

from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from nsqadmin.changes.actions import DRAIN_GRACE_MS, Done, QueueAction
from nsqadmin.changes.alerts import Alerts, place_of
from nsqadmin.changes.desk import Desk
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.known import NODE_NOT_FOUND
from nsqadmin.figures.present import plural
from nsqadmin.pages.effects import channel_effects, silent_effects, tombstone_effects, topic_effects
from nsqadmin.pages.render import PageNote, Renderer
from nsqadmin.pages.replies import Replies
from nsqclient.wire.names import is_valid_name
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND
from nsqcore.http.api import ApiError, Request, Response
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

_FORM_LIMIT: Final = 65536

_WORDS: Final = {
    "pause": ("Pause", "paused"),
    "unpause": ("Resume", "resumed"),
    "empty": ("Empty", "emptied"),
    "delete": ("Delete", "deleted"),
    "tombstone": ("Tombstone", "tombstoned"),
    "dismiss": ("Remove", "removed"),
    "mute": ("Mute", "muted"),
    "unmute": ("Unmute", "unmuted"),
    "drain": ("Drain", "draining"),
    "undrain": ("Resume publishing", "resumed"),
}
_DISMISS_EFFECTS: Final = [
    "The node is no longer shown as down. Nothing in the cluster changes.",
    "If it comes back it is shown as before, with the messages on its disk.",
]
_MUTE_EFFECTS: Final = {
    "mute": ["No alerts for 1 hour. It stays on the pages."],
    "unmute": ["Alerts are sent again."],
}
_DRAIN_EFFECTS: Final = {
    "drain": [
        f"The node accepts publishes for {DRAIN_GRACE_MS // 1000} s while producers move to other nodes.",
        "Then the node refuses publishes, and consumers empty it.",
        "It stays in the cluster. Resume publishing with one click, or by a restart.",
    ],
    "undrain": ["The node accepts publishes again."],
}
# For actions that cannot be undone the name must be typed; to empty a queue, only if it is large.
_TYPED: Final = frozenset({"delete", "tombstone"})
MANY_MESSAGES: Final = 10_000
# The field that an action needs instead of a topic.
_NEEDS: Final = {"dismiss": "node", "drain": "node", "undrain": "node", "mute": "key", "unmute": "key"}

Fields = dict[str, str]


class Forms:
    """``/action``: GET explains and asks, POST acts and redirects to the page that shows the result."""

    def __init__(
        self, cluster: Cluster, desk: Desk, alerts: Alerts, replies: Replies, render: Renderer, log: Log
    ) -> None:
        self._alerts = alerts
        self._cluster = cluster
        self._desk = desk
        self._replies = replies
        self._render = render
        self._log = log

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/action", self._replies.explaining(self.ask), logged=False),
            Route("POST", "/action", self._replies.explaining(self.act)),
        ]

    async def ask(self, request: Request) -> Response:
        return await self._confirmation(request, _fields(request.query))

    async def act(self, request: Request) -> Response:
        body = (await request.read(_FORM_LIMIT)).decode("utf-8", "replace")
        fields = _fields({key: values[0] for key, values in parse_qs(body, keep_blank_values=True).items()})
        try:
            self._desk.check(request, fields["action"], fields["topic"])
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return await self._refused(request, fields, "You may not do this.", 403)
        if fields["action"] == "create":
            return await self._create(request, fields)
        if fields["action"] not in _WORDS:
            raise UnknownError("ACTION_NOT_FOUND")
        if fields["action"] == "dismiss":
            return self._dismiss(request, fields["node"])
        if fields["action"] not in _DRAIN_EFFECTS and not (fields["topic"] or fields["key"]):
            raise UnknownError("ACTION_NOT_FOUND")
        if fields["action"] in _MUTE_EFFECTS:
            return self._mute(request, fields)
        subject = fields["channel"] or fields["topic"]
        if self._is_typed(fields) and fields["typed"] != subject:
            return await self._refused(request, fields, f"Type {subject} to confirm.", 422)
        try:
            done = await self._carry_out(request, fields)
        except UpstreamError as error:
            self._log.error("%s", error)
            sentences = "; ".join(self._replies.sentences(error.errors))
            return await self._refused(request, fields, f"{_verdict(error)}: {sentences}.", 502)
        if done.message:
            self._log.warning("%s", done.message.removeprefix("WARNING: "))
        return self._render.redirect(self._result_page(fields), self._note(fields, done))

    def _dismiss(self, request: Request, node: str) -> Response:
        """Stop showing that *node* left; nothing in the cluster changes."""
        if not self._cluster.dismiss(node):
            raise UnknownError(NODE_NOT_FOUND)
        self._desk.note(request, f"removed nsqd {node} from the pages", "dismiss", node=node)
        note = PageNote(f"nsqd {node} was removed from the pages. It is shown again if it comes back.")
        return self._render.redirect(self._render.urls.index, note)

    def _mute(self, request: Request, fields: Fields) -> Response:
        """Mute a trouble for an hour, or unmute it."""
        key, action = fields["key"], fields["action"]
        if not key:
            raise UnknownError("TROUBLE_NOT_FOUND")
        if action == "mute":
            self._alerts.mute(key, instant())
        else:
            self._alerts.unmute(key)
        place = {name: fields[name] for name in ("topic", "channel", "node")}
        self._desk.note(request, f"{action} {key}", action, **place)
        note = PageNote("Muted for 1 hour." if action == "mute" else "Alerts are sent again.")
        return self._render.redirect(self._render.urls.index, note)

    async def _carry_out(self, request: Request, fields: Fields) -> Done:
        topic, channel = fields["topic"], fields["channel"]
        if fields["action"] in _DRAIN_EFFECTS:
            return await self._desk.drain(request, fields["node"], cancel=fields["action"] == "undrain")
        if fields["action"] == "tombstone":
            return await self._desk.tombstone(request, topic, fields["node"])
        if fields["action"] == "delete":
            return await self._desk.delete(request, topic, channel)
        return await self._desk.change(request, topic, channel, QueueAction(fields["action"]))

    async def _create(self, request: Request, fields: Fields) -> Response:
        topic, channel = fields["topic"].strip(), fields["channel"].strip()
        wrong = ""
        if not is_valid_name(topic):
            wrong = f"{topic or 'An empty name'} is not a valid topic name."
        elif channel and not is_valid_name(channel):
            wrong = f"{channel} is not a valid channel name."
        if wrong:
            return self._render.page(request, "create.html", status=422, problem=wrong, fields=fields)
        try:
            done = await self._desk.create(request, topic, channel)
        except UpstreamError as error:
            self._log.error("%s", error)
            sentences = "; ".join(self._replies.sentences(error.errors))
            return self._render.page(
                request, "create.html", status=502, problem=f"{_verdict(error)}: {sentences}.", fields=fields
            )
        what = f"Channel {channel} of topic {topic}" if channel else f"Topic {topic}"
        note = PageNote(f"{what} was created.", tuple(self._replies.sentences(done.errors)))
        return self._render.redirect(self._render.urls.page("lookup"), note)

    # -- the confirmation --------------------------------------------------------------

    async def _confirmation(
        self, request: Request, fields: Fields, *, problem: str = "", status: int = 200
    ) -> Response:
        action = fields["action"]
        needs = _NEEDS.get(action, "topic")
        if action not in _WORDS or not fields[needs]:
            raise UnknownError("ACTION_NOT_FOUND")
        own = _DISMISS_EFFECTS if action == "dismiss" else _MUTE_EFFECTS.get(action)
        if action in _DRAIN_EFFECTS:
            own = [*_DRAIN_EFFECTS[action], *await self._drain_effects(action, fields["node"])]
        verb = _WORDS[fields["action"]][0]
        return self._render.page(
            request,
            "confirm.html",
            status=status,
            fields=fields,
            verb=verb,
            typed=self._is_typed(fields),
            subject=fields["channel"] or fields["topic"] or fields["node"],
            effects=own if own is not None else await self._effects(fields),
            problem=problem,
            back=self._origin(fields),
        )

    def _is_typed(self, fields: Fields) -> bool:
        """Tell whether the name must be typed to confirm the action."""
        if fields["action"] != "empty":
            return fields["action"] in _TYPED
        return self._cluster.messages_in(fields["topic"], fields["channel"]) > MANY_MESSAGES

    async def _refused(self, request: Request, fields: Fields, problem: str, status: int) -> Response:
        return await self._confirmation(request, fields, problem=problem, status=status)

    async def _effects(self, fields: Fields) -> list[str]:
        """Describe the present effects of the action, one sentence each."""
        action, topic, channel = fields["action"], fields["topic"], fields["channel"]
        try:
            total = (await self._cluster.queues.topic_now(topic)).value.total
            if action == "tombstone":
                held = [record for record in total.nodes if record.node == fields["node"]]
                return tombstone_effects(fields["node"], held)
            silent = silent_effects(self._cluster.queues.silent_holders(topic))
            if channel:
                found = [one for one in total.channels if one.channel_name == channel]
                if not found and not silent:
                    raise UnknownError(CHANNEL_NOT_FOUND)
                return [*(channel_effects(action, found[0]) if found else ()), *silent]
            return [*topic_effects(action, total), *silent]
        except UpstreamError as error:
            reasons = "; ".join(self._replies.sentences(error.errors))
            return [f"What it would change is not known: {reasons}."]
        except UnknownError:
            return ["No nsqd holds it now; only its registration is concerned."]

    async def _drain_effects(self, action: str, node: str) -> list[str]:
        """Describe what the node holds, and which channels have no consumers there."""
        view = (await self._cluster.node_view(node)).value
        look = view.look
        if action != "drain" or look is None:
            return []
        load = look.load
        unread = [
            (topic.topic_name, channel)
            for topic in look.topics.values()
            for channel in topic.channels
            if channel.owed and not channel.client_count
        ]
        held = [f"It owes {plural(load.owed, 'message')} to {plural(load.consumers, 'consumer')}."]
        if unread:
            names = ", ".join(f"{topic}/{channel.channel_name}" for topic, channel in unread[:8])
            more = f" and {len(unread) - 8} more" if len(unread) > 8 else ""
            owed = sum(channel.owed for _, channel in unread)
            held.append(f"No consumers there for {names}{more}: {plural(owed, 'message')} stay.")
        return held

    # -- where it ends -------------------------------------------------------------------

    def _origin(self, fields: Fields) -> str:
        urls = self._render.urls
        if fields["action"] == "dismiss" or fields["key"]:
            return urls.index
        if fields["back"] == "lookup":
            return urls.page("lookup")
        if fields["node"]:
            return urls.node(fields["node"])
        if fields["channel"]:
            return urls.channel(fields["topic"], fields["channel"])
        return urls.topic(fields["topic"])

    def _result_page(self, fields: Fields) -> str:
        urls = self._render.urls
        if fields["action"] != "delete" or fields["back"] == "lookup":
            return self._origin(fields)
        return urls.topic(fields["topic"]) if fields["channel"] else urls.index

    def _note(self, fields: Fields, done: Done) -> PageNote:
        topic, channel = fields["topic"], fields["channel"]
        what = f"Channel {channel} of topic {topic}" if channel else f"Topic {topic}"
        if fields["action"] in _DRAIN_EFFECTS:
            done_words = {"drain": "Draining started", "undrain": "Publishing resumed"}[fields["action"]]
            return PageNote(f"{done_words} on nsqd {fields['node']}.")
        text = f"{what} was {_WORDS[fields['action']][1]} on {plural(done.nsqds, 'nsqd')}"
        if done.lookupds:
            text += f" and {plural(done.lookupds, 'nsqlookupd')}"
        if fields["action"] == "tombstone":
            node = fields["node"]
            text = f"Topic {topic} was deleted on {node}; consumers are not sent there for a while"
            if not done.nsqds:
                text = (
                    f"Consumers of topic {topic} are not sent to {node} for a while; it was not deleted there"
                )
        warnings = [*self._replies.sentences(done.errors)]
        named = {error.address for error in done.errors}
        warnings += [
            f"nsqd {node} was not reached: nothing changed there" for node in done.silent if node not in named
        ]
        return PageNote(f"{text}.", tuple(warnings))


def _verdict(error: UpstreamError) -> str:
    """Say whether a change that no node confirmed failed, or may still happen."""
    return "Not confirmed" if any(one.may_happen for one in error.errors) else "It failed"


def _fields(given: dict[str, str]) -> Fields:
    fields = {
        key: given.get(key, "") for key in ("action", "topic", "channel", "node", "typed", "back", "key")
    }
    if _NEEDS.get(fields["action"]) == "key":
        # What the trouble is about decides who may mute it, whatever the form says beside it.
        fields["topic"], fields["channel"], fields["node"] = place_of(fields["key"])
    return fields
