"""The policies of all nsqds: which each has, which nsqds differ, and the same change on all of them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from nsqadmin.changes.audit import outcome
from nsqadmin.collecting.answers import Answer, UnknownError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.known import NODE_NOT_FOUND
from nsqadmin.figures.policies import PolicyRule, PolicyRules
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import Partial, ask_all
from nsqcore.cluster.models import NodePolicies
from nsqcore.cluster.nsqd_api import NsqdApi


@dataclass(frozen=True)
class OnNode:
    """The policies of one node; *differs* says that most nodes have others."""

    node: str
    policies: NodePolicies
    differs: bool

    @cached_property
    def rules(self) -> PolicyRules:
        return PolicyRules(PolicyRule.of(one) for one in self.policies.policies)

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


@dataclass(frozen=True, slots=True)
class PolicyWish:
    """A change wanted on all nodes: to set one policy, to delete one, or to copy those of one node."""

    kind: str
    name: str = ""
    said: Mapping[str, Any] | None = None
    node: str = ""

    def applied(self, rules: PolicyRules, source: PolicyRules | None) -> PolicyRules:
        """Return the rules that a node with *rules* has afterwards; *source* are those of the named node."""
        if self.kind == "copy":
            return rules.copied_from(source) if source is not None else rules
        if self.kind == "delete":
            return rules.without(self.name)
        return rules.with_rule(PolicyRule.of(self.said or {}, self.name))

    def concerned(self, rules: PolicyRules) -> dict[str, Any]:
        """Return what the audit says of *rules*: the fields of the policy, or the names of all policies."""
        if self.kind == "copy":
            return {"policies": ", ".join(sorted(rule.name for rule in rules))}
        rule = rules.named(self.name)
        return {"policy": self.name, **(rule.says() if rule is not None else {})}


def usual(nodes: Sequence[OnNode]) -> PolicyRules:
    """Return the rules that most nodes have."""
    return next((one.rules for one in nodes if not one.differs), PolicyRules(()))


def seen(nodes: Sequence[OnNode]) -> str:
    """Return a digest that changes when the policies of any node change."""
    told = sorted((one.node, one.policies.digest) for one in nodes)
    return sha256(json.dumps(told).encode()).hexdigest()[:16]


class ClusterPolicies:
    """Reads and changes the policies of the cluster's nsqds."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def on_nodes(self, topic: str = "", channel: str = "") -> Answer[list[OnNode]]:
        """Return the policies of each node, and which are in force there for a topic or channel."""
        nsqds = await self._cluster.answering_nsqds()
        told = await ask_all(nsqds.value, lambda nsqd: nsqd.policies(topic=topic, channel=channel))
        digests = Counter(policies.digest for _, policies in told.value)
        most = digests.most_common(1)[0][0] if digests else ""
        found = [OnNode(nsqd.address, policies, policies.digest != most) for nsqd, policies in told.value]
        return Answer(found, (*nsqds.stages, told.errors))

    async def check(self, wish: PolicyWish) -> tuple[NodeError, ...]:
        """Return the refusals of the nodes, if the policy in *wish* were set."""
        content = json.dumps(wish.said).encode()
        nsqds = await self._cluster.answering_nsqds()
        told = await ask_all(nsqds.value, lambda one: one.put_policies(content, name=wish.name, dry=True))
        return tuple(error for error in told.errors if not error.unreachable)

    async def carry_out(
        self, wish: PolicyWish, nodes: Sequence[OnNode], *, apply: bool
    ) -> Partial[list[str]]:
        """Make the change on all nodes; *nodes* is what they have now.

        One whose answer does not come in time may make it later, so the caller tells of it in any case.
        """
        content = json.dumps(wish.said).encode()
        name = wish.name
        if wish.kind == "copy":
            source = next((one for one in nodes if one.node == wish.node), None)
            if source is None:
                raise UnknownError(NODE_NOT_FOUND)
            content, name = json.dumps({"policies": list(source.policies.policies)}).encode(), ""

        async def tell(nsqd: NsqdApi) -> None:
            if wish.kind == "delete":
                await nsqd.delete_policy(name, apply=apply)
            else:
                await nsqd.put_policies(content, name=name, apply=apply)

        nsqds = await self._cluster.nsqds_now()
        told = await ask_all(nsqds.value, tell)
        return told.map(lambda answers: [nsqd.address for nsqd, _ in answers])


def sentence(error: NodeError) -> str:
    """Say why a node did not make the change, in the node's own words."""
    return f"{error.address}: {outcome(error)}"
