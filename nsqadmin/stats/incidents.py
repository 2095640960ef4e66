"""Problems grouped by their cause, one card each; PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsqadmin.stats.activity import LastConsumers
from nsqadmin.stats.present import plural
from nsqadmin.stats.problems import (
    DEAD_LETTERS,
    DISK,
    NO_CONSUMERS,
    UNDER_REPLICATED,
    Level,
    Problem,
    worst_first,
)

# The causes in the order of checking, each with its text for one subject and for several.
_CAUSES: Final = {
    "down": ("is down", "nodes are down"),
    "unreachable": ("is unreachable", "nodes are unreachable"),
    "no statistics": ("gives no statistics", "nodes give no statistics"),
    "not registered": ("is not registered", "nodes are not registered"),
    "returned": ("is back without its consumers", "nodes are back without their consumers"),
    "no nodes": ("No nsqd is registered", ""),
    "unhealthy": ("is unhealthy", "nodes are unhealthy"),
    UNDER_REPLICATED: ("is under-replicated", "nodes are under-replicated"),
    "nsqlookupd down": ("does not answer", "nsqlookupds do not answer"),
    DISK: ("has little disk space", "nodes have little disk space"),
    DEAD_LETTERS: ("has dead letters", "topics and channels have dead letters"),
    NO_CONSUMERS: ("has no consumers", "channels have no consumers"),
    "over limit": ("is over its limit", "channels are over their limit"),
    "stuck": ("is stuck", "channels are stuck"),
    "growing": ("is growing", "channels are growing"),
    "timing out": ("has messages that time out", "channels have messages that time out"),
    "no channel": ("has no channel", "topics have no channel"),
    "draining": ("is draining", "nodes are draining"),
    "paused": ("is paused", "topics and channels are paused"),
}
_ORDER: Final = {kind: place for place, kind in enumerate(_CAUSES)}
# More nodes with the same problem share a card.
_MAX_NODES: Final = 3


@dataclass(frozen=True, slots=True)
class IncidentPart:
    """The problems of a card about channels of one name, or about one topic or node."""

    name: str
    problems: Sequence[Problem]

    @property
    def topics(self) -> int:
        return len({one.topic for one in self.problems})

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.problems)

    @property
    def consumers(self) -> LastConsumers | None:
        """The consumers that left last."""
        seen = [one.consumers for one in self.problems if one.consumers is not None]
        return max(seen, key=lambda one: one.at_s, default=None)


@dataclass(frozen=True, slots=True)
class Incident:
    """The content of one card: problems of one cause, the worst first."""

    kind: str
    problems: Sequence[Problem]

    @property
    def only(self) -> Problem | None:
        """The problem of a card about one subject."""
        return self.problems[0] if len(self.problems) == 1 else None

    @property
    def level(self) -> Level:
        return self.problems[0].level

    @property
    def since_s(self) -> float:
        """When the first of them began; zero if that is not known."""
        return min((one.since_s for one in self.problems if one.since_s), default=0.0)

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.problems)

    @property
    def subject(self) -> str:
        """The topic, channel or node of a card about one subject, else their number."""
        if self.only is None:
            return f"{len(self.problems):,}"
        return " / ".join(filter(None, (self.only.topic, self.only.channel))) or self.only.node

    @property
    def phrase(self) -> str:
        """The text about the subject."""
        one, several = _CAUSES.get(self.kind, (f": {self.kind}", f"problems: {self.kind}"))
        return one if self.only is not None else several

    @property
    def title(self) -> str:
        return f"{self.subject} {self.phrase}".strip()

    @property
    def impact(self) -> str:
        """The explanation: the sentence of the only problem, or the numbers of messages and topics."""
        if self.only is not None:
            return self.only.sentence
        topics = {one.topic for one in self.problems if one.topic}
        where = f" in {plural(len(topics), 'topic')}" if topics else ""
        kept = [one.last_known for one in self.problems if one.last_known]
        known = f" ({len(kept):,} of them last known: {kept[0]})" if kept else ""
        return f"{plural(self.messages, 'message')}{where}{known}"

    @property
    def parts(self) -> list[IncidentPart]:
        """The problems by channel name, topic or node, most messages first."""
        found: dict[str, list[Problem]] = {}
        for one in self.problems:
            found.setdefault(one.channel or one.topic or one.node, []).append(one)
        parts = [IncidentPart(name, problems) for name, problems in found.items()]
        return sorted(parts, key=lambda part: (-part.messages, -len(part.problems), part.name))

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The name of the card: that of its only problem, or only the badge."""
        return self.only.key if self.only is not None else (self.kind, "", "", "")

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "level": self.level.name.lower(),
            "state": self.kind,
            "title": self.title,
            "impact": self.impact,
            "messages": self.messages,
            "count": len(self.problems),
        }
        return shown | ({"since": int(self.since_s)} if self.since_s else {})


def incidents(problems: Iterable[Problem]) -> list[Incident]:
    """Group the problems in *problems* by cause: level problem before warning, each in the order of causes.

    Up to three nodes with one problem have a card each.
    """
    by_kind: dict[str, list[Problem]] = {}
    ordered = worst_first(problems)
    # The dead letters of a channel are the backlog of a topic, which is not a second problem.
    counted = {
        f"{one.topic}.{one.channel}.dead" for one in ordered if one.channel and one.kind == DEAD_LETTERS
    }
    for one in ordered:
        if one.kind != DEAD_LETTERS or one.channel or one.topic not in counted:
            by_kind.setdefault(one.kind, []).append(one)
    found: list[Incident] = []
    for kind, some in by_kind.items():
        is_of_nodes = not some[0].topic
        if is_of_nodes and len(some) <= _MAX_NODES:
            found += [Incident(kind, (one,)) for one in some]
        else:
            found.append(Incident(kind, tuple(some)))
    return sorted(found, key=lambda one: (-one.level, _ORDER.get(one.kind, len(_ORDER)), -one.messages))
