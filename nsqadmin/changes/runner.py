"""The entry of changes by admins, from the JSON API and from the pages: rights, audit, notification."""

import base64
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from nsqadmin.access.rights import Rights, is_secure
from nsqadmin.access.roles import Role
from nsqadmin.changes.action import Action, Scene, Target
from nsqadmin.changes.actions import ACTIONS
from nsqadmin.changes.audit import Audit, AuditEntry, is_done, later_outcome, outcome
from nsqadmin.changes.commands import ActionResult
from nsqadmin.changes.notify import AdminAction
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.views import Round
from nsqadmin.history import recorder
from nsqadmin.history.ring import Name
from nsqcore.http.api import ApiError, Request
from nsqcore.http.foreign import is_foreign
from nsqcore.process.logs import Log

# The roles for changes that are not actions.
_PERMISSIONS: Final = {"read": Role.READER, "config": Role.ADMIN, "audit": Role.ADMIN}
AUDIT_UNWRITABLE: Final = "AUDIT_UNWRITABLE"
# Reported also if they failed: a node may have done them before its answer was lost.
_REPORTED_IF_FAILED: Final = frozenset(
    {"pause", "unpause", "empty", "set_policy", "delete_policy", "copy_policies"}
)


class ActionRunner:
    """Carries out actions for people who have the right, and reports them to the log, audit and endpoint."""

    def __init__(
        self,
        scene: Scene,
        log: Log,
        *,
        rights: Rights,
        audit: Audit,
        notify: Callable[[str, dict[str, Any]], None],
        add_to_timeline: Callable[[str, Name, float], None],
    ) -> None:
        """*notify* posts an action to the endpoint; *add_to_timeline* adds it to the timeline."""
        self.scene = scene
        self._cluster = scene.cluster
        self._log = log
        self.rights = rights
        self.audit = audit
        self._add_to_timeline = add_to_timeline
        self._notify_endpoint = notify
        self._via = socket.gethostname()
        # Nodes with an unknown outcome that answer again, and the time of their first new statistics.
        self._back_ns: dict[str, int] = {}
        # How many times each action was carried out, for /metrics.
        self.counts: dict[str, int] = {}

    def may(self, request: Request, name: str, topic: str = "") -> bool:
        """Tell whether the person may do the action *name*, or has the permission of that name."""
        action = ACTIONS.get(name)
        if action is None:
            return self.rights.may(request, _PERMISSIONS[name], topic)
        return self.rights.may(request, action.role, "" if action.everywhere else topic)

    def check(self, request: Request, name: str = "", topic: str = "") -> None:
        """Raise ApiError for people without the right, and for requests that another site's page caused.

        While the action is not known yet, only people who may change nothing at all are refused. While a line
        of the audit cannot be written, all changes are refused with AUDIT_UNWRITABLE.
        """
        may = self.may(request, name, topic) if name else self.rights.may_somewhere(request, Role.OPERATOR)
        if not may or is_foreign(request.headers):
            raise ApiError(403, "FORBIDDEN")
        if name != "audit" and not self.audit.write():
            raise ApiError(503, AUDIT_UNWRITABLE)

    async def follow(self, this: Round) -> None:
        """Complete the audit of changes whose outcome was unknown, once their node answers again.

        Lines that could not be written are written.
        The outcome is read from the second poll after its return: the change preceded that poll.
        """
        self.audit.write()
        completed: set[str] = set()
        views = {view.address: view for view in this.nodes if view.answers}
        for entry in self.audit.unknown():
            results = dict(entry.results)
            for node in entry.unknown:
                look = views[node].snapshot if node in views else None
                if look is None or look.at_s <= entry.at_s:
                    self._back_ns.pop(node, None)
                elif look.at_ns > self._back_ns.setdefault(node, look.at_ns):
                    completed.add(node)
                    results[node] = later_outcome(entry, look.topics.get(entry.topic))
                    self._log.info("%s %s on %s: %s", entry.action, entry.subject, node, results[node])
            if results != entry.results:
                ok = entry.ok or any(map(is_done, results.values()))
                self.audit.note(msgspec.structs.replace(entry, results=results, ok=ok))
        for node in completed:
            del self._back_ns[node]
            self.scene.commands.resume(node)

    def note(self, request: Request, text: str, action: str, **what: Any) -> None:
        """Report a change other than of topics: log, audit and notification; *what* as in an AuditEntry."""
        self._log.info("%s: %s", self._who(request), text)
        self._enter(request, action, **what)
        self._notify(request, [action], *(what.get(key, "") for key in ("topic", "channel", "node")))

    def _enter(self, request: Request, action: str, at_s: float = 0.0, **what: Any) -> None:
        person = self.rights.person(request)
        self.audit.note(
            AuditEntry(
                at_s or time.time(), person.name or "anonymous", person.via, request.peer, action, **what
            )
        )

    async def do(
        self, request: Request, action: Action, target: Target, fields: dict[str, str] | None = None
    ) -> ActionResult:
        """Do *action* and report it: log, audit, charts and notification."""
        # An action lasts as long as its slowest node; its entry is of the moment at which it was sent.
        at_s = time.time()
        fields = fields or {}
        words, name = action.audit_names(target), " and ".join(action.audit_names(target))
        where = f" of {target.node}" if target.node and target.topic else f" {target.node}".rstrip()
        what = f"{name} {target.place}".rstrip() + where
        before, after = self._cluster.queues.state(target.topic, target.channel), None
        if action.before is not None:
            before, after = await action.before(self.scene, fields)
        error: UpstreamError | UnknownError | None = None
        try:
            done = await action.do(self.scene, target, fields)
        except (UpstreamError, UnknownError) as failed:
            error, errors = failed, failed.errors if isinstance(failed, UpstreamError) else ()
            done = ActionResult(results=tuple((one.address, outcome(one)) for one in errors))
            self._log.warning("%s: %s failed: %s", self._who(request), what, error)
        else:
            back = f"; not reached, and unchanged: {', '.join(done.silent)}" if done.silent else ""
            back += f"; unknown, it may still happen: {', '.join(done.unknown)}" if done.unknown else ""
            nodes = f" on {done.nsqds} nsqd and {done.lookupds} nsqlookupd" if done.results else ""
            self._log.info("%s: %s%s%s", self._who(request), what, nodes, back)
        if target.topic:
            await self._cluster.changed(target.topic)
        elif target.node:
            await self._cluster.collector.node_changed(target.node)
        self._enter(
            request,
            name,
            at_s,
            topic=target.topic,
            channel=target.channel,
            node=target.node,
            before=before,
            ok=error is None and done.is_done,
            problem=str(error) if error is not None else "" if done.is_done else _undone(done),
            after=self._cluster.queues.state(target.topic, target.channel) if after is None else after,
            results=dict(done.results),
            silent=done.silent,
        )
        if error is None or action.name in _REPORTED_IF_FAILED:
            self._notify(request, words, target.topic, target.channel, target.node)
        if error is not None:
            raise error
        subject = target.name or fields.get("name", "") or fields.get("key", "")
        who = self.rights.person(request).name or "anonymous"
        self._add_to_timeline(f"{name.replace('_', ' ')} {subject} by {who}", _history_name(target), at_s)
        if self.audit.problem:
            lacks = (
                f"the audit lacks this change: {self.audit.problem}; it is added when the file can be written"
            )
            return replace(done, audit_problem=f"{lacks}, and other changes are refused until then")
        return done

    def _who(self, request: Request) -> str:
        """Name the person as far as verified, never as the request itself claims."""
        return f"{self.rights.person(request).name or 'anonymous'} from {request.peer}"

    def _notify(self, request: Request, words: Sequence[str], topic: str, channel: str, node: str) -> None:
        headers = request.headers
        scheme = "https" if is_secure(request) else "http"
        for word in words:
            self.counts[word] = self.counts.get(word, 0) + 1
            self._notify_endpoint(
                word,
                msgspec.to_builtins(
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
                    )
                ),
            )


def _undone(done: ActionResult) -> str:
    """Return the reasons why no nsqd made a change, one for each nsqd."""
    words = dict(done.results)
    return "; ".join(
        f"{node}: {words.get(node, 'not reached')}"
        for node in sorted({*done.refusing, *done.silent, *done.unknown})
    )


def _history_name(target: Target) -> Name:
    if target.channel:
        return recorder.channel(target.topic, target.channel)
    return recorder.topic(target.topic) if target.topic else recorder.node(target.node) if target.node else ()


def _basic_auth_user(headers: Any) -> str:
    scheme, _, credentials = str(headers.get("Authorization", "")).partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[0]
    except ValueError:
        return ""
