"""Every action: who may do it, its words, its effects, and what it does."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from nsqadmin.access.roles import Role
from nsqadmin.changes import effects
from nsqadmin.changes.alerts import Alerts, place_of
from nsqadmin.changes.commands import DRAIN_GRACE_MS, Commands, Done, Selection
from nsqadmin.changes.policies import ClusterPolicies, OnNode, PolicyChange, seen, usual
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.known import NODE_NOT_FOUND
from nsqadmin.collecting.messages import BadSearchError, MessageSearch, SeekPreview
from nsqadmin.figures.policies import RuleChange, place_changes, rule_changes
from nsqadmin.figures.present import failure, named, plural
from nsqadmin.figures.sums import TopicSum, add_up
from nsqclient.wire.durations import MILLISECOND, parse_duration
from nsqclient.wire.names import is_valid_name
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, NodeError

# To empty so many messages the name must be typed.
MANY_MESSAGES: Final = 10_000
POLICY_NOT_FOUND: Final = "POLICY_NOT_FOUND"
# At most so many places are named for which a policy change has an effect.
_MOST_PLACES: Final = 20
# How many subjects of a selection are worked on at a time.
_AT_ONCE: Final = 4

Fields = Mapping[str, str]
Do = Callable[["Scene", "Target", Fields], Awaitable[Done]]
Explain = Callable[["Scene", "Form"], Awaitable["Question"]]


@dataclass(frozen=True, slots=True)
class Target:
    """What one action is done to: a topic, a channel, a node, or a topic on a node."""

    topic: str = ""
    channel: str = ""
    node: str = ""

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.channel}" if self.channel else self.topic

    @property
    def name(self) -> str:
        return self.place or self.node

    @property
    def kind(self) -> str:
        return "channel" if self.channel else "topic" if self.topic else "node"


@dataclass(frozen=True, slots=True)
class Form:
    """A request for an action: its targets, and all fields that were filled in."""

    targets: Sequence[Target]
    fields: Fields

    @property
    def one(self) -> Target:
        return self.targets[0] if self.targets else Target()


@dataclass(slots=True)
class Question:
    """The effects of an action. *shown* changes when they do: what was not shown is not done.

    *groups* are the changes of policies by group of nodes; *moved* are places where another one applies.
    """

    effects: list[str] = field(default_factory=list)
    shown: str = ""
    warnings: list[str] = field(default_factory=list)
    groups: list["ChangeGroup"] = field(default_factory=list)
    problem: str = ""


@dataclass(slots=True)
class ChangeGroup:
    """Nodes on which a change has the same effect."""

    nodes: list[str]
    changes: list[RuleChange]


class Scene:
    """What actions work with: the cluster, the commands to its nodes, its policies, and the alerts."""

    def __init__(self, cluster: Cluster, commands: Commands, alerts: Alerts) -> None:
        self.cluster = cluster
        self.commands = commands
        self.alerts = alerts
        self.policies = ClusterPolicies(cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be done. ``verb`` is on its button, ``done`` says in a note that it was done.

    ``audit`` is its name in the audit and in notifications, where {kind} is topic or channel. ``needs`` is
    the field without which there is nothing to do it to; ``inputs`` are the fields that a person fills in.
    ``everywhere`` actions change more than the topic that a request names. ``before`` returns what the audit
    says of the state before and after, if that is not the state of a topic or channel.
    """

    name: str
    role: Role
    verb: str
    done: str
    audit: str
    do: Do
    effects: Explain
    family: str = "queue"
    needs: str = "topic"
    inputs: tuple[str, ...] = ()
    is_dangerous: bool = False
    is_typed: bool = False
    is_previewed: bool = False
    everywhere: bool = False
    before: Callable[[Scene, Fields], Awaitable[tuple[dict[str, Any], dict[str, Any]]]] | None = None

    def words(self, target: Target) -> list[str]:
        """Return the names in the audit: creating a channel also creates its topic."""
        if self.name == "create" and target.channel:
            return ["create_topic", "create_channel"]
        return [self.audit.format(kind=target.kind)]

    def typed(self, scene: Scene, form: Form) -> str:
        """Return the word that must be typed to confirm; empty if none."""
        many = self.name == "empty" and (
            sum(scene.cluster.messages_in(one.topic, one.channel) for one in form.targets) > MANY_MESSAGES
        )
        if not (self.is_typed or many):
            return ""
        return str(len(form.targets)) if form.fields.get("pick") else form.one.channel or form.one.topic


