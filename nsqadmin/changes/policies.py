"""The policies of all nsqds: those of each, the nsqds that differ, and the effect of a change on all."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Self

from nsqadmin.collecting.answers import Answer
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.stats.policies import PolicyRule, PolicyRules
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import call_all
from nsqcore.cluster.models import NodePolicies


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
class PolicyChange:
    """A change wanted on all nodes: to set one policy, to delete one, or to copy those of one node."""

    kind: str
    name: str = ""
    definition: Mapping[str, Any] | None = None
    node: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str], kind: str) -> Self:
        """Read a form. Raises ValueError with a sentence; only the nodes check what a policy means."""
        if kind == "copy":
            return cls(kind, node=fields.get("node", ""))
        name = fields.get("name", "")
        if not name:
            raise ValueError("A policy needs a name.")
        if kind == "delete":
            return cls(kind, name)
        try:
            definition = json.loads(fields.get("definition", ""))
            priority = int(fields.get("priority") or "0")
        except (ValueError, RecursionError):
            raise ValueError("A definition is a JSON object, and a priority a whole number.") from None
        if not isinstance(definition, dict):
            raise ValueError("A definition is a JSON object.")  # noqa: TRY004 - a sentence for the form
        place = {key: fields.get(key, "") for key in ("topic", "channel")}
        return cls(kind, name, {**place, "priority": priority, "definition": definition})

    def applied(self, rules: PolicyRules, source: PolicyRules | None) -> PolicyRules:
        """Return the rules that a node with *rules* has afterwards; *source* are those of the named node."""
        if self.kind == "copy":
            return rules.copied_from(source) if source is not None else rules
        if self.kind == "delete":
            return rules.without(self.name)
        return rules.with_rule(PolicyRule.of(self.definition or {}, self.name))

    def concerned(self, rules: PolicyRules) -> dict[str, Any]:
        """Return the audit text for *rules*: the fields of the policy, or the names of all policies."""
        if self.kind == "copy":
            return {"policies": ", ".join(sorted(rule.name for rule in rules))}
        rule = rules.named(self.name)
        return {"policy": self.name, **(rule.fields() if rule is not None else {})}


def usual(nodes: Sequence[OnNode]) -> PolicyRules:
    """Return the rules that most nodes have."""
    return next((one.rules for one in nodes if not one.differs), PolicyRules(()))


def digest_of(nodes: Sequence[OnNode]) -> str:
    """Return a digest that changes when the policies of any node change."""
    digests = sorted((one.node, one.policies.digest) for one in nodes)
    return sha256(json.dumps(digests).encode()).hexdigest()[:16]


class ClusterPolicies:
    """Reads the policies of the cluster's nsqds."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def on_nodes(self, topic: str = "", channel: str = "") -> Answer[list[OnNode]]:
        """Return the policies of each node, and which are in force there for a topic or channel."""
        nsqds = await self._cluster.answering_nsqds()
        answers = await call_all(nsqds.value, lambda nsqd: nsqd.policies(topic=topic, channel=channel))
        digests = Counter(policies.digest for _, policies in answers.value)
        most = digests.most_common(1)[0][0] if digests else ""
        found = [OnNode(nsqd.address, policies, policies.digest != most) for nsqd, policies in answers.value]
        return Answer(found, (*nsqds.stages, answers.errors))

    async def check(self, change: PolicyChange) -> tuple[NodeError, ...]:
        """Return the refusals of the nodes, if the policy in *change* were set."""
        content = json.dumps(change.definition).encode()
        nsqds = await self._cluster.answering_nsqds()
        answers = await call_all(
            nsqds.value, lambda one: one.put_policies(content, name=change.name, dry=True)
        )
        return tuple(error for error in answers.errors if not error.unreachable)
