"""The table of all actions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from nsqadmin.access.roles import Role
from nsqadmin.changes.action import Action, Fields, Scene, Target
from nsqadmin.changes.alerts import subject_of
from nsqadmin.changes.message_actions import explain_seek, on_messages, publish, publishing, seek
from nsqadmin.changes.policy_actions import on_policies
from nsqadmin.changes.queue_actions import (
    always,
    create,
    delete,
    dismiss,
    drain,
    explain_drain,
    explain_tombstone,
    mute,
    nothing,
    on_node,
    on_problem,
    on_queue,
    queue_command,
    tombstone,
    undrain,
    unmute,
)

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
    replace(
        on_queue("create", "Create", "created", create),
        title=("Create a topic or channel", "", ""),
        button="{verb}",
        note="{queue} was created.",
        back="lookup",
        effects=nothing,
        needs="",
        inputs=_CREATE,
    ),
    on_queue("pause", "Pause", "paused", queue_command("pause")),
    on_queue("unpause", "Resume", "resumed", queue_command("unpause")),
    on_queue("empty", "Empty", "emptied", queue_command("empty"), **_DANGER),
    on_queue("delete", "Delete", "deleted", delete, **_TYPED),
    replace(
        on_queue("tombstone", "Tombstone", "tombstoned", tombstone, **_TYPED),
        note="Topic {topic} {was} deleted on {node}; consumers are not sent there for a while.",
        effects=explain_tombstone,
        audit="tombstone_topic_producer",
    ),
    on_node("drain", "Drain", "Draining started", "drain_node", drain, explain_drain, **_DANGER),
    on_node(
        "undrain", "Resume publishing", "Publishing resumed", "cancel_drain", undrain, always(_UNDRAINED)
    ),
    replace(
        on_node("dismiss", "Remove", "removed", "dismiss", dismiss, always(*_REMOVED)),
        note="nsqd {node} was removed from the pages. It is shown again if it comes back.",
        back="index",
    ),
    on_problem("mute", "Mute", "Muted for 1 hour.", mute, always(_MUTED)),
    on_problem("unmute", "Unmute", _UNMUTED, unmute, always(_UNMUTED)),
    on_messages("finish", "Finish", "finished", **_DANGER),
    on_messages("requeue", "Requeue", "requeued", inputs=("defer",)),
    on_messages("send", "Send now", "sent"),
    on_messages("cancel", "Discard", "discarded", **_DANGER),
    on_messages("send_back", "Send back", "sent back", audit="send_back_dead_letters", everywhere=True),
    replace(
        publishing("seek", "Seek", "set", seek, explain_seek, audit="seek_channel", **_DANGER),
        title=("Seek channel ", "{last}", "{of_topic}"),
        inputs=("to", "node"),
        is_previewed=True,
    ),
    replace(
        publishing("publish", "Publish", "published", publish, nothing, audit="publish_message"),
        title=("Publish to topic ", "{topic}", ""),
        note="A message of {size} was published to {topic} on {node}.",
        inputs=("body", "headers", "defer", "node"),
    ),
    on_policies("set", "Set", "set_policy", done="set", needs="", inputs=_POLICY, is_previewed=True),
    on_policies("delete", "Delete", "delete_policy", done="deleted", needs="name", inputs=_APPLY, **_DANGER),
    replace(
        on_policies("copy", "Copy", "copy_policies", done="copied", needs="node", inputs=_APPLY),
        title=("Copy the policies of ", "{node}", " on all nodes?"),
        note="The policies of {node} were copied on {nodes}.",
    ),
)
ACTIONS: Final = {action.name: action for action in _TABLE}


def targets_of(action: Action, fields: Fields, picked: Sequence[str], scene: Scene) -> list[Target]:
    """Return the targets of *action* in a request; for a seek a topic stands for all its channels."""
    if action.back == "policies":
        return [Target(node=fields.get("node", "") if action.needs == "node" else "")]
    if action.needs == "key":
        # The subject of the problem decides who may mute it. Other fields of the form do not count.
        return [Target(*subject_of(fields.get("key", "")))]
    if not picked:
        return [Target(*(fields.get(key, "").strip() for key in ("topic", "channel", "node")))]
    if action.needs == "node":
        return [Target(node=name) for name in dict.fromkeys(picked)]
    found: list[Target] = []
    for text in dict.fromkeys(picked):
        topic, _, channel = text.partition("/")
        known = scene.cluster.sum.topics.get(topic) if action.name == "seek" and not channel else None
        found += [Target(topic, name) for name in known.channel_names] if known else [Target(topic, channel)]
    return list(dict.fromkeys(found))
