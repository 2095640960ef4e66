"""The page of policies: which are in force where and why; a change is shown before it is made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from nsqadmin.changes.audit import DONE, outcome
from nsqadmin.changes.desk import Desk
from nsqadmin.changes.policies import ClusterPolicies, OnNode, PolicyWish, seen, sentence, usual
from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.known import NODE_NOT_FOUND
from nsqadmin.figures.policies import (
    PlaceChange,
    PolicyPlace,
    RuleChange,
    governed,
    place_changes,
    rule_changes,
)
from nsqadmin.figures.present import plural
from nsqadmin.pages.render import PageNote, Renderer
from nsqadmin.pages.replies import Replies
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import Partial
from nsqcore.http.api import Request, Response, json_reply
from nsqcore.http.router import Route

_BODY_LIMIT: Final = 1 << 20
_ACTION: Final = "policies"
_FIELDS: Final = ("name", "topic", "channel", "priority", "definition")
_EMPTY: Final = {"name": "", "topic": "", "channel": "", "priority": "0", "definition": "", "problem": ""}
# At most so many places are named for which a change has an effect.
_MOST_PLACES: Final = 20
POLICY_NOT_FOUND: Final = "POLICY_NOT_FOUND"

Fields = Mapping[str, str]


class PoliciesPage:
    """``/policies``: GET shows, POST asks, and with ``confirmed`` POST makes the change on all nodes."""

    def __init__(self, cluster: Cluster, desk: Desk, replies: Replies, render: Renderer) -> None:
        self._cluster = cluster
        self._policies = ClusterPolicies(cluster)
        self._desk = desk
        self._replies = replies
        self._render = render

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/policies", self._replies.explaining(self.show), logged=False),
            Route("POST", "/policies", self._replies.explaining(self.change)),
        ]

    async def show(self, request: Request) -> Response:
        topic, channel = request.query.get("topic", ""), request.query.get("channel", "")
        channel = channel if topic else ""
        found = await self._policies.on_nodes(topic, channel)
        if request.query.get("format") == "json":
            nodes = [one.to_json() for one in found.value]
            return json_reply({"nodes": nodes, "message": found.message})
        fields: Fields = {}
        rule = usual(found.value).named(request.query.get("edit", ""))
        if rule is not None:
            said = {**rule.to_json(), "definition": json.dumps(dict(rule.definition))}
            fields = {key: str(said[key]) for key in _FIELDS}
        return await self._page(request, found, topic, channel, fields)

    async def _page(
        self, request: Request, found: Answer[list[OnNode]], topic: str, channel: str, fields: Fields
    ) -> Response:
        rules, places = usual(found.value), self._cluster.places()
        counts = await self._cluster.in_thread(lambda: governed(rules, places))
        return self._render.page(
            request,
            "policies.html",
            status=400 if fields.get("problem") else 200,
            warnings=[str(error) for error in found.errors],
            nodes=found.value,
            listed=_listed(found.value),
            counts={name: _where(held) for name, held in counts.items()},
            asked_topic=topic,
            asked_channel=channel,
            why={one.node: one.rules.matching(topic, channel) for one in found.value} if topic else {},
            fields={**_EMPTY, **fields},
        )

    async def change(self, request: Request) -> Response:
        """Set a policy, delete one, or copy those of one node to all nodes; the change is shown first."""
        self._desk.check(request, _ACTION)
        body = (await request.read(_BODY_LIMIT)).decode("utf-8", "replace")
        given = {key: values[0] for key, values in parse_qs(body, keep_blank_values=True).items()}
        found = await self._policies.on_nodes()
        try:
            wish = _wish(given)
        except ValueError as error:
            fields = {key: given[key] for key in _FIELDS if key in given} | {"problem": str(error)}
            return await self._page(request, found, "", "", fields)
        nodes = found.value
        if wish.kind == "copy" and all(one.node != wish.node for one in nodes):
            raise UnknownError(NODE_NOT_FOUND)
        if wish.kind == "delete" and all(one.rules.named(wish.name) is None for one in nodes):
            raise UnknownError(POLICY_NOT_FOUND)
        if not given.get("confirmed"):
            refusals = await self._policies.check(wish) if wish.kind == "set" else ()
            invalid = [sentence(error) for error in refusals if error.status == HTTPStatus.BAD_REQUEST]
            if invalid:
                fields = {key: given[key] for key in _FIELDS if key in given}
                return await self._page(
                    request, found, "", "", fields | {"problem": f"{'; '.join(invalid)}."}
                )
            return await self._question(request, wish, found, given, refusals=refusals)
        if given.get("seen") and given["seen"] != seen(nodes):
            problem = "Nothing was done: the policies have changed meanwhile. This is how it would be now."
            return await self._question(request, wish, found, given, problem)
        before = wish.concerned(usual(nodes))
        source = next((one.rules for one in nodes if one.node == wish.node), None)
        after = wish.concerned(wish.applied(usual(nodes), source))
        told = await self._policies.carry_out(wish, nodes, apply=given.get("apply") == "true")
        return self._told(request, wish, told, before, after)

    async def _question(
        self,
        request: Request,
        wish: PolicyWish,
        found: Answer[list[OnNode]],
        given: Fields,
        problem: str = "",
        refusals: Sequence[NodeError] = (),
    ) -> Response:
        """Show the policies of each node before and after, and the places where the rule in force changes."""
        source = next((one.rules for one in found.value if one.node == wish.node), None)
        before, places = usual(found.value), self._cluster.places()
        after = wish.applied(before, source)
        moved = await self._cluster.in_thread(lambda: place_changes(before, after, places))
        return self._render.page(
            request,
            "policy_change.html",
            status=409 if problem else 200,
            warnings=[str(error) for error in found.errors] + [sentence(error) for error in refusals],
            wish=wish,
            fields={key: given[key] for key in (*_FIELDS, "from", "delete") if key in given},
            apply=given.get("apply") == "true",
            groups=_groups(wish, found.value),
            moved=moved[:_MOST_PLACES],
            moved_count=_counted(moved),
            more=max(0, len(moved) - _MOST_PLACES),
            seen=seen(found.value),
            problem=problem,
        )

    def _told(
        self,
        request: Request,
        wish: PolicyWish,
        told: Partial[list[str]],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> Response:
        what = {
            "copy": f"The policies of {wish.node} were copied",
            "delete": f"Policy {wish.name} was deleted",
            "set": f"Policy {wish.name} was set",
        }[wish.kind]
        text = f"{what} on {plural(len(told.value), 'node')}."
        refusals = tuple(sentence(error) for error in told.errors)
        results = dict.fromkeys(told.value, DONE)
        results |= {error.address: outcome(error) for error in told.errors}
        self._desk.note(
            request,
            f"{text} {'; '.join(refusals)}".strip(),
            {"copy": "copy_policies", "delete": "delete_policy", "set": "set_policy"}[wish.kind],
            node=wish.node,
            before=dict(before),
            after=dict(after),
            results=results,
            ok=bool(told.value),
            problem="" if told.value else "; ".join(refusals),
        )
        if told.failed and all(error.unreachable for error in told.errors):
            raise UpstreamError("nsqd", told.errors)
        return self._render.redirect(self._render.urls.page("policies"), PageNote(text, refusals))


@dataclass(slots=True)
class ChangeGroup:
    """Nodes on which a change has the same effect."""

    nodes: list[str]
    changes: list[RuleChange]


def _groups(wish: PolicyWish, nodes: Sequence[OnNode]) -> list[ChangeGroup]:
    """Group the nodes with the same changes; the largest group first."""
    source = next((one.rules for one in nodes if one.node == wish.node), None)
    found: dict[str, ChangeGroup] = {}
    for one in nodes:
        changes = rule_changes(one.rules, wish.applied(one.rules, source))
        found.setdefault(repr(changes), ChangeGroup([], changes)).nodes.append(one.node)
    return sorted(found.values(), key=lambda group: -len(group.nodes))


def _wish(given: Fields) -> PolicyWish:
    """Read a form. Raises ValueError with a sentence; only the nodes check what a policy means."""
    if given.get("from"):
        return PolicyWish("copy", node=given["from"])
    if given.get("delete"):
        return PolicyWish("delete", given["delete"])
    if not given.get("name"):
        raise ValueError("A policy needs a name.")
    try:
        definition = json.loads(given.get("definition", ""))
        priority = int(given.get("priority") or "0")
    except (ValueError, RecursionError):
        raise ValueError("A definition is a JSON object, and a priority a whole number.") from None
    if not isinstance(definition, dict):
        raise ValueError("A definition is a JSON object.")  # noqa: TRY004 - a sentence for the form
    said = {
        "topic": given.get("topic", ""),
        "channel": given.get("channel", ""),
        "priority": priority,
        "definition": definition,
    }
    return PolicyWish("set", given["name"], said)


def _listed(nodes: Sequence[OnNode]) -> list[dict[str, Any]]:
    """Return each different policy with the nodes that have it, in the order in which they count."""
    found: dict[str, dict[str, Any]] = {}
    for one in nodes:
        for rule in one.rules:
            row = {**rule.to_json(), "definition": json.dumps(dict(rule.definition), sort_keys=True)}
            known = found.setdefault(json.dumps(row, sort_keys=True), {**row, "nodes": [], "files": 0})
            known["nodes"].append(one.node)
            known["files"] += rule.in_file
    return sorted(found.values(), key=lambda row: (-row["priority"], row["name"]))


def _where(held: Sequence[PolicyPlace]) -> str:
    """Write the number of topics and channels for which a policy counts."""
    topics = sum(not channel for _, channel in held)
    return _both(topics, len(held) - topics)


def _counted(moved: Sequence[PlaceChange]) -> str:
    topics = sum(not one.channel for one in moved)
    return _both(topics, len(moved) - topics)


def _both(topics: int, channels: int) -> str:
    parts = [plural(number, word) for number, word in ((topics, "topic"), (channels, "channel")) if number]
    return ", ".join(parts) or "nothing"
