"""Policies as sets: what is in force where and why, and what a change of them would change; PURE.

The rule is nsqd's: of several that match the one with the highest priority counts alone, of equal ones the
first by name. One without a channel pattern is about topics and all their channels.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from nsqcore.patterns import PatternError, Search, search_for

# A topic and a channel, or a topic and nothing.
PolicyPlace = tuple[str, str]

# Where something has another value, and what it was and will be; None where it is not said.
_ABOUT: Final = ("topic", "channel", "priority")


@dataclass(frozen=True)
class PolicyRule:
    """One policy of one node, as it tells it. What cannot be understood here matches nothing."""

    name: str
    topic: str
    channel: str
    priority: int
    definition: Mapping[str, Any]
    in_file: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any], name: str = "") -> "PolicyRule":
        priority, definition = told.get("priority", 0), told.get("definition")
        return cls(
            name or str(told.get("name", "")),
            str(told.get("topic", "")),
            str(told.get("channel") or ""),
            priority if isinstance(priority, int) else 0,
            definition if isinstance(definition, Mapping) else {},
            told.get("from") == "file",
        )

    @cached_property
    def _patterns(self) -> tuple[Search, Search | None] | None:
        try:
            return search_for(self.topic), search_for(self.channel) if self.channel else None
        except PatternError:
            return None

    @cached_property
    def _seen(self) -> dict[str, bool]:
        return {}

    def matches(self, topic: str, channel: str) -> bool:
        """Whether it is about the channel, or about the topic when *channel* is empty."""
        if self._patterns is None:
            return False
        of_topic, of_channel = self._patterns
        if of_channel is not None and not (channel and of_channel(channel)):
            return False
        # A topic is asked about once for each of its channels.
        known = self._seen.get(topic)
        if known is None:
            known = self._seen[topic] = of_topic(topic)
        return known

    def says(self) -> dict[str, Any]:
        """All that it says, in one level."""
        return {key: getattr(self, key) for key in _ABOUT} | {
            f"definition.{key}": value for key, value in self.definition.items()
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "topic": self.topic,
            "channel": self.channel,
            "priority": self.priority,
            "definition": dict(self.definition),
        }


class PolicyRules:
    """All policies of one node, by which counts first."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._ordered = sorted(rules, key=lambda rule: (-rule.priority, rule.name))

    def __iter__(self) -> Iterator[PolicyRule]:
        return iter(self._ordered)

    def named(self, name: str) -> PolicyRule | None:
        return next((rule for rule in self._ordered if rule.name == name), None)

    def matching(self, topic: str, channel: str) -> list[PolicyRule]:
        """Those that are about the place; the first of them counts, the others do not."""
        return [rule for rule in self._ordered if rule.matches(topic, channel)]

    def in_force(self, topic: str, channel: str) -> PolicyRule | None:
        return next((rule for rule in self._ordered if rule.matches(topic, channel)), None)

    def with_rule(self, rule: PolicyRule) -> "PolicyRules":
        return PolicyRules([*(one for one in self._ordered if one.name != rule.name), rule])

    def without(self, name: str) -> "PolicyRules":
        return PolicyRules(one for one in self._ordered if one.name != name)

    def copied_from(self, other: "PolicyRules") -> "PolicyRules":
        """Those of *other*, but what a node has from its own file stays as it is."""
        own = [one for one in self._ordered if one.in_file]
        names = {one.name for one in own}
        return PolicyRules([*own, *(one for one in other if one.name not in names)])


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One thing that a policy says, before and after; None is that it does not say it."""

    key: str
    before: Any
    after: Any

    @property
    def is_other(self) -> bool:
        return bool(self.before != self.after)


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One policy before and after, field by field."""

    name: str
    word: str
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """A topic or channel for which something else is in force afterwards."""

    topic: str
    channel: str
    before: str
    after: str

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.channel}" if self.channel else self.topic


def rule_changes(before: PolicyRules, after: PolicyRules) -> list[RuleChange]:
    """Return what is other in *after*, policy by policy."""
    names = dict.fromkeys([*(one.name for one in after), *(one.name for one in before)])
    found = []
    for name in names:
        old, new = before.named(name), after.named(name)
        said = old.says() if old is not None else {}, new.says() if new is not None else {}
        fields = tuple(
            FieldChange(key, said[0].get(key), said[1].get(key))
            for key in dict.fromkeys([*said[1], *said[0]])
        )
        if any(one.is_other for one in fields):
            word = "new" if old is None else "deleted" if new is None else "changed"
            found.append(RuleChange(name, word, fields))
    return found


def place_changes(
    before: PolicyRules, after: PolicyRules, places: Iterable[PolicyPlace]
) -> list[PlaceChange]:
    """Return the *places* for which another policy counts in *after*, or one that says something else."""
    found = []
    for topic, channel in places:
        old, new = before.in_force(topic, channel), after.in_force(topic, channel)
        said = old.definition if old is not None else {}, new.definition if new is not None else {}
        if said[0] != said[1]:
            found.append(PlaceChange(topic, channel, old.name if old else "", new.name if new else ""))
    return found


def governed(rules: PolicyRules, places: Iterable[PolicyPlace]) -> dict[str, list[PolicyPlace]]:
    """Return for each policy that counts somewhere where it does."""
    found: dict[str, list[PolicyPlace]] = {}
    for topic, channel in places:
        rule = rules.in_force(topic, channel)
        if rule is not None:
            found.setdefault(rule.name, []).append((topic, channel))
    return found