# -- topics and channels ------------------------------------------------------------------


async def _affected(scene: Scene, form: Form) -> list[TopicSum]:
    """Return the topics of *form* added up: one as it is at this moment, several as the pages show them."""
    names = dict.fromkeys(one.topic for one in form.targets)
    if len(names) == 1:
        (name,) = names
        view = (await scene.cluster.queues.topic_now(name)).value
        return [add_up(name, view.shares.values())]
    return [found for name in names if (found := scene.cluster.topic_sum(name)) is not None]


async def _create(scene: Scene, target: Target, _: Fields) -> Done:
    for name, kind in ((target.topic, "topic"), (target.channel, "channel")):
        if not is_valid_name(name) and (name or kind == "topic"):
            raise ValueError(f"{name or 'an empty name'} is not a valid {kind} name")
    return await scene.commands.create(target.topic, target.channel)


def _queue_command(name: str) -> Do:
    """Return what sends pause, unpause or empty to the nodes that hold a topic."""

    async def do(scene: Scene, target: Target, _: Fields) -> Done:
        names = (target.topic, target.channel) if target.channel else (target.topic,)
        return await scene.commands.on_holders(
            target.topic, lambda nsqd: getattr(nsqd, f"{name}_{target.kind}")(*names)
        )

    return do


async def _delete(scene: Scene, target: Target, _: Fields) -> Done:
    return await scene.commands.delete(target.topic, target.channel)


async def _tombstone(scene: Scene, target: Target, _: Fields) -> Done:
    return await scene.commands.tombstone(target.topic, target.node)


def _of_queue(name: str) -> Explain:
    """Return what explains an action on topics or channels."""

    async def explain(scene: Scene, form: Form) -> Question:
        topics = dict.fromkeys(one.topic for one in form.targets)
        queues = scene.cluster.queues
        try:
            found = await _affected(scene, form)
            silent = sorted({node for topic in topics for node in queues.silent_holders(topic)})
            if not form.one.channel:
                about = effects.topic_effects(name, found)
            else:
                wanted = {(one.topic, one.channel) for one in form.targets}
                channels = [
                    one
                    for topic in found
                    for one in topic.channels
                    if (one.topic_name, one.channel_name) in wanted
                ]
                if not channels and not silent:
                    raise UnknownError(CHANNEL_NOT_FOUND)
                about = effects.channel_effects(name, channels) if channels else []
        except UpstreamError as error:
            return _unexplained(error)
        except UnknownError:
            return Question(["No nsqd holds it now; only its registration is concerned."])
        return Question([*about, *effects.silent_effects(silent)])

    return explain


async def _explain_tombstone(scene: Scene, form: Form) -> Question:
    try:
        view = (await scene.cluster.queues.topic_now(form.one.topic)).value
    except UpstreamError as error:
        return _unexplained(error)
    except UnknownError:
        return Question(["No nsqd holds it now; only its registration is concerned."])
    share = view.shares.get(form.one.node)
    held = add_up(form.one.topic, [share]) if share is not None else None
    return Question(effects.tombstone_effects(form.one.node, held))


async def _nothing(_: Scene, __: Form) -> Question:
    return Question()


def _unexplained(error: UpstreamError) -> Question:
    reasons = "; ".join(dict.fromkeys(failure(one, error.kind) for one in error.errors))
    return Question([f"What it would change is not known: {reasons}."])


