"""The history of the cluster, a topic, a channel or a node: charts for pages, figures for scripts."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from nsqadmin.figures.cluster_sum import ClusterSum
from nsqadmin.figures.points import Point
from nsqadmin.history.recorder import Recorder, channel, node, point_of, ring_of, topic
from nsqadmin.history.ring import HOUR, TOTALS, HistoryEvent, Name, Ring
from nsqadmin.pages.charts import Chart, Series, chart, spark

Value = Callable[[Point], float | None]

_CAME: Final[Value] = lambda point: point.came  # noqa: E731 - a short name for a column of the history
_WENT: Final[Value] = lambda point: point.went  # noqa: E731
_DEPTH: Final[Value] = lambda point: point.depth  # noqa: E731
_AGE: Final[Value] = lambda point: point.age_s  # noqa: E731
_MORE: Final[Value] = lambda point: point.more  # noqa: E731

# The charts of each kind: key, title, and the lines.
_FLOW: Final = ("flow", "Messages / s", (("in", _CAME), ("out", _WENT)))
_WAITING: Final = ("waiting", "Backlog", (("waiting", _DEPTH),))
_OLDEST: Final = ("oldest", "Oldest message (s)", (("oldest", _AGE),))
_FLIGHT: Final = ("flight", "Messages in flight", (("in flight", _MORE),))
_NODES: Final = ("nodes", "Nodes up", (("nodes", _MORE),))
_OF_TOTALS: Final = (_FLOW, _WAITING, _OLDEST, _NODES)
_OF_OTHERS: Final = (_FLOW, _WAITING, _OLDEST, _FLIGHT)
# A chart marks at most so many events, the latest.
_MOST_MARKS: Final = 40


class Courses:
    """Reads the history; without a recorder there are no charts."""

    def __init__(self, recorder: Recorder | None, total: Callable[[], ClusterSum]) -> None:
        """*total* returns the present sums, with which the line of a topic or channel ends."""
        self._recorder = recorder
        self._total = total

    @property
    def kept(self) -> bool:
        return self._recorder is not None

    def charts(self, name: Name = TOTALS, span: str = "hour") -> list[Chart]:
        """Return the charts of *name* that have a line."""
        if self._recorder is None:
            return []
        ring = ring_of(span)
        points = self._points(name, ring)
        now_s = time.time()
        marks = [(event.at_s, event.kind, event.text) for event in self.events(name, ring)]
        found = []
        for key, title, lines in _OF_TOTALS if name == TOTALS else _OF_OTHERS:
            known = chart(key, title, points, lines, now_s, ring.rows * ring.every_s, ring.every_s, marks)
            if known is not None:
                found.append(known)
        return found

    def _points(self, name: Name, ring: Ring) -> Series:
        if self._recorder is None:
            return []
        found = self._recorder.read(name, ring)
        now = point_of(self._total(), name, time.time())
        return [*found, (time.time(), now)] if found and now is not None else found

    def events(self, name: Name, ring: Ring = HOUR) -> Sequence[HistoryEvent]:
        """Return the events of *name*; for the totals, all events."""
        if self._recorder is None:
            return []
        found = [
            event
            for event in self._recorder.events(ring)
            if name in {TOTALS, event.name} or event.name[1:2] == name[1:2]
        ]
        return found[-_MOST_MARKS:]

    def sparks(self, names: Sequence[Name]) -> dict[Name, str]:
        """Return for each of *names* a small line of its depth in the last hour; empty if it is not known."""
        if self._recorder is None:
            return {}
        now_s = time.time()
        return {
            name: spark(self._recorder.read(name), _DEPTH, now_s, HOUR.rows * HOUR.every_s) for name in names
        }

    def figures(self, name: Name, span: str) -> dict[str, Any]:
        """Return the columns from which a script draws, and the marks."""
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
            "at": [round(at_s) for at_s, _ in points],
            "charts": charts,
            "marks": [
                {"at": round(event.at_s), "kind": event.kind, "text": event.text}
                for event in self.events(name, ring)
            ],
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
