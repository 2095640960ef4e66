"""The page of policies, and its forms; ``format=json`` and a body of JSON for programs."""

import json
from typing import Any, Final
from urllib.parse import parse_qs

from nsqadmin.changes.desk import Desk
from nsqadmin.changes.policies import ClusterPolicies, OnNode, sentence
from nsqadmin.collecting.answers import Answer
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.figures.present import plural
from nsqadmin.pages.render import PageNote, Renderer
from nsqadmin.pages.replies import Replies
from nsqcore.cluster.fanout import Partial
from nsqcore.http.api import Request, Response, json_reply
from nsqcore.http.router import Route

_BODY_LIMIT: Final = 1 << 20
_ACTION: Final = "policies"


class PoliciesPage:
    """``/policies``: GET shows what each node has, POST sets it on all."""

    def __init__(self, cluster: Cluster, desk: Desk, replies: Replies, render: Renderer) -> None:
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
        found = await self._policies.on_nodes(topic, channel if topic else "")
        if request.query.get("format") == "json":
            nodes = [one.to_json() for one in found.value]
            return json_reply({"nodes": nodes, "message": found.message})
        return self._page(request, found, topic, channel)

    def _page(
        self, request: Request, found: Answer[list[OnNode]], topic: str, channel: str, **fields: str
    ) -> Response:
        empty = {"name": "", "topic": "", "channel": "", "priority": "0", "definition": "", "problem": ""}
        return self._render.page(
            request,
            "policies.html",
            status=400 if fields else 200,
            warnings=[str(error) for error in found.errors],
            nodes=found.value,
            listed=_listed(found.value),
            asked_topic=topic,
            asked_channel=channel,
            fields=empty | fields,
        )

    async def change(self, request: Request) -> Response:
        """Copy what one node has to all, or set one policy on all."""
        self._desk.check(request, _ACTION)
        body = (await request.read(_BODY_LIMIT)).decode("utf-8", "replace")
        fields = {key: values[0] for key, values in parse_qs(body, keep_blank_values=True).items()}
        apply = fields.get("apply") == "true"
        if fields.get("from"):
            told = await self._policies.copy(fields["from"], apply=apply)
            what = f"The policies of {fields['from']} were copied"
        else:
            try:
                said = _said(fields)
            except ValueError as error:
                found = await self._policies.on_nodes()
                fields["problem"] = str(error)
                known = ("name", "topic", "channel", "priority", "definition", "problem")
                return self._page(
                    request, found, "", "", **{key: fields[key] for key in known if key in fields}
                )
            told = await self._policies.put(fields.get("name", ""), said, apply=apply)
            what = f"Policy {fields.get('name', '')} was set"
        return self._told(request, what, told)

    def _told(self, request: Request, what: str, told: Partial[list[str]]) -> Response:
        text = f"{what} on {plural(len(told.value), 'node')}."
        refusals = tuple(sentence(error) for error in told.errors)
        self._desk.note(request, f"{text} {'; '.join(refusals)}".strip(), _ACTION)
        return self._render.redirect(self._render.urls.page("policies"), PageNote(text, refusals))


def _said(fields: dict[str, str]) -> dict[str, Any]:
    """The policy of a form. Raises ValueError with a sentence; what it means is the nodes' to judge."""
    if not fields.get("name"):
        raise ValueError("A policy needs a name.")
    try:
        definition = json.loads(fields.get("definition", ""))
        priority = int(fields.get("priority") or "0")
    except (ValueError, RecursionError):
        raise ValueError("A definition is a JSON object, and a priority a whole number.") from None
    if not isinstance(definition, dict):
        raise ValueError("A definition is a JSON object.")  # noqa: TRY004 - a sentence for the form
    return {
        "topic": fields.get("topic", ""),
        "channel": fields.get("channel", ""),
        "priority": priority,
        "definition": definition,
    }


def _listed(nodes: list[OnNode]) -> list[dict[str, Any]]:
    """Each policy as some nodes have it, with those nodes; by which counts first."""
    found: dict[str, dict[str, Any]] = {}
    for one in nodes:
        for policy in one.policies.policies:
            definition = policy.get("definition", {})
            row = {
                "name": str(policy.get("name", "")),
                "topic": str(policy.get("topic", "")),
                "channel": str(policy.get("channel", "")),
                "priority": policy.get("priority", 0),
                "definition": json.dumps(definition, sort_keys=True),
            }
            known = found.setdefault(json.dumps(row, sort_keys=True), {**row, "nodes": [], "files": 0})
            known["nodes"].append(one.node)
            known["files"] += policy.get("from") == "file"
    return sorted(found.values(), key=lambda row: (-_number(row["priority"]), row["name"]))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
