"""Records each round: the totals, the nodes, and the busiest topics and channels."""

import heapq
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from nsqadmin.collecting.members import Member
from nsqadmin.collecting.views import Round
from nsqadmin.history.ring import DAY, HOUR, SLOTS, TOTALS, HistoryEvent, HistoryFile, Name, Ring
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.points import Point
from nsqadmin.stats.problems import ALERT_S, MILD, Level, Problem, When

# Places for nodes; the others are for topics and channels.
_MAX_NODES: Final = 255
# How often the busiest are chosen, and how much busier a newcomer must be to replace another.
_REVIEW_S: Final = 60.0
_BUSIER: Final = 2.0
# After a longer pause it is unknown whether a problem lasted.
_PAUSE_S: Final = 900.0

# Kinds of events that are not the beginning of a problem; OVER stands before the badge of the problem.
OVER: Final = "no longer "
CHANGE: Final = "change"
STARTED: Final = "started"


def topic(name: str) -> Name:
    return "topic", name


def channel(name: str, channel_name: str) -> Name:
    return "channel", name, channel_name


def node(address: str) -> Name:
    return "node", address


class Recorder:
    """The history, shared by writers and readers, one at a time."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._reviewed_s = 0.0
        # The start time that each node reports.
        self._started: dict[str, int] = {}
        # The last known depth on nodes that do not answer, for the totals and each topic and channel.
        self._unreached: dict[Name, int] = {}

    def close(self) -> None:
        with self._lock:
            self._file.close()

    # -- writing --------------------------------------------------------------------

    def follow(self, this: Round) -> None:
        """Write the new and ended problems of a round, the started nodes, and the statistics."""
        events = [(*event_of(one), one.since_s) for one in this.new]
        events += [(f"{OVER}{kind}", text, name, 0.0) for kind, text, name in map(event_of, this.resolved)]
        for view in this.nodes:
            if view.snapshot is None:
                continue
            before = self._started.get(view.address)
            self._started[view.address] = view.snapshot.start_time
            if before is not None and before != view.snapshot.start_time:
                text = f"nsqd {view.address} was started, version {view.snapshot.version}"
                events.append((STARTED, text, node(view.address), 0.0))
        for event in events:
            self.note(*event)
        self.record(this.sum, this.nodes, this.now.at_s)

    def record(self, total: ClusterSum, nodes: Sequence[Member], now_s: float) -> None:
        """Write a round; the cost grows with the places, and once a minute with all channels."""
        self._unreached = _unreached(nodes)
        points = {TOTALS: self.with_unreached(TOTALS, _totals(total, nodes, now_s))}
        for view in nodes:
            if len(points) <= _MAX_NODES and view.snapshot is not None and view.answers and view.listed:
                load = view.snapshot.load
                age_s = age_of(load.oldest_ns, now_s)
                points[node(view.address)] = Point(load.depth, load.rate, None, age_s, load.in_flight)
        with self._lock:
            if now_s - self._reviewed_s >= _REVIEW_S or self._reviewed_s > now_s:
                self._reviewed_s = now_s
                self._review(total, points, now_s)
            for name in self._file.names.keys() - points.keys():
                point = point_of(total, name, now_s)
                if point is not None or name in self._unreached:
                    points[name] = self.with_unreached(name, point or Point())
            self._file.write(now_s, points)

    def with_unreached(self, name: Name, point: Point) -> Point:
        """Return *point* with the last known depth of nodes that do not answer: they still have it."""
        away = self._unreached.get(name)
        return point if away is None else replace(point, depth=(point.depth or 0) + away, is_partial=True)

    def note(self, kind: str, text: str, name: Name = (), at_s: float = 0.0) -> None:
        """Write an event of the moment *at_s*, by default of now."""
        with self._lock:
            self._file.note(HistoryEvent(at_s or time.time(), kind, text, name))

    def _review(self, total: ClusterSum, fixed: Mapping[Name, Point], now_s: float) -> None:
        """Give places to the topics and channels that are the busiest now."""
        have = self._file.names
        self._file.allocate(fixed, now_s)
        scores: dict[Name, float] = {}

        def newcomers() -> Iterator[tuple[Name, float]]:
            for name, score in _scored(total):
                if name in have:
                    scores[name] = score
                else:
                    yield name, score

        # At most as many of a hundred thousand as there are places.
        rivals = dict(heapq.nlargest(SLOTS, newcomers(), key=itemgetter(1)))
        new = list(rivals)
        lost = [name for name in have if name not in scores and name not in fixed]
        # Places of names that are gone are taken first, and only as many as are needed: a node that is away
        # for a moment keeps its history.
        room = SLOTS - _MAX_NODES - sum(1 for name in have if name[0] in {"topic", "channel"})
        for name in lost[: max(0, len(new) - room)]:
            self._file.release(name)
            room += 1
        if len(new) > room:
            weakest = sorted((name for name in have if name in scores), key=lambda name: scores[name])
            for name, rival in zip(weakest, new[max(0, room) :], strict=False):
                if rivals[rival] <= _BUSIER * scores[name]:
                    break
                self._file.release(name)
                room += 1
        self._file.allocate(new[: max(0, room)], now_s)

    # -- reading --------------------------------------------------------------------

    def read(self, name: Name, ring: Ring = HOUR) -> list[tuple[float, Point]]:
        with self._lock:
            return self._file.read(name, ring, time.time())

    def events(self, ring: Ring = HOUR) -> list[HistoryEvent]:
        with self._lock:
            # Events of a later time were noted when the clock was ahead, and would crowd out those of now.
            now_s = time.time()
            return self._file.events(now_s - ring.every_s * ring.rows, now_s)

    def unresolved(self) -> list[HistoryEvent]:
        """Return the problems that an earlier run saw begin and not end, if it ended a few minutes ago."""
        open_events: dict[tuple[str, Name], HistoryEvent] = {}
        with self._lock:
            now_s = time.time()
            if not 0 <= now_s - self._file.written_s < _PAUSE_S:
                return []
            for event in self._file.events(0.0, now_s):
                if event.kind.startswith(OVER):
                    open_events.pop((event.kind.removeprefix(OVER), event.name), None)
                elif event.kind not in {CHANGE, STARTED}:
                    open_events[event.kind, event.name] = event
        return list(open_events.values())


def ring_of(span: str) -> Ring:
    return DAY if span == "day" else HOUR


def _scored(total: ClusterSum) -> Iterator[tuple[Name, float]]:
    for one in total.topics.values():
        yield topic(one.name), _score(one.trend.messages if one.trend else 0.0, one.depth)
        for each in one.channels:
            score = _score(each.trend.messages if each.trend else 0.0, each.depth)
            yield channel(one.name, each.channel_name), score


def _score(rate: float, depth: int) -> float:
    return rate + depth / 100 + 0.001


def age_of(oldest_ns: int, now_s: float) -> float | None:
    """Return the oldest message's age in seconds; 0 if there is none, None if it is not known."""
    if oldest_ns <= 0:
        return 0.0 if not oldest_ns else None
    return max(0.0, now_s - oldest_ns / 1e9)