# -- nodes and problems ---------------------------------------------------------------------


async def _drain(scene: Scene, target: Target, _: Fields) -> Done:
    return await scene.commands.drain(target.node, cancel=False)


async def _undrain(scene: Scene, target: Target, _: Fields) -> Done:
    return await scene.commands.drain(target.node, cancel=True)


async def _explain_drain(scene: Scene, form: Form) -> Question:
    """Describe what the node holds, and which channels have no consumers there."""
    look = (await scene.cluster.node_view(form.one.node)).value.look
    found = [
        f"The node accepts publishes for {DRAIN_GRACE_MS // 1000} s while producers move to other nodes.",
        "Then the node refuses publishes, and consumers empty it.",
        "It stays in the cluster. Resume publishing with one click, or by a restart.",
    ]
    if look is None:
        return Question(found)
    unread = [
        (topic.topic_name, channel)
        for topic in look.topics.values()
        for channel in topic.channels
        if channel.owed and not channel.client_count
    ]
    found.append(f"It owes {plural(look.load.owed, 'message')} to {plural(look.load.consumers, 'consumer')}.")
    if unread:
        names = named(f"{topic}/{channel.channel_name}" for topic, channel in unread)
        owed = sum(channel.owed for _, channel in unread)
        found.append(f"No consumers there for {names}: {plural(owed, 'message')} stay.")
    return Question(found)


async def _dismiss(scene: Scene, target: Target, _: Fields) -> Done:
    if not scene.cluster.dismiss(target.node):
        raise UnknownError(NODE_NOT_FOUND)
    return Done()


async def _mute(scene: Scene, _: Target, fields: Fields) -> Done:
    scene.alerts.mute(fields["key"], instant())
    return Done()


async def _unmute(scene: Scene, _: Target, fields: Fields) -> Done:
    scene.alerts.unmute(fields["key"])
    return Done()


def _always(*sentences: str) -> Explain:
    async def explain(_: Scene, __: Form) -> Question:
        return Question(list(sentences))

    return explain


# -- messages -------------------------------------------------------------------------------


def _selection(target: Target, fields: Fields, *, delayed: bool = False) -> Selection:
    """Read which messages are meant. Raises BadSearchError if they are a list that nodes cannot pick."""
    search = MessageSearch.of({**fields, "topic": target.topic, "channel": target.channel})
    if not (fields.get("id") or search.can_be_done_to_all):
        way_out = "leave From empty" if search.by_due_time else "list the oldest first, or leave From empty"
        raise BadSearchError(f"a list with From cannot be taken whole: {way_out}")
    return Selection(search, fields.get("id", ""), _milliseconds(fields) if delayed else 0)


async def _handled(scene: Scene, name: str, target: Target, fields: Fields, *, dry: bool) -> Done:
    which = _selection(target, fields, delayed=name == "requeue")
    if name == "send_back":
        return await scene.commands.send_back(which, dry=dry)
    if not target.channel:
        raise UnknownError(CHANNEL_NOT_FOUND)
    return await scene.commands.handle(name, which, dry=dry)


def _on_messages(name: str, verb: str, done: str, **more: Any) -> Action:
    async def do(scene: Scene, target: Target, fields: Fields) -> Done:
        return await _handled(scene, name, target, fields, dry=False)

    async def explain(scene: Scene, form: Form) -> Question:
        try:
            dry = await _handled(scene, name, form.one, form.fields, dry=True)
        except UpstreamError as error:
            return _unexplained(error)
        return Question(effects.message_effects(name, done, dry, one=bool(form.fields.get("id"))))

    more = {"audit": f"{name}_messages", "role": Role.OPERATOR, "family": "messages", **more}
    return Action(name=name, verb=verb, done=done, do=do, effects=explain, **more)


