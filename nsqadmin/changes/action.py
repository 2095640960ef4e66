"""The parts of an action: permission, texts, effects, execution."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nsqadmin.access.roles import Role
from nsqadmin.changes.alerts import Alerts
from nsqadmin.changes.commands import ActionResult, Commands
from nsqadmin.changes.policies import ClusterPolicies
from nsqadmin.collecting.answers import UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.stats.policies import RuleChange
from nsqadmin.stats.present import failure

# From so many messages on, emptying requires typing the name.
MANY_MESSAGES: Final = 10_000

Fields = Mapping[str, str]
Do = Callable[["Scene", "Target", Fields], Awaitable[ActionResult]]
Explain = Callable[["Scene", "Form"], Awaitable["Question"]]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an action: a topic, a channel, a node, or a topic on a node."""

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

    @property
    def words(self) -> dict[str, str]:
        """The words for the texts of an action: the names of its target, and phrases with them."""
        one, fields = self.one, self.fields
        message_id = fields.get("id", "")
        return {
            "kind": one.kind,
            "topic": one.topic,
            "node": one.node,
            "place": one.place,
            "last": one.channel or one.topic,
            "of_topic": f" of topic {one.topic}" if one.channel else "",
            "on_node": f" on {one.node}" if one.node else "",
            "queue": f"Channel {one.channel} of topic {one.topic}" if one.channel else f"Topic {one.topic}",
            "policy": fields.get("name", ""),
            "problem": one.name or fields.get("key", "").split(" ")[0].replace("-", " "),
            "messages": "message" if message_id else "messages of",
            "message": message_id or one.place,
            "of_place": f" of {one.place}" if message_id else "",
            "all": "" if message_id else " all of these",
        }


@dataclass(slots=True)
class Question:
    """The effects of an action. *shown* changes when they do: effects that were not shown are not applied.

    *groups* are the changes of policies by group of nodes; *moved* are places where another one applies.
    """

    effects: list[str] = field(default_factory=list)
    display: str = ""
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
    """One action. ``verb`` and ``done`` are its words: Pause, paused.

    The question has the headline ``title`` (before the name, the name, behind it) and a ``button``; ``note``
    reports the success, and ``back`` names the page that follows: empty for that of the target. These texts
    contain words of :attr:`Form.words` in braces.
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
    title: tuple[str, str, str] = ("{verb} {kind} ", "{last}", "{of_topic}{on_node}?")
    button: str = "{verb} {kind}"
    note: str = "{queue} was {done} on {nsqds}{also}."
    back: str = ""
    needs: str = "topic"
    inputs: tuple[str, ...] = ()
    is_dangerous: bool = False
    is_typed: bool = False
    is_previewed: bool = False
    everywhere: bool = False
    before: Callable[[Scene, Fields], Awaitable[tuple[dict[str, Any], dict[str, Any]]]] | None = None

    def audit_names(self, target: Target) -> list[str]:
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


def unexplained(error: UpstreamError) -> Question:
    reasons = "; ".join(dict.fromkeys(failure(one, error.kind) for one in error.errors))
    return Question([f"What it would change is not known: {reasons}."])
