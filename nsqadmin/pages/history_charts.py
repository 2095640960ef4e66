"""The history of the cluster, a topic, a channel or a node: charts for pages, numbers for scripts."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsqadmin.history.recorder import CHANGE, OVER, STARTED, Recorder, channel, node, point_of, ring_of, topic
from nsqadmin.history.ring import HOUR, TOTALS, HistoryEvent, Name, Ring
from nsqadmin.pages.charts import Chart, Series, chart, spark
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.points import Point
from nsqadmin.stats.problems import MILD


@dataclass(slots=True)
class TimelineEntry:
    """An entry of the timeline; ``ended_s`` is zero unless it is a problem that ended."""

    at_s: float
    kind: str
    text: str
    name: Name
    ended_s: float = 0.0
    # Problems of one kind that began together are one entry: how many they were, and how many last.
    count: int = 1
    lasting: int = 1
    # The problem that replaced it: then it is not over.
    became: str = ""

    @property
    def level(self) -> str:
        """The class of its marker: a change by a person, a recovery, or a problem."""
        if self.kind in {CHANGE, STARTED}:
            return self.kind
        return (
            "over"
            if (self.ended_s and not self.became) or self.kind.startswith(OVER)
            else "warning"
            if self.kind in MILD
            else "problem"
        )

    @property
    def place(self) -> str:
        """The object in words; a change names it itself."""
        if self.kind in {CHANGE, STARTED}:
            return ""
        others = f" and {self.count - 1:,} more" if self.count > 1 else ""
        return " / ".join(self.name[1:]) + others

    def to_json(self) -> dict[str, Any]:
        return {
            "at": round(self.at_s),
            "kind": self.kind,
            "text": self.text,
            "name": list(self.name),
            "count": self.count,
        }


Value = Callable[[Point], float | None]

_PUBLISHED: Final[Value] = lambda point: point.published  # noqa: E731 - a short name for a column of the history
_FINISHED: Final[Value] = lambda point: point.finished  # noqa: E731
_DEPTH: Final[Value] = lambda point: point.depth  # noqa: E731
_AGE: Final[Value] = lambda point: point.age_s  # noqa: E731
_MORE: Final[Value] = lambda point: point.more  # noqa: E731

# The charts of each kind: key, title, and the lines.
_FLOW: Final = ("flow", "Messages / s", (("in", _PUBLISHED), ("out", _FINISHED)))
_WAITING: Final = ("waiting", "Backlog", (("waiting", _DEPTH),))
_OLDEST: Final = ("oldest", "Oldest message (s)", (("oldest", _AGE),))
_FLIGHT: Final = ("flight", "Messages in flight", (("in flight", _MORE),))
_NODES: Final = ("nodes", "Nodes up", (("nodes", _MORE),))
_OF_TOTALS: Final = (_FLOW, _WAITING, _OLDEST, _NODES)
_OF_OTHERS: Final = (_FLOW, _WAITING, _OLDEST, _FLIGHT)
# A timeline has at most so many entries, the latest.
_MAX_SHOWN: Final = 25
# Problems of one kind that begin within this time are one entry. A problem that begins so shortly before
# another one of the same object ends replaces it.
_TOGETHER_S: Final = 10.0


class HistoryCharts:
    """Reads the history; without a recorder there are no charts."""

    def __init__(self, recorder: Recorder | None, total: Callable[[], ClusterSum]) -> None:
        """*total* returns the present sums, with which the line of a topic or channel ends."""
        self._recorder = recorder
        self._total = total

    @property
    def has_history(self) -> bool:
        return self._recorder is not None

    def charts(self, name: Name = TOTALS, span: str = "hour") -> list[Chart]:
        """Return the charts of *name* that have a line."""
        if self._recorder is None:
            return []
        ring = ring_of(span)
        points = self._points(name, ring)
        now_s = time.time()
        found = []
        for key, title, lines in _OF_TOTALS if name == TOTALS else _OF_OTHERS:
            known = chart(key, title, points, lines, now_s, ring.rows * ring.every_s, ring.every_s)
            if known is not None:
                found.append(known)
        return found

    def _points(self, name: Name, ring: Ring) -> Series:
        if self._recorder is None:
            return []
        found = self._recorder.read(name, ring)
        now = point_of(self._total(), name, time.time())
        if not found or now is None:
            return found
        return [*found, (time.time(), self._recorder.with_unreached(name, now))]

    def events(self, name: Name, ring: Ring = HOUR, nodes: Collection[str] = ()) -> Sequence[HistoryEvent]:
        """Return the events of *name* and *nodes*; for the totals, all events."""
        if self._recorder is None:
            return []
        return [
            event
            for event in self._recorder.events(ring)
            if name in {TOTALS, event.name}
            or event.name[1:2] == name[1:2]
            or (event.name[:1] == ("node",) and event.name[1] in nodes)
        ]

    def timeline(
        self, name: Name = TOTALS, span: str = "hour", nodes: Collection[str] = ()
    ) -> list[TimelineEntry]:
        """Return what happened to *name* and *nodes*, the latest first, each with the end of its problem."""
        found: list[TimelineEntry] = []
        begun: dict[tuple[str, Name], TimelineEntry] = {}
        for event in self.events(name, ring_of(span), nodes):
            if event.kind.startswith(OVER):
                kind = event.kind.removeprefix(OVER)
                if (before := begun.pop((kind, event.name), None)) is not None:
                    before.lasting -= 1
                    before.ended_s = 0.0 if before.lasting else event.at_s
                    continue
            together = None
            if event.kind not in {CHANGE, STARTED}:
                together = next((one for one in reversed(found) if one.kind == event.kind), None)
            if together is None or event.at_s - together.at_s > _TOGETHER_S:
                together = TimelineEntry(event.at_s, event.kind, event.text, event.name)
                found.append(together)
            else:
                together.count += 1
                together.lasting += 1
            begun[event.kind, event.name] = together
        for one in found:
            later = [
                other.kind
                for other in found
                if other.name == one.name
                and max(one.at_s, one.ended_s - _TOGETHER_S) <= other.at_s <= one.ended_s
                and (not other.ended_s or other.ended_s > one.ended_s)
                and other.kind not in {CHANGE, STARTED}
            ]
            one.became = later[0] if later else ""
        return found[: -_MAX_SHOWN - 1 : -1]

    def sparks(self, names: Sequence[Name]) -> dict[Name, str]:
        """Return for each of *names* a small line of its depth in the last hour; empty if it is not known."""
        if self._recorder is None:
            return {}
        now_s = time.time()
        return {
            name: spark(self._recorder.read(name), _DEPTH, now_s, HOUR.rows * HOUR.every_s) for name in names
        }

    def columns(self, name: Name, span: str) -> dict[str, Any]:
        """Return the columns from which a script draws, and the event markers."""
        ring = ring_of(span)
        points = self._points(name, ring)
        charts = []
        for key, title, lines in _OF_TOTALS if name == TOTALS else _OF_OTHERS:
            columns = [[_rounded(value(point)) for _, point in points] for _, value in lines]
            if any(one is not None for column in columns for one in column):
                charts.append(
                    {"key": key, "title": title, "names": [word for word, _ in lines], "columns": columns}
                )
        return {
            "every": ring.every_s,
            "events": [one.to_json() for one in self.timeline(name, span)],
            "at": [round(at_s) for at_s, _ in points],
            "charts": charts,
            # Where a node did not answer, and its last known depth is part of the line.
            "partial": [point.is_partial for _, point in points],
        }


def name_of(subject: dict[str, str]) -> Name:
    """Return the history's name of the topic, channel or node that a page or script asks for."""
    if subject.get("node"):
        return node(subject["node"])
    if subject.get("channel"):
        return channel(subject.get("topic", ""), subject["channel"])
    return topic(subject["topic"]) if subject.get("topic") else TOTALS


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
