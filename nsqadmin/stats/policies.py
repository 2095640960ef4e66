"""Policies as sets: which one is in force where and why, and the effect of a change; PURE.

The rule is nsqd's: of several matching policies only the one with the highest priority counts, among equals
the first by name. A policy without a channel pattern applies to topics and all their channels.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from nsqcore.patterns import PatternError, Search, search_for

# A topic and a channel; the channel is empty for the topic itself.
PolicySubject = tuple[str, str]

# The fields of a policy outside its definition.
_ABOUT: Final = ("topic", "channel", "priority")


@dataclass(frozen=True)
class PolicyRule:
    """One policy of one node, as the node reports it. If its patterns are invalid, it matches nothing."""

    name: str
    topic: str
    channel: str
    priority: int
    definition: Mapping[str, Any]
    in_file: bool = False

    @classmethod
    def of(cls, reported: Mapping[str, Any], name: str = "") -> "PolicyRule":
        priority, definition = reported.get("priority", 0), reported.get("definition")
        return cls(
            name or str(reported.get("name", "")),
            str(reported.get("topic", "")),
            str(reported.get("channel") or ""),
            priority if isinstance(priority, int) else 0,
            definition if isinstance(definition, Mapping) else {},
            reported.get("from") == "file",
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
        """Whether it applies to the channel, or to the topic if *channel* is empty."""
        if self._patterns is None:
            return False
        of_topic, of_channel = self._patterns
        if of_channel is not None and not (channel and of_channel(channel)):
            return False
        # A topic is tested once for each of its channels, so the result is cached.
        known = self._seen.get(topic)
        if known is None:
            known = self._seen[topic] = of_topic(topic)
        return known

    def fields(self) -> dict[str, Any]:
        """All its fields in one flat mapping."""
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
    """All policies of one node, in the order in which they count."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._ordered = sorted(rules, key=lambda rule: (-rule.priority, rule.name))

    def __iter__(self) -> Iterator[PolicyRule]:
        return iter(self._ordered)

    def named(self, name: str) -> PolicyRule | None:
        return next((rule for rule in self._ordered if rule.name == name), None)

    def matching(self, topic: str, channel: str) -> list[PolicyRule]:
        """The policies that match the place; only the first of them counts."""
        return [rule for rule in self._ordered if rule.matches(topic, channel)]

    def in_force(self, topic: str, channel: str) -> PolicyRule | None:
        return next((rule for rule in self._ordered if rule.matches(topic, channel)), None)

    def with_rule(self, rule: PolicyRule) -> "PolicyRules":
        return PolicyRules([*(one for one in self._ordered if one.name != rule.name), rule])

    def without(self, name: str) -> "PolicyRules":
        return PolicyRules(one for one in self._ordered if one.name != name)

    def copied_from(self, other: "PolicyRules") -> "PolicyRules":
        """Return the rules of *other*, except that rules from the node's own file stay as they are."""
        own = [one for one in self._ordered if one.in_file]
        names = {one.name for one in own}
        return PolicyRules([*own, *(one for one in other if one.name not in names)])


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a policy before and after; None means that it is not set."""

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
class SubjectChange:
    """A topic or channel for which another definition is in force afterwards."""

    topic: str
    channel: str
    before: str
    after: str

    @property
    def subject(self) -> str:
        return f"{self.topic}/{self.channel}" if self.channel else self.topic


def rule_changes(before: PolicyRules, after: PolicyRules) -> list[RuleChange]:
    """Return the differences of *after* from *before*, policy by policy."""
    names = dict.fromkeys([*(one.name for one in after), *(one.name for one in before)])
    found = []
    for name in names:
        old, new = before.named(name), after.named(name)
        said = old.fields() if old is not None else {}, new.fields() if new is not None else {}
        fields = tuple(
            FieldChange(key, said[0].get(key), said[1].get(key))
            for key in dict.fromkeys([*said[1], *said[0]])
        )
        if any(one.is_other for one in fields):
            word = "new" if old is None else "deleted" if new is None else "changed"
            found.append(RuleChange(name, word, fields))
    return found


def subject_changes(
    before: PolicyRules, after: PolicyRules, places: Iterable[PolicySubject]
) -> list[SubjectChange]:
    """Return the *places* whose definition in force differs in *after*."""
    found = []
    for topic, channel in places:
        old, new = before.in_force(topic, channel), after.in_force(topic, channel)
        said = old.definition if old is not None else {}, new.definition if new is not None else {}
        if said[0] != said[1]:
            found.append(SubjectChange(topic, channel, old.name if old else "", new.name if new else ""))
    return found


def governed(rules: PolicyRules, places: Iterable[PolicySubject]) -> dict[str, list[PolicySubject]]:
    """Return the places where each policy counts, by its name; policies that count nowhere are left out."""
    found: dict[str, list[PolicySubject]] = {}
    for topic, channel in places:
        rule = rules.in_force(topic, channel)
        if rule is not None:
            found.setdefault(rule.name, []).append((topic, channel))
    return found
