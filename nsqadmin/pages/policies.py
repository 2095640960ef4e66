"""The page of policies: the policy in force for each topic and channel, and the reason."""

import json
from collections.abc import Sequence
from typing import Any

from nsqadmin.changes.policies import OnNode, usual
from nsqadmin.changes.policy_actions import counted
from nsqadmin.pages.replies import Pages
from nsqadmin.stats.policies import governed
from nsqcore.http.api import Request, Response, json_reply
from nsqcore.http.router import Route


class PoliciesPage(Pages):
    """``/policies``."""

    def routes(self) -> list[Route]:
        return self.routes_of([("/policies", self.show)])

    async def show(self, request: Request) -> Response:
        topic, channel = request.query.get("topic", ""), request.query.get("channel", "")
        channel = channel if topic else ""
        found = await self._runner.scene.policies.on_nodes(topic, channel)
        if request.query.get("format") == "json":
            nodes = [one.to_json() for one in found.value]
            return json_reply({"nodes": nodes, "message": found.message})
        rules, places = usual(found.value), self._cluster.topics_and_channels()
        counts = await self._cluster.collector.work.for_reader(lambda: governed(rules, places))
        topics = {name: sum(not channel for _, channel in held) for name, held in counts.items()}
        return self._render.page(
            request,
            "policies.html",
            warnings=[str(error) for error in found.errors],
            nodes=found.value,
            listed=_listed(found.value),
            counts={name: counted(topics[name], len(held) - topics[name]) for name, held in counts.items()},
            asked_topic=topic,
            asked_channel=channel,
            why={one.node: one.rules.matching(topic, channel) for one in found.value} if topic else {},
        )


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
