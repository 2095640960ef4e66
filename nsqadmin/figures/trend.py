"""How figures move between looks: rates from two counts and their times; PURE, time arrives as ``at_ns``.

Counts are compared node by node, as a sum over nodes jumps when a node comes or goes.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from nsqcore.cluster.models import ChannelStats, TopicStats

_SECOND: Final = 1_000_000_000

# Rates are taken over about this long: short enough to be "now", long enough that one batch is no spike.
WINDOW_NS: Final = 10 * _SECOND
# A mark is the counts of a whole node, so only a few are kept in the window.
SPACING_NS: Final = 5 * _SECOND
# Counts from before a long silence give no rate of now.
MAX_AGE_NS: Final = 300 * _SECOND

# Places of the counts in a mark: first the topic's, then as many for each channel.
_TOPIC_COUNTS: Final = 2
_CHANNEL_COUNTS: Final = 4

Counts: TypeAlias = "array[int]"

_NAMES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}
_MOST_NAMES: Final = 10_000


class Trend(msgspec.Struct, gc=False):
    """Change per second; ``span_s`` says over how long it was seen. There is one for each channel."""

    span_s: float
    messages: float = 0.0
    finished: float = 0.0
    depth: float = 0.0
    timeouts: float = 0.0

    def add(self, other: "Trend") -> None:
        self.span_s = min(self.span_s, other.span_s)
        self.messages += other.messages
        self.finished += other.finished
        self.depth += other.depth
        self.timeouts += other.timeouts


def total_trend(trends: Iterable[Trend | None]) -> Trend | None:
    """Add up; None when one of them is not known, because the sum would be too small and look like a fact."""
    total: Trend | None = None
    for trend in trends:
        if trend is None:
            return None
        if total is None:
            total = Trend(trend.span_s)
        total.add(trend)
    return total


def empties_in(depth: int, trend: Trend | None) -> float | None:
    """Return in how many seconds a queue is empty at the pace of now; None when it does not get shorter."""
    if not depth:
        return 0.0
    if trend is None or trend.finished <= trend.messages:
        return None
    return depth / (trend.finished - trend.messages)


def older(one_ns: int, other_ns: int) -> int:
    """Return the older of two times; 0 is none, and with one that is not known (-1) neither is the result."""
    if one_ns < 0 or other_ns < 0:
        return -1
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns


# The channels of each topic, and where its counts begin.
_Places: TypeAlias = dict[str, tuple[tuple[str, ...], int]]


class Counted:
    """What one node had counted at one moment, as compactly as it goes."""

    __slots__ = ("_counts", "_places", "at_ns")

    def __init__(self, topics: Iterable[TopicStats], at_ns: int, before: "Counted | None" = None) -> None:
        """With the mark *before* it shares what says where the counts of each topic are."""
        self.at_ns = at_ns
        # The counts of all topics, one behind the other; the channels of each topic, and where it begins.
        counts = array("q")
        places: _Places = {}
        for topic in topics:
            begin = len(counts)
            counts.extend((topic.message_count, topic.depth))
            for channel in topic.channels:
                counts.extend((channel.message_count, channel.depth, channel.owed, channel.timeout_count))
            names = tuple([channel.channel_name for channel in topic.channels])
            # The same few lists of names occur on every node.
            names = _NAMES.setdefault(names, names) if len(_NAMES) < _MOST_NAMES else names
            places[topic.topic_name] = names, begin
        # An array that grew has room to grow on.
        self._counts = counts[:]
        self._places: _Places = before._places if before is not None and before._places == places else places

    def counts_of(self, topic: TopicStats) -> Sequence[int]:
        """Return the counts of *topic*, in the order of its channels now.

        What was not there, or has counted less since, was made after this mark: it counts from zero.
        """
        names, counts = _NOTHING
        found = self._places.get(topic.topic_name)
        # What has counted less since was deleted and made again.
        if found is not None and self._counts[found[1]] <= topic.message_count:
            names, begin = found
            counts = self._counts[begin : begin + _TOPIC_COUNTS + _CHANNEL_COUNTS * len(names)]
        present = tuple([channel.channel_name for channel in topic.channels])
        return counts if names == present else _in_order(names, counts, present)


_NOTHING: Final[tuple[tuple[str, ...], Counts]] = (), array("q", (0,) * _TOPIC_COUNTS)


def _in_order(names: tuple[str, ...], counts: Counts, present: tuple[str, ...]) -> Counts:
    """Return *counts*, which are of channels *names*, for the channels *present*; new ones have zeros."""
    moved = counts[:_TOPIC_COUNTS]
    places = {name: _TOPIC_COUNTS + place * _CHANNEL_COUNTS for place, name in enumerate(names)}
    for name in present:
        at = places.get(name)
        moved.extend((0,) * _CHANNEL_COUNTS if at is None else counts[at : at + _CHANNEL_COUNTS])
    return moved


class NodePace:
    """The marks of one node; the present is compared with the oldest of the window that fits."""

    def __init__(self) -> None:
        self._marks: deque[Counted] = deque()
        self._start_time = 0

    def note(self, topics: Iterable[TopicStats], at_ns: int, start_time: int = 0) -> tuple[Counted, ...]:
        """Take the figures of *at_ns* in, and return the marks to compare them with, oldest first.

        An nsqd that started at another *start_time* counts from zero again: nothing is comparable.
        """
        marks = self._marks
        if start_time != self._start_time:
            self._start_time = start_time
            marks.clear()
        while len(marks) > 1 and at_ns - marks[1].at_ns >= WINDOW_NS:
            marks.popleft()
        if marks and at_ns - marks[0].at_ns > MAX_AGE_NS:
            marks.clear()
        earlier = tuple(marks)
        if not marks or at_ns - marks[-1].at_ns >= SPACING_NS:
            marks.append(Counted(topics, at_ns, marks[-1] if marks else None))
        return earlier


def counts_then(
    topic: TopicStats, marks: Sequence[Counted], at_ns: int
) -> tuple[Sequence[int], float] | None:
    """Return what *topic* had counted at the first mark and how many seconds ago that was."""
    for mark in marks:
        if mark.at_ns < at_ns:
            return mark.counts_of(topic), (at_ns - mark.at_ns) / _SECOND
    return None


def topic_trend(topic: TopicStats, counts: Sequence[int], span_s: float) -> Trend:
    """Return how a topic's own queue moves on one node."""
    return Trend(span_s, (topic.message_count - counts[0]) / span_s, depth=(topic.depth - counts[1]) / span_s)


