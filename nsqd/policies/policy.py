"""Policies, and which of them is in force for a topic or channel.

Of several policies that match, only the one with the highest priority counts, as in RabbitMQ: definitions are
never mixed. Of equal priorities the first by name counts. A policy without a channel pattern is about topics
and all their channels; one with a channel pattern is about the channels that match, and about no topic.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from nsqclient.wire.names import is_valid_name
from nsqd.engine.settings import NOTHING, Settings
from nsqd.policies.definition import TOPICS_OWN, BadPolicy, understand
from nsqd.protocol.patterns import BadPattern, Pattern

# All are checked when a topic or channel is created, and for every topic and channel when one changes.
MAX_POLICIES: Final = 200
_PRIORITIES: Final = range(-(1 << 31), 1 << 31)
_FIELDS: Final = ("topic", "channel", "priority", "definition")


class Policy:
    """One policy, understood."""

    __slots__ = ("_channel", "_topic", "channel", "definition", "name", "priority", "settings", "topic")

    def __init__(self, name: Any, said: Any) -> None:
        """*said* has ``topic`` and ``definition``, and may have ``channel`` and ``priority``.

        Raises BadPolicy.
        """
        if not isinstance(name, str) or not is_valid_name(name):
            raise BadPolicy(f"policy {name!r}: a name is 1 to 64 of the characters .a-zA-Z0-9_-")
        try:
            self._understand(name, said)
        except BadPolicy as error:
            raise BadPolicy(f"policy {name}: {error}") from error

    def _understand(self, name: str, said: Any) -> None:
        if not isinstance(said, Mapping):
            raise BadPolicy("it must be a table with topic and definition")
        for key in said:
            if key not in _FIELDS:
                raise BadPolicy(f"there is no {key!r} in a policy; settings belong into its definition")
        self.name = name
        self.topic = said.get("topic", "")
        self.channel = said.get("channel") or ""
        self.priority = said.get("priority", 0)
        if not isinstance(self.priority, int) or isinstance(self.priority, bool):
            raise BadPolicy(f"priority must be a whole number, not {self.priority!r}")
        if self.priority not in _PRIORITIES:
            raise BadPolicy(f"priority {self.priority} is out of range")
        if self.topic == "":
            raise BadPolicy("topic is missing: a pattern of topic names, '.*' for all")
        self._topic = _pattern("topic", self.topic)
        self._channel = _pattern("channel", self.channel) if self.channel else None
        if "definition" not in said:
            raise BadPolicy("definition is missing")
        self.settings = understand(said["definition"])
        self.definition: dict[str, Any] = dict(said["definition"])
        if self.channel:
            for key in TOPICS_OWN:
                if key in self.definition:
                    raise BadPolicy(f"{key} is about a topic, but channel says which channels are meant")

    def __repr__(self) -> str:
        return f"<Policy {self.name} priority {self.priority}>"

    def matches(self, topic_name: str, channel_name: str) -> bool:
        """Whether the policy is about the channel, or about the topic when *channel_name* is empty."""
        if self._channel is not None and not (channel_name and self._channel.occurs_in(channel_name)):
            return False
        return self._topic.occurs_in(topic_name)

    def to_json(self) -> dict[str, Any]:
        """The policy as it is written in JSON, without its name."""
        return {
            "topic": self.topic,
            "channel": self.channel,
            "priority": self.priority,
            "definition": self.definition,
        }


class PolicySet:
    """All policies of a node, in the order in which they count."""

    __slots__ = ("_ordered",)

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        """Raises BadPolicy when there are too many."""
        self._ordered = sorted(policies, key=lambda policy: (-policy.priority, policy.name))
        if len(self._ordered) > MAX_POLICIES:
            raise BadPolicy(f"there can be {MAX_POLICIES} policies, not {len(self._ordered)}")

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._ordered)

    def in_force(self, topic_name: str, channel_name: str) -> Policy | None:
        """The policy that counts for the topic, or for one of its channels."""
        for policy in self._ordered:
            if policy.matches(topic_name, channel_name):
                return policy
        return None

    def settings_for(self, topic_name: str, channel_name: str) -> Settings:
        """The settings of the policy that counts."""
        policy = self.in_force(topic_name, channel_name)
        return NOTHING if policy is None else policy.settings

    def digest(self) -> str:
        """A text that is the same on two nodes that have the same policies."""
        said = [[policy.name, policy.to_json()] for policy in self._ordered]
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pattern(what: str, text: Any) -> Pattern:
    if not isinstance(text, str):
        raise BadPolicy(f"{what} must be a pattern, not {text!r}")
    try:
        return Pattern(text)
    except BadPattern as error:
        raise BadPolicy(f"{what} is no pattern: {error}") from error
