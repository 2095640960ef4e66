"""Actions on policies: setting, deleting, copying."""

import json
from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from nsqadmin.access.roles import Role
from nsqadmin.changes.action import Action, ChangeGroup, Fields, Form, Question, Scene, Target
from nsqadmin.changes.commands import ActionResult
from nsqadmin.changes.policies import OnNode, PolicyChange, digest_of, usual
from nsqadmin.collecting.answers import NODE_NOT_FOUND, UnknownError
from nsqadmin.stats.policies import rule_changes, subject_changes
from nsqadmin.stats.present import plural
from nsqclient.wire.node_error import NodeError

POLICY_NOT_FOUND: Final = "POLICY_NOT_FOUND"
# The largest number of named topics and channels on which a policy change has an effect.
_MAX_PLACES: Final = 20


# -- policies -------------------------------------------------------------------------------


def on_policies(kind: str, verb: str, audit: str, **more: Any) -> Action:
    async def do(scene: Scene, _: Target, fields: Fields) -> ActionResult:
        change, nodes = await _read_change(scene, fields, kind)
        return await scene.commands.change_policies(change, nodes, apply=fields.get("apply") == "true")

    async def explain(scene: Scene, form: Form) -> Question:
        """Show the policies of each node before and after, and where the rule in force changes."""
        if kind == "set" and not form.fields.get("name"):
            return Question()
        change, nodes = await _read_change(scene, form.fields, kind)
        refused = await scene.policies.check(change) if kind == "set" else ()
        invalid = [_refusal(one) for one in refused if one.status == HTTPStatus.BAD_REQUEST]
        if invalid:
            return Question(problem=f"{'; '.join(invalid)}.")
        before, places = usual(nodes), scene.cluster.topics_and_channels()
        after = change.applied(before, _source(change, nodes))
        moved = await scene.cluster.collector.work.for_reader(lambda: subject_changes(before, after, places))
        topics = sum(not one.channel for one in moved)
        found = [
            f"{one.subject}: {one.before or 'none'} → {one.after or 'none'}"
            f"{', changed' if one.before == one.after else ''}"
            for one in moved[:_MAX_PLACES]
        ]
        if len(moved) > _MAX_PLACES:
            found.append(f"and {len(moved) - _MAX_PLACES} more")
        return Question(
            [f"Another policy applies to {counted(topics, len(moved) - topics)}:", *found]
            if moved
            else ["No existing topic or channel is affected."],
            sha256(f"{digest_of(nodes)}{json.dumps(change.definition)}".encode()).hexdigest()[:16],
            [_refusal(one) for one in refused],
            _groups(change, nodes),
        )

    async def before(scene: Scene, fields: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
        change, nodes = await _read_change(scene, fields, kind)
        after = change.applied(usual(nodes), _source(change, nodes))
        return change.concerned(usual(nodes)), change.concerned(after)

    more |= {"role": Role.ADMIN, "back": "policies", "before": before, "button": "{verb} on all nodes"}
    more |= {"title": ("{verb} policy ", "{policy}", " on all nodes" + "?" * (kind != "set"))}
    more |= {"note": "Policy {policy} was {done} on {nodes}."}
    name = "copy_policies" if kind == "copy" else f"{kind}_policy"
    return Action(name=name, verb=verb, audit=audit, do=do, effects=explain, **more)


async def _read_change(scene: Scene, fields: Fields, kind: str) -> tuple[PolicyChange, list[OnNode]]:
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