def add_channel(
    total: Trend, channel: ChannelStats, place: int, counts: Sequence[int], span_s: float
) -> float:
    """Add how a channel moves on one node to *total*, and return what it finished there per second.

    It is the topic's channel number *place* there.
    """
    at = _TOPIC_COUNTS + place * _CHANNEL_COUNTS
    arrived = channel.message_count - counts[at]
    depth, owed, timeouts = counts[at + 1], counts[at + 2], counts[at + 3]
    if arrived < 0:
        # Deleted and made again.
        arrived = channel.message_count
        depth = owed = timeouts = 0
    # What arrived and is owed no more was finished (or thrown away by an admin who empties the queue).
    finished = arrived - channel.depth - channel.in_flight_count - channel.deferred_count + owed
    total.span_s = min(total.span_s, span_s)
    # Adding nothing would make a number of its own for each channel.
    if arrived:
        total.messages += arrived / span_s
    if channel.depth != depth:
        total.depth += (channel.depth - depth) / span_s
    if channel.timeout_count != timeouts:
        total.timeouts += (channel.timeout_count - timeouts) / span_s
    if finished <= 0:
        return 0.0
    total.finished += finished / span_s
    return finished / span_s


def channel_trend(channel: ChannelStats, place: int, counts: Sequence[int], span_s: float) -> Trend:
    """Return how a channel moves on one node."""
    trend = Trend(span_s)
    add_channel(trend, channel, place, counts, span_s)
    return trend


def trends(
    topic: TopicStats, marks: Sequence[Counted], at_ns: int
) -> tuple[Trend | None, list[Trend | None]]:
    """Return how *topic* moves on one node, and how each of its channels does."""
    then = counts_then(topic, marks, at_ns)
    if then is None:
        return None, [None] * len(topic.channels)
    counts, span_s = then
    return topic_trend(topic, counts, span_s), [
        channel_trend(channel, place, counts, span_s) for place, channel in enumerate(topic.channels)
    ]