async def _seek(scene: Scene, target: Target, fields: Fields) -> Done:
    to, node = fields.get("to", ""), fields.get("node", "")
    if not target.channel:
        raise UnknownError(CHANNEL_NOT_FOUND)
    # A place that no node understands is refused before anything is changed.
    await scene.commands.reader.seek_preview(target.topic, target.channel, to, node)
    return await scene.commands.seek(target.topic, target.channel, to, node)


async def _explain_seek(scene: Scene, form: Form) -> Question:
    """Describe how much lies behind the place. Raises BadSearchError if no node understands it."""
    to, node = form.fields.get("to", ""), form.fields.get("node", "")
    if not to:
        return Question()
    gate = asyncio.Semaphore(_AT_ONCE)
    previews: list[SeekPreview] = []
    owed: Counter[str] = Counter()
    failed: list[str] = []

    async def look(target: Target) -> None:
        async with gate:
            try:
                if not target.channel:
                    raise UnknownError(CHANNEL_NOT_FOUND)
                found = await scene.commands.reader.seek_preview(target.topic, target.channel, to, node)
                view = (await scene.cluster.queues.topic_view(target.topic, 0.0)).value
            except UnknownError:
                if not form.fields.get("pick"):
                    raise
                failed.append(f"{target.place} is not there any more")
                return
            except UpstreamError as error:
                failed.extend(f"{target.place}: {failure(one, 'nsqd')}" for one in error.errors)
                return
        previews.extend(found.value)
        failed.extend(failure(one, "nsqd") for one in found.errors)
        for address, share in view.shares.items():
            owed[address] += sum(one.owed for one in share[0].channels if one.channel_name == target.channel)

    await asyncio.gather(*map(look, form.targets))
    silent = {node for one in form.targets for node in scene.cluster.queues.silent_holders(one.topic)}
    about = effects.seek_effects(previews, owed, failed)
    return Question([*about, *effects.silent_effects(sorted(silent))], shown=to)


async def _publish(scene: Scene, target: Target, fields: Fields) -> Done:
    content = body_of(fields)
    if not content:
        raise BadSearchError("a message needs a body")
    return await scene.commands.publish(
        target.topic,
        fields.get("node", ""),
        content,
        _headers(fields.get("headers", "")),
        _milliseconds(fields),
    )


def body_of(fields: Fields) -> bytes:
    """Return the body of a message to publish: browsers end the lines of a form with CR LF."""
    return fields.get("body", "").replace("\r\n", "\n").encode()


def _milliseconds(fields: Fields) -> int:
    """Read the delay of a message in milliseconds. Raises ValueError with a sentence if it is none."""
    text = fields.get("defer", "").strip()
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


# -- policies -------------------------------------------------------------------------------


