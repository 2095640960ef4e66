"""How figures move between looks: rates from two counts and their times; PURE, time arrives as ``now_ns``.

Samples are taken whenever somebody looks, so an unwatched cluster costs nothing. They are kept per node, as
a sum over nodes jumps when a node comes or goes.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from nsqadmin.figures.records import ChannelRecord, TopicRecord

_SECOND: Final = 1_000_000_000

# Rates are taken over about this long: short enough to be "now", long enough that one batch is no spike.
WINDOW_NS: Final = 10 * _SECOND
# An older look still gives a rate (a page without JavaScript is reloaded by hand), yesterday's does not.
MAX_AGE_NS: Final = 300 * _SECOND
# Several viewers at once must not crowd the window with near-equal times.
MIN_SPACING_NS: Final = _SECOND * 4 // 5

# Topics and channels on one node; a topic has the empty channel name.
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    at_ns: int
    message_count: int
    depth: int
    owed: int
    timeout_count: int = 0
    requeue_count: int = 0


@dataclass(frozen=True, slots=True)
class Trend:
    """Change per second; ``span_s`` says over how long it was seen."""

    span_s: float
    messages: float
    finished: float
    depth: float
    timeouts: float = 0.0
    requeues: float = 0.0

    def __add__(self, other: "Trend") -> "Trend":
        return Trend(
            min(self.span_s, other.span_s),
            self.messages + other.messages,
            self.finished + other.finished,
            self.depth + other.depth,
            self.timeouts + other.timeouts,
            self.requeues + other.requeues,
        )


@dataclass(slots=True)
class TrendBook:
    """Remembers recent samples and answers how fast each topic and channel moves."""

    _samples: dict[Key, deque[Sample]] = field(default_factory=dict)
    _pruned_ns: int = 0

    def observe(self, records: Iterable[TopicRecord | ChannelRecord], now_ns: int) -> None:
        """Note the figures of per-node *records*, the channels of topic records included."""
        for record in records:
            if isinstance(record, TopicRecord):
                self._add(
                    (record.node, record.topic_name, ""),
                    Sample(now_ns, record.message_count, record.depth, record.depth),
                )
                self.observe(record.channels, now_ns)
            else:
                self._add(
                    (record.node, record.topic_name, record.channel_name),
                    Sample(
                        now_ns,
                        record.message_count,
                        record.depth,
                        record.owed,
                        record.timeout_count,
                        record.requeue_count,
                    ),
                )
        if now_ns - self._pruned_ns > MAX_AGE_NS:
            self._prune(now_ns)

    def of(self, total: TopicRecord | ChannelRecord) -> Trend | None:
        """Return the trend of a total, or of one node's record; None until two looks exist."""
        channel = total.channel_name if isinstance(total, ChannelRecord) else ""
        nodes = [node.node for node in total.nodes] or [total.node]
        found = [self._trend((node, total.topic_name, channel)) for node in nodes]
        known = [trend for trend in found if trend is not None]
        if not known:
            return None
        summed = known[0]
        for trend in known[1:]:
            summed += trend
        return summed

    def _add(self, key: Key, sample: Sample) -> None:
        samples = self._samples.get(key)
        if samples is None:
            self._samples[key] = deque([sample])
            return
        last = samples[-1]
        if sample.message_count < last.message_count:
            # The nsqd restarted or the topic was made anew: its counters began again.
            samples.clear()
        elif sample.at_ns - last.at_ns < MIN_SPACING_NS:
            return
        samples.append(sample)
        while len(samples) > 2 and sample.at_ns - samples[1].at_ns >= WINDOW_NS:
            samples.popleft()

    def _trend(self, key: Key) -> Trend | None:
        samples = self._samples.get(key)
        if samples is None or len(samples) < 2:
            return None
        first, last = samples[0], samples[-1]
        span_ns = last.at_ns - first.at_ns
        if span_ns > MAX_AGE_NS or span_ns <= 0:
            return None
        span_s = span_ns / _SECOND
        arrived = last.message_count - first.message_count
        # What arrived and is owed no more was finished (or thrown away by an admin who empties the queue).
        finished = max(0, arrived - (last.owed - first.owed))
        return Trend(
            span_s,
            arrived / span_s,
            finished / span_s,
            (last.depth - first.depth) / span_s,
            (last.timeout_count - first.timeout_count) / span_s,
            (last.requeue_count - first.requeue_count) / span_s,
        )

    def _prune(self, now_ns: int) -> None:
        self._pruned_ns = now_ns
        stale = [key for key, samples in self._samples.items() if now_ns - samples[-1].at_ns > MAX_AGE_NS]
        for key in stale:
            del self._samples[key]
