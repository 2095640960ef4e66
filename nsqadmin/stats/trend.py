"""Rates between polls, from two counts and their times; PURE, time arrives as ``at_ns``.

Counts are compared node by node, because a sum over nodes jumps when a node comes or goes.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from nsqadmin.stats.activity import ConsumerNames
from nsqcore.cluster.models import ChannelStats, TopicStats
from nsqcore.cluster.numbers import clamped

_SECOND: Final = 1_000_000_000

# Rates are taken over about this long: short enough to be "now", long enough that a batch is no spike.
WINDOW_NS: Final = 10 * _SECOND
# A sample holds the counts of a whole node, so the window retains only a few.
SPACING_NS: Final = 5 * _SECOND
# Counts from before a longer silence are not used for a rate.
MAX_AGE_NS: Final = 300 * _SECOND

# Numbers of counts in a sample: first the topic's, then those of each channel.
_TOPIC_COUNTS: Final = 2
_CHANNEL_COUNTS: Final = 5

Counts: TypeAlias = "array[int]"

_NAMES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}
_MAX_NAMES: Final = 10_000


class Trend(msgspec.Struct, gc=False):
    """Change per second; ``span_s`` is the span of the measurement. Each channel has one."""

    span_s: float
    messages: float = 0.0
    finished: float = 0.0
    depth: float = 0.0
    timeouts: float = 0.0
    # Dead letters; they count as finished.
    dead: float = 0.0

    def add(self, other: "Trend") -> None:
        self.span_s = min(self.span_s, other.span_s)
        self.messages += other.messages
        self.finished += other.finished
        self.depth += other.depth
        self.timeouts += other.timeouts
        self.dead += other.dead


def empties_in(depth: int, trend: Trend | None) -> float | None:
    """Return the seconds until a queue is empty at the present rate; None if it does not get shorter."""
    if not depth:
        return 0.0
    if trend is None or trend.finished <= trend.messages:
        return None
    return depth / (trend.finished - trend.messages)


def older(one_ns: int, other_ns: int) -> int:
    """Return the older of two times; 0 means none. If one is not known (-1), the result is -1."""
    if one_ns < 0 or other_ns < 0:
        return -1
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns


# The channels of each topic, and where its counts begin in the array.
_Indexes: TypeAlias = dict[str, tuple[tuple[str, ...], int]]


class Counted:
    """The counts of one node at one moment, stored compactly."""

    __slots__ = ("_counts", "_indexes", "at_ns")

    def __init__(self, topics: Iterable[TopicStats], at_ns: int, before: "Counted | None" = None) -> None:
        """Shares the indexes of the counts with the sample *before* if they are equal."""
        self.at_ns = at_ns
        # The counts of all topics in a row; for each topic its channels and where its counts begin.
        counts = array("q")
        places: _Indexes = {}
        for topic in topics:
            begin = len(counts)
            counts.extend((topic.message_count, topic.depth))
            for channel in topic.channels:
                unfinished = clamped(channel.unfinished)
                counts.extend(
                    (
                        channel.message_count,
                        channel.depth,
                        unfinished,
                        channel.timeout_count,
                        channel.dead_count,
                    )
                )
            names = tuple([channel.channel_name for channel in topic.channels])
            # The same few lists of names occur on every node, so each is stored once.
            names = _NAMES.setdefault(names, names) if len(_NAMES) < _MAX_NAMES else names
            places[topic.topic_name] = names, begin
        # An array that has grown has spare room; its copy has none.
        self._counts = counts[:]
        self._indexes: _Indexes = (
            before._indexes if before is not None and before._indexes == places else places
        )

    def counts_of(self, topic: TopicStats) -> Sequence[int]:
        """Return the counts of *topic*, in the present order of its channels.

        A topic that this sample lacks, or whose count is lower now, was created later. It counts from zero.
        """
        names, counts = _NOTHING
        found = self._indexes.get(topic.topic_name)
        # A topic whose count is lower now was deleted and created again.
        if found is not None and self._counts[found[1]] <= topic.message_count:
            names, begin = found
            counts = self._counts[begin : begin + _TOPIC_COUNTS + _CHANNEL_COUNTS * len(names)]
        present = tuple([channel.channel_name for channel in topic.channels])
        return counts if names == present else _in_order(names, counts, present)


_NOTHING: Final[tuple[tuple[str, ...], Counts]] = (), array("q", (0,) * _TOPIC_COUNTS)


def _in_order(names: tuple[str, ...], counts: Counts, present: tuple[str, ...]) -> Counts:
    """Return *counts*, which belong to channels *names*, for the channels *present*; new ones get zeros."""
    moved = counts[:_TOPIC_COUNTS]
    places = {name: _TOPIC_COUNTS + place * _CHANNEL_COUNTS for place, name in enumerate(names)}
    for name in present:
        at = places.get(name)
        moved.extend((0,) * _CHANNEL_COUNTS if at is None else counts[at : at + _CHANNEL_COUNTS])
    return moved


# When topic and channel were last seen with no message waiting, in ns since 1970.
EmptyTimes: TypeAlias = dict[tuple[str, str], int]


class NodePace:
    """The samples of one node. Present counts are compared with the oldest sample of the window."""

    def __init__(self) -> None:
        self.empty_ns: EmptyTimes = {}
        self.consumers: ConsumerNames = {}
        self._history: deque[Counted] = deque()
        self._start_time = 0

    def note(self, topics: Iterable[TopicStats], at_ns: int, start_time: int = 0) -> tuple[Counted, ...]:
        """Store the counts of *at_ns*, and return the samples to compare them with, oldest first.

        An nsqd with another *start_time* has restarted and counts from zero, so earlier samples are
        dropped.
        """
        samples = self._history
        if start_time != self._start_time:
            self._start_time = start_time
            samples.clear()
        while len(samples) > 1 and at_ns - samples[1].at_ns >= WINDOW_NS:
            samples.popleft()
        if samples and at_ns - samples[0].at_ns > MAX_AGE_NS:
            samples.clear()
        earlier = tuple(samples)
        if not samples or at_ns - samples[-1].at_ns >= SPACING_NS:
            samples.append(Counted(topics, at_ns, samples[-1] if samples else None))
        return earlier


def counts_then(
    topic: TopicStats, samples: Sequence[Counted], at_ns: int
) -> tuple[Sequence[int], float] | None:
    """Return the counts of *topic* at the first sample and the seconds since then; None without a sample."""
    for sample in samples:
        if sample.at_ns < at_ns:
            return sample.counts_of(topic), (at_ns - sample.at_ns) / _SECOND
    return None


def topic_trend(topic: TopicStats, counts: Sequence[int], span_s: float) -> Trend:
    """Return the trend of a topic's own queue on one node."""
    return Trend(span_s, (topic.message_count - counts[0]) / span_s, depth=(topic.depth - counts[1]) / span_s)


