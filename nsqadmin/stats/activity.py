"""The activity of each consumer between two polls: its finish rate, and its time without a FIN; PURE.

nsqd counts how many messages a consumer has finished, but not when. So the time of the last one is that of
the last poll with a changed count. If the count never changed, it is the first poll.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nsqadmin.stats.present import named
from nsqcore.cluster.models import TopicStats

# The number of remembered consumers. Those whose page was read least recently are forgotten.
MAX_CONSUMERS: Final = 20_000
# Over a shorter span a rate would show only single batches.
_MIN_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Activity:
    """Messages finished per second, and seconds since the last one; None before the second poll."""

    rate: float | None = None
    silent_s: float | None = None


UNKNOWN: Final = Activity()


class LastConsumers(NamedTuple):
    """The consumers that a channel had when it was last seen with any, in words, and that time of day."""

    names: str
    at_s: float


# By topic and channel.
ConsumerNames = dict[tuple[str, str], LastConsumers]
# A sentence about a channel names at most so many consumers.
_MAX_NAMED: Final = 3


def consumers_in(topics: Iterable[TopicStats], at_s: float) -> ConsumerNames:
    """Return the consumers of each channel that has some."""
    return {
        (topic.topic_name, channel.channel_name): LastConsumers(
            named(sorted({one.name for one in channel.clients}), _MAX_NAMED), at_s
        )
        for topic in topics
        for channel in topic.channels
        if channel.listed_clients
    }


@dataclass(slots=True)
class _Sample:
    finished: int
    at_s: float
    # When it last finished something, as far as was seen.
    moved_s: float
    rate: float | None = None


@dataclass(slots=True)
class ActivityTracker:
    _samples: OrderedDict[tuple[str, ...], _Sample] = field(default_factory=OrderedDict)

    def note(self, consumer: tuple[str, ...], finished: int, now_s: float) -> Activity:
        """Store how many messages *consumer* has finished so far, and return its activity."""
        seen = self._samples.get(consumer)
        if seen is None or finished < seen.finished:
            self._samples[consumer] = _Sample(finished, now_s, now_s)
            while len(self._samples) > MAX_CONSUMERS:
                self._samples.popitem(last=False)
            return UNKNOWN
        self._samples.move_to_end(consumer)
        passed_s = now_s - seen.at_s
        if passed_s >= _MIN_S:
            seen.rate = (finished - seen.finished) / passed_s
            if finished > seen.finished:
                seen.moved_s = now_s
            seen.finished, seen.at_s = finished, now_s
        elif finished > seen.finished:
            seen.moved_s = now_s
        if seen.rate is None:
            return UNKNOWN
        return Activity(seen.rate, now_s - seen.moved_s)
