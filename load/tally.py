"""The outcome of every message of a run, by publisher and number, over all workers and hosts. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from load.book import Delta
from load.latency import Histogram
from load.numbers import NumberSet, count, each

REQUEUE: Final = "requeue"
TIMEOUT: Final = "timeout"
KILL: Final = "kill"
UNEXPLAINED: Final = "unexplained"

Sets = defaultdict[str, NumberSet]


@dataclass(frozen=True, slots=True)
class TallyResult:
    """The tally in numbers; a name is topic, publisher and number, and each list has at most a few."""

    acked: int
    unsure: int
    refused: int
    received: dict[str, int]
    """Topic and channel -> different messages received there."""
    duplicates: dict[str, int]
    """Cause -> deliveries beyond the first of a message."""
    missing: int
    missing_names: list[str]
    unknown: int
    unknown_names: list[str]


class Tally:
    """Takes deltas from any number of workers; those of one worker must come in order."""

    def __init__(self, channels: Iterable[str]) -> None:
        """*channels* are the channels that must get every message, as ``topic channel``."""
        self.channels: Final = list(channels)
        self.published: dict[str, Sets] = {
            kind: defaultdict(NumberSet) for kind in ("acked", "unsure", "refused")
        }
        self._received: dict[str, Sets] = {channel: defaultdict(NumberSet) for channel in self.channels}
        self._duplicates: list[list[Any]] = []  # channel, nsqd, delivered before, publisher, ranges
        self._unfinished: list[list[Any]] = []  # cause, channel, publisher, ranges
        self.lost: set[str] = set()
        self.errors: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.latency: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.last_deltas: dict[str, int] = {}
        self.ended: set[str] = set()

    def add(self, delta: Delta) -> None:
        worker, number = delta["worker"], delta["number"]
        if number <= self.last_deltas.get(worker, 0):
            return  # this delta came twice
        self.counts["deltas that never came"] += number - self.last_deltas.get(worker, 0) - 1
        self.last_deltas[worker] = number
        if delta["last"]:
            self.ended.add(worker)
        for kind, sets in self.published.items():
            for writer, ranges in delta[kind].items():
                for first, end in ranges:
                    sets[writer].add(first, end)
        for channel, node, before, publisher, ranges in delta["received"]:
            seen = self._received.setdefault(channel, defaultdict(NumberSet))[publisher]
            again = [part for first, end in ranges for part in seen.add(first, end)]
            if again:
                self._duplicates.append([channel, node, before, publisher, again])
        self._unfinished += delta["unfinished"]
        self.lost.update(delta["lost"])
        self.errors.update(delta["errors"])
        self.counts.update(delta["counts"])
        for name, buckets in delta["latency"].items():
            self.latency[name].merge(buckets)

    # --- stored between processes

    def to_json(self) -> dict[str, Any]:
        return {
            "channels": self.channels,
            "published": {kind: _plain(sets) for kind, sets in self.published.items()},
            "received": {channel: _plain(sets) for channel, sets in self._received.items()},
            "duplicates": self._duplicates,
            "unfinished": self._unfinished,
            "lost": sorted(self.lost),
            "errors": self.errors,
            "counts": self.counts,
            "latency": {name: histogram.buckets() for name, histogram in self.latency.items()},
            "last_deltas": self.last_deltas,
            "ended": sorted(self.ended),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        tally = cls(kept["channels"])
        tally.published = {kind: _sets(plain) for kind, plain in kept["published"].items()}
        tally._received = {channel: _sets(plain) for channel, plain in kept["received"].items()}
        tally._duplicates, tally._unfinished = list(kept["duplicates"]), list(kept["unfinished"])
        tally.lost, tally.ended = set(kept["lost"]), set(kept["ended"])
        tally.errors, tally.counts = Counter(kept["errors"]), Counter(kept["counts"])
        for name, buckets in kept["latency"].items():
            tally.latency[name].merge(buckets)
        tally.last_deltas = dict(kept["last_deltas"])
        return tally

    # --- results

    def count(self, kind: str) -> int:
        """Return how many messages are ``acked``, ``unsure`` or ``refused`` so far."""
        return sum(map(len, self.published[kind].values()))

    def received(self) -> dict[str, int]:
        return {channel: sum(map(len, sets.values())) for channel, sets in self._received.items()}

    def repeated(self) -> int:
        """Return the number of deliveries beyond the first of each message, so far."""
        return sum(count(entry[-1]) for entry in self._duplicates)

    @property
    def unreported(self) -> list[str]:
        """The workers that never reported their end: their last events are unknown."""
        return sorted(self.last_deltas.keys() - self.ended)

    def outcome(self) -> TallyResult:
        missing, unknown = _Names(), _Names()
        unsure, refused = self.published["unsure"], self.published["refused"]
        acked = self.published["acked"]
        for channel, seen in self._received.items():
            topic, _, _ = channel.partition(" ")
            for writer in [*acked] if channel in self.channels else ():
                of, _, publisher = writer.partition(" ")
                if of == topic:
                    missing.take(writer, acked[writer].without(seen[publisher]))
            for publisher, received in seen.items():
                writer = f"{topic} {publisher}"
                unknown.take(writer, received.without(acked[writer], unsure[writer], refused[writer]))
        causes = self._causes(missing)
        return TallyResult(
            self.count("acked"),
            self.count("unsure"),
            self.count("refused"),
            self.received(),
            dict(causes),
            missing.count,
            missing.names,
            unknown.count,
            unknown.names,
        )

    def _causes(self, missing: "_Names") -> Counter[str]:
        """Return why messages came again; requeued ones that never came again go to *missing*."""
        given_back: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
        for cause, channel, publisher, ranges in self._unfinished:
            for number in each(ranges):
                given_back[channel, publisher, number][cause] += 1
        causes: Counter[str] = Counter()
        for channel, node, before, publisher, ranges in self._duplicates:
            for number in each(ranges):
                causes[self._cause(given_back.get((channel, publisher, number)), node, before)] += 1
        for (channel, publisher, number), left in given_back.items():
            # Each delivery beyond the first has removed one cause; a cause that is left means that the last
            # delivery was not finished.
            writer = f"{channel.partition(' ')[0]} {publisher}"
            if left.total() and channel in self.channels and number in self.published["acked"][writer]:
                missing.take(writer, [[number, number + 1]])
        return causes

    def _cause(self, given_back: Counter[str] | None, node: str, before: bool) -> str:
        for reason, cause in (("requeue", REQUEUE), ("timeout", TIMEOUT), ("lost", KILL)):
            if given_back and given_back[reason] > 0:
                given_back[reason] -= 1
                return cause
        if node in self.lost:
            return KILL
        # attempts above 1 mean that nsqd had delivered the message before and got no answer in time.
        return TIMEOUT if before else UNEXPLAINED


@dataclass
class _Names:
    """A number of messages, and the names of the first few."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def take(self, writer: str, ranges: list[list[int]]) -> None:
        self.count += count(ranges)
        for number in each(ranges):
            if len(self.names) >= 5:
                return
            self.names.append(f"{writer} {number}")


def _plain(sets: Sets) -> dict[str, list[list[int]]]:
    return {publisher: numbers.ranges() for publisher, numbers in sets.items()}


def _sets(plain: Mapping[str, list[list[int]]]) -> Sets:
    sets: Sets = defaultdict(NumberSet)
    sets.update({publisher: NumberSet(ranges) for publisher, ranges in plain.items()})
    return sets
