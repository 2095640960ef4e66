"""The events of one worker since its last report, by publisher and message number. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from load.latency import Histogram
from load.marks import Stamp
from load.numbers import ranges_of

# Contains only values that JSON and MessagePack preserve.
Delta = dict[str, Any]

# The counter of messages that arrived before their delay had passed.
EARLY: Final = "messages that came before they were due"

Published = defaultdict[str, list[int]]


class Book:
    """The users of one worker write it; the worker sends it to the tally about once a second."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._deltas = 0
        self._clear()

    def _clear(self) -> None:
        self._published: dict[str, Published] = {
            kind: defaultdict(list) for kind in ("acked", "unsure", "refused")
        }
        # (topic and channel, nsqd, delivered before, publisher) -> numbers
        self._received: defaultdict[tuple[str, str, bool, str], list[int]] = defaultdict(list)
        # (cause, topic and channel, publisher) -> numbers that were not finished and must come again
        self._unfinished: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
        self._lost: set[str] = set()
        self._errors: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._latency: defaultdict[str, Histogram] = defaultdict(Histogram)

    # --- publishers

    # A number counts the messages of one publisher in one topic, so both are the key of an entry.

    def acked(self, topic: str, publisher: str, numbers: Iterable[int]) -> None:
        """Book numbers that nsqd answered with OK."""
        self._published["acked"][f"{topic} {publisher}"].extend(numbers)

    def unsure(self, topic: str, publisher: str, numbers: Iterable[int]) -> None:
        """Book numbers whose connection broke before an answer: they may or may not arrive."""
        self._published["unsure"][f"{topic} {publisher}"].extend(numbers)

    def refused(self, topic: str, publisher: str, numbers: Iterable[int]) -> None:
        """Book numbers that nsqd answered with an error."""
        self._published["refused"][f"{topic} {publisher}"].extend(numbers)

    # --- consumers

    def received(self, channel: str, node: str, mark: Stamp, attempts: int) -> None:
        self._received[channel, node, attempts > 1, mark.publisher].append(mark.number)

    def unfinished(self, cause: str, channel: str, mark: Stamp) -> None:
        """Book an unfinished delivery; *cause* is ``requeue``, ``timeout`` or ``lost`` (connection)."""
        self._unfinished[cause, channel, mark.publisher].append(mark.number)

    def lost(self, node: str) -> None:
        """Book that a consumer's connection to this nsqd broke."""
        self._lost.add(node)

    # --- all

    def latency(self, name: str) -> Histogram:
        return self._latency[name]

    def error(self, text: str) -> None:
        self._errors[text] += 1

    def counted(self, what: str, times: int = 1) -> None:
        self._counts[what] += times

    def delta(self, *, last: bool = False) -> Delta:
        """Return the bookings since the last call and clear them; the tally takes each number once."""
        self._deltas += 1
        delta: Delta = {"worker": self.worker, "number": self._deltas, "last": last}
        for kind, published in self._published.items():
            delta[kind] = {writer: ranges_of(numbers) for writer, numbers in published.items()}
        delta["received"] = [[*key, ranges_of(numbers)] for key, numbers in self._received.items()]
        delta["unfinished"] = [[*key, ranges_of(numbers)] for key, numbers in self._unfinished.items()]
        delta["lost"] = sorted(self._lost)
        delta["errors"] = dict(self._errors)
        delta["counts"] = dict(self._counts)
        delta["latency"] = {name: histogram.buckets() for name, histogram in self._latency.items()}
        self._clear()
        return delta