def _on_policies(kind: str, verb: str, audit: str, **more: Any) -> Action:
    async def do(scene: Scene, _: Target, fields: Fields) -> Done:
        change, nodes = await _known_change(scene, fields, kind)
        return await scene.commands.change_policies(change, nodes, apply=fields.get("apply") == "true")

    async def explain(scene: Scene, form: Form) -> Question:
        """Show the policies of each node before and after, and the places where the rule in force changes."""
        if kind == "set" and not form.fields.get("name"):
            return Question()
        change, nodes = await _known_change(scene, form.fields, kind)
        refused = await scene.policies.check(change) if kind == "set" else ()
        invalid = [_refusal(one) for one in refused if one.status == HTTPStatus.BAD_REQUEST]
        if invalid:
            return Question(problem=f"{'; '.join(invalid)}.")
        before, places = usual(nodes), scene.cluster.places()
        after = change.applied(before, _source(change, nodes))
        moved = await scene.cluster.in_thread(lambda: place_changes(before, after, places))
        topics = sum(not one.channel for one in moved)
        found = [
            f"{one.place}: {one.before or 'none'} → {one.after or 'none'}"
            f"{', changed' if one.before == one.after else ''}"
            for one in moved[:_MOST_PLACES]
        ]
        if len(moved) > _MOST_PLACES:
            found.append(f"and {len(moved) - _MOST_PLACES} more")
        return Question(
            [f"Another policy applies to {counted(topics, len(moved) - topics)}:", *found]
            if moved
            else ["No existing topic or channel is affected."],
            sha256(f"{seen(nodes)}{json.dumps(change.said)}".encode()).hexdigest()[:16],
            [_refusal(one) for one in refused],
            _groups(change, nodes),
        )

    async def before(scene: Scene, fields: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
        change, nodes = await _known_change(scene, fields, kind)
        after = change.applied(usual(nodes), _source(change, nodes))
        return change.concerned(usual(nodes)), change.concerned(after)

    more |= {"role": Role.ADMIN, "family": "policies", "before": before}
    name = "copy_policies" if kind == "copy" else f"{kind}_policy"
    return Action(name=name, verb=verb, audit=audit, do=do, effects=explain, **more)


async def _known_change(scene: Scene, fields: Fields, kind: str) -> tuple[PolicyChange, list[OnNode]]:
    """Read a change, and the policies that the nodes have. Raises UnknownError or ValueError."""
    change = PolicyChange.of(fields, kind)
    nodes = (await scene.policies.on_nodes()).value
    if kind == "copy" and _source(change, nodes) is None:
        raise UnknownError(NODE_NOT_FOUND)
    if kind == "delete" and all(one.rules.named(change.name) is None for one in nodes):
        raise UnknownError(POLICY_NOT_FOUND)
    return change, nodes


def _source(change: PolicyChange, nodes: Sequence[OnNode]) -> Any:
    return next((one.rules for one in nodes if one.node == change.node), None)


def _groups(change: PolicyChange, nodes: Sequence[OnNode]) -> list[ChangeGroup]:
    """Group the nodes with the same changes; the largest group first."""
    found: dict[str, ChangeGroup] = {}
    for one in nodes:
        changes = rule_changes(one.rules, change.applied(one.rules, _source(change, nodes)))
        found.setdefault(repr(changes), ChangeGroup([], changes)).nodes.append(one.node)
    return sorted(found.values(), key=lambda group: -len(group.nodes))


def _refusal(error: NodeError) -> str:
    return f"{error.address}: {error.code or error.reason}"


def counted(topics: int, channels: int) -> str:
    """Write a number of topics and of channels."""
    parts = [plural(number, word) for number, word in ((topics, "topic"), (channels, "channel")) if number]
    return ", ".join(parts) or "nothing"


# -- the table ------------------------------------------------------------------------------

_OPERATOR: Final = Role.OPERATOR


def _on_queue(name: str, verb: str, done: str, do: Do, role: Role = _OPERATOR, **more: Any) -> Action:
    audit, about = f"{name}_{{kind}}", _of_queue(name)
    return Action(name=name, role=role, verb=verb, done=done, audit=audit, do=do, effects=about, **more)


def _on_node(name: str, verb: str, done: str, audit: str, do: Do, about: Explain, **more: Any) -> Action:
    more |= {"family": "node", "needs": "node", "everywhere": True}
    return Action(name=name, role=_OPERATOR, verb=verb, done=done, audit=audit, do=do, effects=about, **more)


def _on_problem(name: str, verb: str, done: str, do: Do, about: Explain) -> Action:
    more: Any = {"family": "problem", "needs": "key", "audit": name}
    return Action(name=name, role=_OPERATOR, verb=verb, done=done, do=do, effects=about, **more)


def _publishing(name: str, verb: str, done: str, do: Do, about: Explain, **more: Any) -> Action:
    more |= {"family": "messages", "role": _OPERATOR}
    return Action(name=name, verb=verb, done=done, do=do, effects=about, **more)


_REMOVED: Final = (
    "The node is no longer shown as down. Nothing in the cluster changes.",
    "If it comes back it is shown as before, with the messages on its disk.",
)
_UNDRAINED: Final = "The node accepts publishes again."
_MUTED: Final = "No alerts for 1 hour. It stays on the pages."
_UNMUTED: Final = "Alerts are sent again."
_CREATE: Final = ("topic", "channel")
_DANGER: Final[Any] = {"is_dangerous": True}
_TYPED: Final[Any] = {"is_dangerous": True, "is_typed": True, "role": Role.ADMIN}
_POLICY: Final = ("name", "topic", "channel", "priority", "definition", "apply")
_APPLY: Final = ("apply",)

_TABLE: Final = (
    replace(_on_queue("create", "Create", "created", _create), effects=_nothing, needs="", inputs=_CREATE),
    _on_queue("pause", "Pause", "paused", _queue_command("pause")),
    _on_queue("unpause", "Resume", "resumed", _queue_command("unpause")),
    _on_queue("empty", "Empty", "emptied", _queue_command("empty"), **_DANGER),
    _on_queue("delete", "Delete", "deleted", _delete, **_TYPED),
    replace(
        _on_queue("tombstone", "Tombstone", "tombstoned", _tombstone, **_TYPED),
        effects=_explain_tombstone,
        audit="tombstone_topic_producer",
    ),
    _on_node("drain", "Drain", "Draining started", "drain_node", _drain, _explain_drain, **_DANGER),
    _on_node(
        "undrain", "Resume publishing", "Publishing resumed", "cancel_drain", _undrain, _always(_UNDRAINED)
    ),
    _on_node("dismiss", "Remove", "removed", "dismiss", _dismiss, _always(*_REMOVED)),
    _on_problem("mute", "Mute", "Muted for 1 hour.", _mute, _always(_MUTED)),
    _on_problem("unmute", "Unmute", _UNMUTED, _unmute, _always(_UNMUTED)),
    _on_messages("finish", "Finish", "finished", **_DANGER),
    _on_messages("requeue", "Requeue", "requeued", inputs=("defer",)),
    _on_messages("send", "Send now", "sent"),
    _on_messages("cancel", "Discard", "discarded", **_DANGER),
    _on_messages("send_back", "Send back", "sent back", audit="send_back_dead_letters", everywhere=True),
    replace(
        _publishing("seek", "Seek", "set", _seek, _explain_seek, audit="seek_channel", **_DANGER),
        inputs=("to", "node"),
        is_previewed=True,
    ),
    replace(
        _publishing("publish", "Publish", "published", _publish, _nothing, audit="publish_message"),
        inputs=("body", "headers", "defer", "node"),
    ),
    _on_policies("set", "Set", "set_policy", done="set", needs="", inputs=_POLICY, is_previewed=True),
    _on_policies("delete", "Delete", "delete_policy", done="deleted", needs="name", inputs=_APPLY, **_DANGER),
    _on_policies("copy", "Copy", "copy_policies", done="copied", needs="node", inputs=_APPLY),
)
ACTIONS: Final = {action.name: action for action in _TABLE}


def targets_of(action: Action, fields: Fields, picked: Sequence[str], scene: Scene) -> list[Target]:
    """Return what a request wants *action* done to; for a seek a topic stands for all its channels."""
    if action.family == "policies":
        return [Target(node=fields.get("node", "") if action.needs == "node" else "")]
    if action.family == "problem":
        # What the problem is about decides who may mute it, whatever the form says beside it.
        return [Target(*place_of(fields.get("key", "")))]
    if not picked:
        return [Target(*(fields.get(key, "").strip() for key in ("topic", "channel", "node")))]
    if action.needs == "node":
        return [Target(node=name) for name in dict.fromkeys(picked)]
    found: list[Target] = []
    for text in dict.fromkeys(picked):
        topic, _, channel = text.partition("/")
        known = scene.cluster.topic_sum(topic) if action.name == "seek" and not channel else None
        found += [Target(topic, name) for name in known.channel_names] if known else [Target(topic, channel)]
    return list(dict.fromkeys(found))
