"""The policies of all nsqds: what each has, who differs, and setting the same on all of them."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import NODE_NOT_FOUND, Cluster
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.fanout import Partial, ask_all
from nsqcore.cluster.models import NodePolicies


@dataclass(frozen=True, slots=True)
class OnNode:
    """What one node has; *differs* from what most have."""

    node: str
    policies: NodePolicies
    differs: bool

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "node": self.node,
            "digest": self.policies.digest,
            "differs": self.differs,
            "policies": list(self.policies.policies),
        }
        if self.policies.in_force is not None:
            shown["in_force"] = self.policies.in_force
        return shown


class ClusterPolicies:
    """Asks and tells the nsqds of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def on_nodes(self, topic: str = "", channel: str = "") -> Answer[list[OnNode]]:
        """What each node has, and what is in force for a topic or channel there."""
        producers = await self._cluster.producers()
        told = await ask_all(
            [self._cluster.nsqd(producer.http_address) for producer in producers.value],
            lambda nsqd: nsqd.policies(topic=topic, channel=channel),
        )
        digests = Counter(policies.digest for _, policies in told.value)
        usual = digests.most_common(1)[0][0] if digests else ""
        found = [OnNode(nsqd.address, policies, policies.digest != usual) for nsqd, policies in told.value]
        return Answer(found, (*producers.stages, told.errors))

    async def copy(self, node: str, *, apply: bool) -> Partial[list[str]]:
        """Give all nodes the policies of one of them."""
        found = await self.on_nodes()
        of_node = next((one for one in found.value if one.node == node), None)
        if of_node is None:
            raise UnknownError(NODE_NOT_FOUND)
        content = json.dumps({"policies": list(of_node.policies.policies)}).encode()
        return await self._put(content, "", apply=apply)

    async def put(self, name: str, said: Mapping[str, Any], *, apply: bool) -> Partial[list[str]]:
        """Set one policy on all nodes."""
        return await self._put(json.dumps(said).encode(), name, apply=apply)

    async def _put(self, content: bytes, name: str, *, apply: bool) -> Partial[list[str]]:
        producers = await self._cluster.producers()
        told = await ask_all(
            [self._cluster.nsqd(producer.http_address) for producer in producers.value],
            lambda nsqd: nsqd.put_policies(content, name=name, apply=apply),
        )
        if told.failed and all(error.unreachable for error in told.errors):
            raise UpstreamError("nsqd", told.errors)
        return told.map(lambda answers: [nsqd.address for nsqd, _ in answers])


def sentence(error: NodeError) -> str:
    """Why a node did not do it, in its own words."""
    return f"{error.address}: {error.code or error.reason}"
