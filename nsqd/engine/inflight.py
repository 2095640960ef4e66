"""Messages in flight: runs of consecutive messages delivered together.

A run is one dictionary entry, under its first unanswered message, for as long as its consumer answers in
order. The first answer out of order breaks it: then each of its messages has an entry of its own. So the
client that handles a batch from front to back costs a few operations per batch, and the client that does
not costs one dictionary entry per message.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from nsqd.engine.consumer import Consumer

# Entries of finished runs stay in the heap until they outnumber the live ones this many times.
_STALE_RATIO: Final = 2
_STALE_SLACK: Final = 1024


class NotInFlight(Exception):
    """The message cannot be answered; the text is the reason the client is told."""


class Run:
    """Messages ``start <= seq < end`` that one consumer got together and answers until *deadline_ns*."""

    __slots__ = ("broken", "consumer", "deadline_ns", "delivered_ns", "end", "left", "start")

    def __init__(self, start: int, end: int, consumer: Consumer, delivered_ns: int, deadline_ns: int) -> None:
        self.start = start
        self.end = end
        self.consumer = consumer
        self.delivered_ns = delivered_ns
        self.deadline_ns = deadline_ns
        self.left = end - start
        self.broken = False

    def __repr__(self) -> str:
        return f"<Run {self.start}..{self.end} left {self.left}{' broken' if self.broken else ''}>"


class InFlight:
    """All runs of one channel, found by message and by deadline."""

    __slots__ = ("_entries", "_heap", "_runs", "_serial", "_wide", "count")

    def __init__(self) -> None:
        self._entries: dict[int, Run] = {}
        # Unbroken runs of more than one message: where a message is looked for that has no entry.
        self._wide: dict[Run, None] = {}
        # (deadline, serial, run); the serial keeps the comparison from reaching the run.
        self._heap: list[tuple[int, int, Run]] = []
        self._serial = 0
        self._runs = 0
        self.count = 0

    def add(self, start: int, end: int, consumer: Consumer, now_ns: int, deadline_ns: int) -> None:
        run = Run(start, end, consumer, now_ns, deadline_ns)
        self._entries[start] = run
        if end - start > 1:
            self._wide[run] = None
        self._runs += 1
        self.count += end - start
        self._push(run)

    def find(self, seq: int, consumer: Consumer) -> Run:
        """The run that holds *seq*. Raises NotInFlight, also when it is somebody else's."""
        run = self._entries.get(seq)
        if run is None:
            run = self._break_around(seq)
        if run.consumer is not consumer:
            raise NotInFlight("client does not own message")
        return run

    def remove(self, seq: int, consumer: Consumer) -> Run:
        """Take *seq* out of flight and return the run it was in. Raises NotInFlight."""
        run = self.find(seq, consumer)
        del self._entries[seq]
        self.count -= 1
        run.left -= 1
        if not run.left:
            self._forget(run)
        elif not run.broken:
            run.start = seq + 1
            self._entries[run.start] = run
        return run

    def remove_scattered(self, seqs: list[int], consumer: Consumer) -> list[tuple[int, NotInFlight]]:
        """Take messages of *consumer* out of flight, in any order; returns place and reason of failures."""
        failed: list[tuple[int, NotInFlight]] = []
        entries = self._entries
        removed = 0
        for place, seq in enumerate(seqs):
            run = entries.get(seq)
            if run is not None and run.broken and run.left > 1 and run.consumer is consumer:
                del entries[seq]
                run.left -= 1
                removed += 1
                continue
            try:
                self.remove(seq, consumer)
            except NotInFlight as why:
                failed.append((place, why))
        self.count -= removed
        return failed

    def unbroken(self, seq: int, consumer: Consumer) -> int:
        """How many messages from *seq* on are the head of one unbroken run of *consumer*; 0 when none are."""
        run = self._entries.get(seq)
        if run is None or run.broken or run.consumer is not consumer:
            return 0
        return run.left

    def remove_head(self, seq: int, count: int) -> None:
        """Take *count* messages from *seq* on, at most what :meth:`unbroken` said, out of flight."""
        run = self._entries.pop(seq)
        self.count -= count
        run.left -= count
        if run.left:
            run.start = seq + count
            self._entries[run.start] = run
        else:
            self._forget(run)

    def touch(self, seq: int, consumer: Consumer, deadline_ns: int) -> None:
        """Give *seq* a deadline of its own; when it was delivered does not change. Raises NotInFlight."""
        run = self.find(seq, consumer)
        if run.left == 1:
            # The heap finds the older deadline first and then looks here again.
            run.deadline_ns = deadline_ns
            return
        delivered_ns = run.delivered_ns
        self.remove(seq, consumer)
        self.add(seq, seq + 1, consumer, delivered_ns, deadline_ns)

    def break_run(self, seq: int) -> None:
        """Give each message of the run that begins with *seq* its own entry."""
        self._break(self._entries[seq])

    def next_deadline_ns(self) -> int | None:
        """When :meth:`expired` may next find something; never late, perhaps early."""
        while self._heap and not self._heap[0][2].left:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expired(self, now_ns: int) -> Iterator[tuple[Consumer, list[tuple[int, int]]]]:
        """Take the runs out of flight whose deadline has passed: their consumer and ranges of messages."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            _, _, run = heappop(heap)
            if not run.left:
                continue
            if run.deadline_ns > now_ns:
                self._push(run)
                continue
            yield run.consumer, self._take(run)

    def of_consumer(self, consumer: Consumer) -> list[tuple[int, int]]:
        """Take everything out of flight that *consumer* has."""
        ranges: list[tuple[int, int]] = []
        for run in {id(run): run for run in self._entries.values() if run.consumer is consumer}.values():
            ranges.extend(self._take(run))
        ranges.sort()
        return ranges

    def remove_below(self, seq: int) -> Iterator[Consumer]:
        """Take every message below *seq* out of flight; yields its consumer for each."""
        for run in {id(run): run for run in self._entries.values() if run.start < seq}.values():
            if not run.broken:
                self._break(run)
        for low in [low for low in self._entries if low < seq]:
            consumer = self._entries[low].consumer
            self.remove(low, consumer)
            yield consumer

    def ranges(self) -> list[tuple[int, int]]:
        """What is in flight, as ranges, changing nothing."""
        return [(seq, seq + 1) if run.broken else (run.start, run.end) for seq, run in self._entries.items()]

    def lowest(self) -> int | None:
        return min(self._entries, default=None)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _push(self, run: Run) -> None:
        self._serial += 1
        heappush(self._heap, (run.deadline_ns, self._serial, run))

    def _forget(self, run: Run) -> None:
        self._wide.pop(run, None)
        self._runs -= 1
        if len(self._heap) > self._runs * _STALE_RATIO + _STALE_SLACK:
            self._heap = [entry for entry in self._heap if entry[2].left]
            heapify(self._heap)

    def _take(self, run: Run) -> list[tuple[int, int]]:
        entries = self._entries
        ranges: list[tuple[int, int]] = []
        if run.broken:
            for seq in range(run.start, run.end):
                if entries.get(seq) is run:
                    del entries[seq]
                    if ranges and ranges[-1][1] == seq:
                        ranges[-1] = (ranges[-1][0], seq + 1)
                    else:
                        ranges.append((seq, seq + 1))
        else:
            del entries[run.start]
            ranges.append((run.start, run.end))
        self.count -= run.left
        run.left = 0
        self._forget(run)
        return ranges

    def _break_around(self, seq: int) -> Run:
        for run in self._wide:
            if run.start < seq < run.end:
                self._break(run)
                return run
        raise NotInFlight("ID not in flight")

    def _break(self, run: Run) -> None:
        run.broken = True
        self._wide.pop(run, None)
        self._entries.update(dict.fromkeys(range(run.start, run.end), run))
