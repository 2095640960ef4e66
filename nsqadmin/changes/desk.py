"""Where changes by admins arrive, from the JSON API and from the pages: rights, deed, notification."""

import base64
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from nsqadmin.access.rights import Rights, is_secure
from nsqadmin.access.roles import Role
from nsqadmin.changes.actions import Actions, Done, QueueAction
from nsqadmin.changes.audit import Audit, Deed, is_done, later_outcome, outcome
from nsqadmin.changes.notify import AdminAction
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.views import Round
from nsqcore.http.api import ApiError, Request
from nsqcore.http.foreign import is_foreign
from nsqcore.process.logs import Log

DoneT = TypeVar("DoneT", bound=Done)

AUDIT_UNWRITABLE: Final = "AUDIT_UNWRITABLE"


class Desk:
    """Carries out changes for people who have the right, and reports them to the log, audit and endpoint."""

    def __init__(
        self,
        actions: Actions,
        log: Log,
        *,
        rights: Rights,
        audit: Audit,
        tell: Callable[[str, dict[str, Any]], None],
        show: Callable[[str], Awaitable[None]],
        show_node: Callable[[str], Awaitable[None]],
        state: Callable[[str, str], dict[str, Any]],
        mark: Callable[[str, str, str, str], None],
    ) -> None:
        """*tell* passes an action on; *show* makes the pages show a topic as it is after a change,
        *show_node* does the same for whether a node drains.
        *state* returns the state of a topic or channel for the audit; *mark* marks the change in the charts.
        """
        self._actions = actions
        self._log = log
        self.rights = rights
        self.audit = audit
        self._state = state
        self._mark = mark
        self._tell = tell
        self._show = show
        self._show_node = show_node
        self._via = socket.gethostname()
        # Nodes with an unknown outcome that answer again, and when the first of their new figures were taken.
        self._back_ns: dict[str, int] = {}
        # How many times each action was carried out, for /metrics.
        self.done: dict[str, int] = {}

    def may(self, request: Request, action: str, topic: str = "") -> bool:
        return self.rights.may(request, action, topic)

    def check(self, request: Request, action: str = "", topic: str = "") -> None:
        """Raise ApiError for people without the right, and for requests that another site's page caused.

        While the action is not known yet, only people who may change nothing at all are refused. While a line
        of the audit cannot be written, all changes are refused with AUDIT_UNWRITABLE.
        """
        may = (
            self.may(request, action, topic) if action else self.rights.may_somewhere(request, Role.OPERATOR)
        )
        if not may or is_foreign(request.headers):
            raise ApiError(403, "FORBIDDEN")
        if action != "audit" and not self.audit.write():
            raise ApiError(503, AUDIT_UNWRITABLE)

    async def create(self, request: Request, topic: str, channel: str) -> Done:
        if not channel:
            return await self.carry_out(request, ["create_topic"], topic, self._actions.create_topic(topic))
        words = ["create_topic", "create_channel"]
        return await self.carry_out(
            request, words, topic, self._actions.create_channel(topic, channel), channel
        )

    async def change(self, request: Request, topic: str, channel: str, action: QueueAction) -> Done:
        """Pause, unpause or empty a channel, or the topic itself when *channel* is empty."""
        word = f"{action.value}_{'channel' if channel else 'topic'}"
        if channel:
            work = self._actions.change_channel(topic, channel, action)
        else:
            work = self._actions.change_topic(topic, action)
        # Some nodes may have done it before their answer was lost, so a failed attempt is also reported.
        return await self.carry_out(request, [word], topic, work, channel, even_failed=True)

    async def delete(self, request: Request, topic: str, channel: str) -> Done:
        if channel:
            work = self._actions.delete_channel(topic, channel)
            return await self.carry_out(request, ["delete_channel"], topic, work, channel)
        return await self.carry_out(request, ["delete_topic"], topic, self._actions.delete_topic(topic))

    async def tombstone(self, request: Request, topic: str, node: str) -> Done:
        work = self._actions.tombstone(topic, node)
        return await self.carry_out(request, ["tombstone_topic_producer"], topic, work, node=node)

    async def drain(self, request: Request, node: str, *, cancel: bool) -> Done:
        work = self._actions.drain(node, cancel=cancel)
        return await self.carry_out(
            request, ["cancel_drain" if cancel else "drain_node"], "", work, node=node
        )

    async def follow(self, this: Round) -> None:
        """Complete the audit of changes whose outcome was unknown, once their node answers again.

        Lines that could not be written are written.
        The outcome is read from the second figures after its return: the request came before their question.
        """
        self.audit.write()
        completed: set[str] = set()
        views = {view.address: view for view in this.nodes if view.answers}
        for deed in self.audit.unknown():
            results = dict(deed.results)
            for node in deed.unknown:
                look = views[node].look if node in views else None
                if look is None or look.at_s <= deed.at_s:
                    self._back_ns.pop(node, None)
                elif look.at_ns > self._back_ns.setdefault(node, look.at_ns):
                    completed.add(node)
                    results[node] = later_outcome(deed, look.topics.get(deed.topic))
                    self._log.info("%s %s on %s: %s", deed.action, deed.subject, node, results[node])
            if results != deed.results:
                ok = deed.ok or any(map(is_done, results.values()))
                self.audit.note(replace(deed, results=results, ok=ok))
        for node in completed:
            del self._back_ns[node]
            self._actions.settled(node)

    def note(self, request: Request, text: str, action: str, **what: Any) -> None:
        """Report a change that is no work on topics: log, audit and notification; *what* as in a Deed."""
        self._log.info("%s: %s", self._who(request), text)
        self._enter(request, action, **what)
        self._notify(request, [action], *(what.get(key, "") for key in ("topic", "channel", "node")))

    def _enter(self, request: Request, action: str, **what: Any) -> None:
        person = self.rights.person(request)
        self.audit.note(
            Deed(time.time(), person.name or "anonymous", person.via, request.peer, action, **what)
        )

    async def carry_out(
        self,
        request: Request,
        words: Sequence[str],
        topic: str,
        work: Awaitable[DoneT],
        channel: str = "",
        *,
        node: str = "",
        even_failed: bool = False,
    ) -> DoneT:
        """Do *work*, which *words* name, and report it: log, audit, charts and notification."""
        place = f" of {node}" if node and topic else f" {node}" if node else ""
        what = f"{' and '.join(words)}{' ' + topic if topic else ''}{'/' + channel if channel else ''}{place}"
        subject = {"topic": topic, "channel": channel, "node": node, "before": self._state(topic, channel)}
        try:
            done = await work
        except (UpstreamError, UnknownError) as error:
            self._log.warning("%s: %s failed: %s", self._who(request), what, error)
            await self._show_changed(topic, node)
            errors = error.errors if isinstance(error, UpstreamError) else ()
            self._enter(
                request,
                " and ".join(words),
                **subject,
                ok=False,
                problem=str(error),
                after=self._state(topic, channel),
                results={one.address: outcome(one) for one in errors},
            )
            if even_failed:
                self._notify(request, words, topic, channel, node)
            raise
        back = f"; not reached, and unchanged: {', '.join(done.silent)}" if done.silent else ""
        back += f"; unknown, it may still happen: {', '.join(done.unknown)}" if done.unknown else ""
        self._log.info(
            "%s: %s on %d nsqd and %d nsqlookupd%s", self._who(request), what, done.nsqds, done.lookupds, back
        )
        await self._show_changed(topic, node)
        self._enter(
            request,
            " and ".join(words),
            **subject,
            ok=done.is_done,
            problem="" if done.is_done else _undone(done),
            after=self._state(topic, channel),
            results=dict(done.results),
            silent=done.silent,
        )
        self._notify(request, words, topic, channel, node)
        if self.audit.problem:
            done = replace(
                done,
                audit_problem=f"the audit lacks this change: {self.audit.problem}; it is added when the file "
                "can be written, and other changes are refused until then",
            )
        if topic:
            self._mark(" and ".join(words), topic, channel, self.rights.person(request).name or "anonymous")
        return done

    async def _show_changed(self, topic: str, node: str) -> None:
        if topic:
            await self._show(topic)
        elif node:
            await self._show_node(node)

    def _who(self, request: Request) -> str:
        """Name the person as far as verified, never as the request itself claims."""
        return f"{self.rights.person(request).name or 'anonymous'} from {request.peer}"

    def _notify(self, request: Request, words: Sequence[str], topic: str, channel: str, node: str) -> None:
        headers = request.headers
        scheme = "https" if is_secure(request) else "http"
        for word in words:
            self.done[word] = self.done.get(word, 0) + 1
            self._tell(
                word,
                AdminAction(
                    action=word,
                    topic=topic,
                    # Creating a topic for a channel is reported as the creation of the topic.
                    channel="" if word.endswith("_topic") else channel,
                    node=node,
                    timestamp=int(time.time()),
                    user=_basic_auth_user(headers),
                    acl_user=self.rights.person(request).name,
                    remote_ip=request.peer,
                    user_agent=headers.get("User-Agent", ""),
                    url=f"{scheme}://{headers.get('Host', '')}{request.target}",
                    via=self._via,
                ).to_json(),
            )


def _undone(done: Done) -> str:
    """Say why no nsqd made a change, in the words of each."""
    words = dict(done.results)
    return "; ".join(
        f"{node}: {words.get(node, 'not reached')}"
        for node in sorted({*done.refusing, *done.silent, *done.unknown})
    )


def _basic_auth_user(headers: Any) -> str:
    scheme, _, credentials = str(headers.get("Authorization", "")).partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[0]
    except ValueError:
        return ""