def _totals(total: ClusterSum, nodes: Sequence[Member], now_s: float) -> Point:
    sums = total.totals
    answering = sum(1 for view in nodes if view.answers and view.listed)
    return Point(sums.depth, sums.rate, sums.finished, age_of(sums.oldest_ns, now_s), answering)


def _unreached(nodes: Sequence[Member]) -> dict[Name, int]:
    """Add up the depths of unreachable nodes; messages that another node delivers are counted there."""
    found: Counter[Name] = Counter()
    for one in nodes:
        if one.snapshot is None or not one.is_unreached:
            continue
        for stats in one.snapshot.topics.values():
            depth = stats.depth
            for each in stats.channels:
                depth += each.depth
                found[channel(stats.topic_name, each.channel_name)] += each.depth
            found[topic(stats.topic_name)] += depth
            found[TOTALS] += depth
    return dict(found)


def point_of(total: ClusterSum, name: Name, now_s: float) -> Point | None:
    kind, *rest = name
    if kind == "topic":
        one = total.topics.get(rest[0])
        if one is None:
            return None
        rate = one.trend.messages if one.trend else None
        return Point(one.depth, rate, one.finished, age_of(one.oldest_ns, now_s), one.in_flight)
    if kind == "channel":
        parent = total.topics.get(rest[0])
        for each in parent.channels if parent is not None else ():
            if each.channel_name == rest[1]:
                trend = each.trend
                return Point(
                    each.depth,
                    trend.messages if trend else None,
                    trend.finished if trend else None,
                    age_of(each.oldest_ns, now_s),
                    each.in_flight_count,
                )
    return None


def problem_of(event: HistoryEvent, now: Instant) -> Problem:
    """Return the problem whose beginning *event* is."""
    kind, *rest = event.name or ("",)
    return Problem(
        Level.WARNING if event.kind in MILD else Level.PROBLEM,
        event.kind,
        event.text,
        rest[0] if kind in {"topic", "channel"} else "",
        rest[1] if kind == "channel" else "",
        rest[0] if kind == "node" else "",
        when=When(alert_s=ALERT_S),
        began=now.after(event.at_s - now.at_s),
    )


def event_of(problem: Problem) -> tuple[str, str, Name]:
    """Return the event that a chart marks when *problem* begins."""
    if problem.channel:
        return problem.kind, problem.text, channel(problem.topic, problem.channel)
    if problem.topic:
        return problem.kind, problem.text, topic(problem.topic)
    # How long a node is down changes; the event has its time.
    text = problem.text.partition(". ")[2] if problem.kind == "down" else ""
    return problem.kind, text or problem.text, node(problem.node)