def add_channel(
    total: Trend, channel: ChannelStats, place: int, counts: Sequence[int], span_s: float
) -> float:
    """Add a channel's trend on one node to *total*, and return the messages finished there per second.

    *place* is the channel's index in the topic there.
    """
    at = _TOPIC_COUNTS + place * _CHANNEL_COUNTS
    arrived = channel.message_count - counts[at]
    depth, unfinished, timeouts, dead = counts[at + 1], counts[at + 2], counts[at + 3], counts[at + 4]
    if arrived < 0:
        # The channel was deleted and created again.
        arrived = channel.message_count
        depth = unfinished = timeouts = dead = 0
    # Messages that arrived and are no longer pending were finished, or an admin emptied the queue.
    finished = arrived - channel.depth - channel.in_flight_count - channel.deferred_count + unfinished
    total.span_s = min(total.span_s, span_s)
    # Adding zero would make a new number object for each channel.
    if arrived:
        total.messages += arrived / span_s
    if channel.depth != depth:
        total.depth += (channel.depth - depth) / span_s
    if channel.timeout_count != timeouts:
        total.timeouts += (channel.timeout_count - timeouts) / span_s
    if channel.dead_count > dead:
        total.dead += (channel.dead_count - dead) / span_s
    if finished <= 0:
        return 0.0
    total.finished += finished / span_s
    return finished / span_s
