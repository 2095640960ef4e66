"""Messages in flight: runs of consecutive messages delivered together.

A run is one dictionary entry, under its first unanswered message, for as long as its consumer answers in
order. The first answer out of order breaks the run: then each of its messages has an entry of its own. So a
client that handles a batch from front to back costs a few operations per batch, and any other client costs
one dictionary entry per message.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from nsqd.engine.credit import Credit
from nsqd.log.ranges import Ranges, merged, within

# Finished runs stay in the heap until they outnumber what is in flight this many times.
_STALE_RATIO: Final = 2
_STALE_SLACK: Final = 64
# How many entries a checkpoint looks at for new deliveries: less than a millisecond's work.
_FRESH_AT_ONCE: Final = 10_000
# How many messages time out in one go: a millisecond or two, in which nobody else is served.
_EXPIRED_AT_ONCE: Final = 8192


class NotInFlight(Exception):
    """The message cannot be answered; the text is the reason the client is told."""


class Run:
    """Messages that were delivered to one consumer together; it has until *deadline_ns* to answer.

    They are ``start <= seq < end``, or only those of them that are *scattered*.
    """

    __slots__ = (
        "broken",
        "consumer",
        "deadline_ns",
        "delivered_ns",
        "end",
        "first",
        "left",
        "noted",
        "published",
        "scattered",
        "start",
    )

    def __init__(
        self,
        start: int,
        end: int,
        consumer: Credit,
        delivered_ns: int,
        deadline_ns: int,
        published: "array[int] | None" = None,
        scattered: list[int] | None = None,
    ) -> None:
        """*published*: when each message was published, in ns since 1970, if anybody wants to know."""
        # The first message that is not answered yet, and the first of all.
        self.start = self.first = start
        self.end = end
        self.consumer = consumer
        self.delivered_ns = delivered_ns
        self.deadline_ns = deadline_ns
        self.published = published
        self.scattered = scattered
        if scattered is None:
            self.left = end - start
            self.broken = False
        else:
            self.left = len(scattered)
            self.broken = True
        # A checkpoint states that it was delivered.
        self.noted = False

    def members(self) -> Sequence[int]:
        """Its messages, in order; of an unbroken run only those that are not answered."""
        return range(self.start, self.end) if self.scattered is None else self.scattered

    def place(self, seq: int) -> int:
        """The index of *seq* among all messages of the run."""
        return seq - self.first if self.scattered is None else bisect_left(self.scattered, seq)

    def __repr__(self) -> str:
        return f"<Run {self.start}..{self.end} left {self.left}{' broken' if self.broken else ''}>"


class InFlightSnapshot:
    """What is in flight at one moment: a quick copy, made in the loop for readers in any thread.

    Its runs change later, so only their ends and which of them are unbroken are used.
    """

    __slots__ = ("_entries", "_wide")

    def __init__(self, entries: dict[int, Run], wide: dict[Run, None]) -> None:
        self._entries = entries.copy()
        self._wide = wide.copy()

    def ranges(self) -> Ranges:
        """The ranges of messages, in no order; takes time in proportion to them."""
        wide = self._wide
        return [(seq, run.end if run in wide else seq + 1) for seq, run in self._entries.items()]


class InFlight:
    """All runs of one channel, found by message and by deadline."""

    __slots__ = (
        "_entries",
        "_heap",
        "_held",
        "_holds",
        "_newest",
        "_newest_ns",
        "_queued",
        "_serial",
        "_wide",
        "count",
    )

    def __init__(self) -> None:
        self._entries: dict[int, Run] = {}
        # Unbroken runs of more than one message: they are searched for a message that has no entry.
        self._wide: dict[Run, None] = {}
        # The runs of each consumer, also finished ones. All are noted when a consumer leaves, because others
        # may follow, and new ones for so many deliveries after that: while none leaves, it costs nothing.
        self._held: dict[Credit, list[Run]] = {}
        self._holds = 0
        # (deadline, serial, runs); the serial keeps the comparison from reaching the runs. Messages that are
        # delivered to one consumer at one moment share an entry, even hundreds of single ones.
        self._heap: list[tuple[int, int, list[Run]]] = []
        self._serial = 0
        # The runs and the deadline of the entry that was made last; and how many runs the heap has.
        self._newest: list[Run] = []
        self._newest_ns = -1
        self._queued = 0
        self.count = 0

    def add(
        self,
        start: int,
        end: int,
        consumer: Credit,
        now_ns: int,
        deadline_ns: int,
        published: "array[int] | None" = None,
    ) -> None:
        run = Run(start, end, consumer, now_ns, deadline_ns, published)
        self._entries[start] = run
        if end - start > 1:
            self._wide[run] = None
        self.count += end - start
        self._push(run)

    def add_scattered(
        self,
        seqs: list[int],
        consumer: Credit,
        now_ns: int,
        deadline_ns: int,
        published: "array[int] | None" = None,
    ) -> None:
        """Put sorted, scattered messages in flight together: as a run that is broken from the start."""
        run = Run(seqs[0], seqs[-1] + 1, consumer, now_ns, deadline_ns, published, seqs)
        self._entries.update(dict.fromkeys(seqs, run))
        self.count += len(seqs)
        self._push(run)

    def find(self, seq: int, consumer: Credit) -> Run:
        """The run that holds *seq*. Raises NotInFlight, also when another consumer has it."""
        run = self._entries.get(seq)
        if run is None:
            run = self._break_around(seq)
        if run.consumer is not consumer:
            raise NotInFlight("client does not own message")
        return run

    def remove(self, seq: int, consumer: Credit) -> Run:
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

    def has(self, seq: int) -> bool:
        """Whether it is in flight."""
        return seq in self._entries or any(run.start < seq < run.end for run in self._wide)

    def take_away(self, seq: int) -> Credit:
        """Take *seq*, which is in flight, from its consumer. Raises NotInFlight."""
        run = self._entries.get(seq)
        if run is None:
            run = self._break_around(seq)
        self.remove(seq, run.consumer)
        return run.consumer

    def remove_scattered(self, seqs: list[int], consumer: Credit) -> list[tuple[int, NotInFlight]]:
        """Take messages of *consumer* out of flight, in any order; returns index and reason of failures."""
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

    def unbroken(self, seq: int, consumer: Credit) -> int:
        """How many messages from *seq* on are the head of one unbroken run of *consumer*; 0 when none are."""
        run = self._entries.get(seq)
        if run is None or run.broken or run.consumer is not consumer:
            return 0
        return run.left

    def remove_head(self, seq: int, count: int) -> Run:
        """Take *count* messages from *seq* on out of flight, at most as many as :meth:`unbroken` said.

        Returns their run.
        """
        run = self._entries.pop(seq)
        self.count -= count
        run.left -= count
        if run.left:
            run.start = seq + count
            self._entries[run.start] = run
        else:
            self._forget(run)
        return run

    def touch(self, seq: int, consumer: Credit, deadline_ns: int) -> None:
        """Give *seq* a deadline of its own; its time of delivery does not change. Raises NotInFlight."""
        run = self.find(seq, consumer)
        if run.left == 1 and deadline_ns >= run.deadline_ns:
            # The heap still has the older deadline; when that passes, `expired` looks at this one.
            run.deadline_ns = deadline_ns
            return
        delivered_ns, published = run.delivered_ns, run.published
        if published is not None:
            place = run.place(seq)
            published = published[place : place + 1]
        self.remove(seq, consumer)
        self.add(seq, seq + 1, consumer, delivered_ns, deadline_ns, published)

    def break_run(self, seq: int) -> None:
        """Give each message of the run that begins with *seq* its own entry."""
        self._break(self._entries[seq])

    def next_deadline_ns(self) -> int | None:
        """When :meth:`expired` may next find something; never late, perhaps early."""
        heap = self._heap
        while heap:
            runs = heap[0][2]
            while runs and not runs[-1].left:
                runs.pop()
                self._queued -= 1
            if runs:
                return heap[0][0]
            self._pop()
        return None

    def expired(
        self, now_ns: int, limit: int = _EXPIRED_AT_ONCE
    ) -> Iterator[tuple[Credit, list[tuple[int, int]]]]:
        """Take runs whose deadline has passed out of flight: yields their consumer and ranges of messages.

        It stops after *limit* messages or more, behind all runs of one moment; the next call finds the rest.
        """
        heap = self._heap
        while limit > 0 and heap and heap[0][0] <= now_ns:
            runs = self._pop()
            self._queued -= len(runs)
            for run in runs:
                if not run.left:
                    continue
                if run.deadline_ns > now_ns:
                    self._push(run)
                    continue
                limit -= run.left
                yield run.consumer, self._take(run)
            # Runs that stay have another entry, perhaps in another heap.
            heap = self._heap

    def of_consumer(self, consumer: Credit) -> list[tuple[int, int]]:
        """Take everything out of flight that *consumer* has; returns the ranges, sorted."""
        if not self._held:
            self._holds = len(self._entries) * _STALE_RATIO + _STALE_SLACK
            last: Run | None = None
            for run in self._entries.values():
                if run is not last:
                    self._hold(run)
                    last = run
        ranges: list[tuple[int, int]] = []
        for run in self._held.pop(consumer, ()):
            if run.left:
                ranges.extend(self._take(run))
        ranges.sort()
        return ranges

    def remove_below(self, seq: int) -> Iterator[Credit]:
        """Take every message below *seq* out of flight; yields the consumer of each."""
        for run in {id(run): run for run in self._entries.values() if run.start < seq}.values():
            if not run.broken:
                self._break(run)
        for low in [low for low in self._entries if low < seq]:
            consumer = self._entries[low].consumer
            self.remove(low, consumer)
            yield consumer

    def take_ranges(self, ranges: Ranges) -> Iterator[Credit]:
        """Take messages in *ranges*, sorted and merged, out of flight; yields the consumer of each."""
        for run in {id(run): run for run in self._entries.values()}.values():
            if not run.broken and within(ranges, run.start, run.end):
                self._break(run)
        for seq in [one for one in self._entries if within(ranges, one, one + 1)]:
            consumer = self._entries[seq].consumer
            self.remove(seq, consumer)
            yield consumer

    def take_all(self) -> list[Run]:
        """Take everything out of flight; returns the runs, with what was left of each."""
        runs = list({id(run): run for run in self._entries.values()}.values())
        self.clear()
        return runs

    def ranges(self) -> Ranges:
        """What is in flight, sorted and merged."""
        return merged(self.snapshot().ranges())

    def fresh(self) -> list[tuple[int, int]]:
        """Ranges that were delivered since the last call and are in flight; not all of very many."""
        found: list[tuple[int, int]] = []
        runs: list[Run] = []
        for seq, run in islice(reversed(self._entries.items()), _FRESH_AT_ONCE):
            if not run.noted:
                runs.append(run)
                found.append((seq, seq + 1) if run.broken else (seq, run.end))
        for run in runs:
            run.noted = True
        return found

    def snapshot(self) -> InFlightSnapshot:
        """What is in flight now."""
        return InFlightSnapshot(self._entries, self._wide)

    def note_again(self) -> None:
        """The next checkpoint states again that all of this was delivered."""
        for run in self._entries.values():
            run.noted = False

    def runs_of(self, seqs: Sequence[int]) -> dict[int, Run]:
        """The runs of those of *seqs* that are in flight; nothing is broken."""
        entries = self._entries
        found = {seq: run for seq in seqs if (run := entries.get(seq)) is not None}
        for run in self._wide if len(found) < len(seqs) else ():
            found.update([(seq, run) for seq in seqs if run.start < seq < run.end])
        return found

    def lowest(self) -> int | None:
        return min(self._entries, default=None)

    def clear(self) -> None:
        # A compiled __init__ that is called again does not release the values of the attributes.
        self._entries, self._wide = {}, {}
        self._held, self._holds = {}, 0
        self._heap, self._serial = [], 0
        self._newest, self._newest_ns = [], -1
        self._queued = self.count = 0

    def _push(self, run: Run) -> None:
        if self._held:
            self._hold(run)
        self._queued += 1
        deadline_ns = run.deadline_ns
        if deadline_ns == self._newest_ns:
            self._newest.append(run)
            return
        self._serial += 1
        self._newest_ns = deadline_ns
        self._newest = newest = [run]
        heappush(self._heap, (deadline_ns, self._serial, newest))

    def _hold(self, run: Run) -> None:
        """Note whose *run* it is; drop all such notes when most of them may be about finished runs."""
        self._holds -= 1
        if not self._holds:
            self._held.clear()
            return
        held = self._held.get(run.consumer)
        if held is None:
            self._held[run.consumer] = [run]
        else:
            held.append(run)

    def _pop(self) -> list[Run]:
        """The runs of the entry whose time comes first."""
        _, _, runs = heappop(self._heap)
        if runs is self._newest:
            self._newest_ns = -1
        return runs

    def _forget(self, run: Run) -> None:
        if self._wide:
            self._wide.pop(run, None)
        if self._queued > len(self._entries) * _STALE_RATIO + _STALE_SLACK:
            self._drop_finished()

    def _drop_finished(self) -> None:
        """Remove runs from the heap that have no messages left."""
        live: list[tuple[int, int, list[Run]]] = []
        self._queued = 0
        for entry in self._heap:
            runs = entry[2]
            if len(runs) > 1:
                runs[:] = [run for run in runs if run.left]
            if runs and runs[0].left:
                live.append(entry)
                self._queued += len(runs)
        heapify(live)
        self._heap = live
        self._newest_ns = -1

    def _take(self, run: Run) -> list[tuple[int, int]]:
        entries = self._entries
        ranges: list[tuple[int, int]] = []
        if run.broken:
            for seq in run.members():
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
        self._entries.update(dict.fromkeys(run.members(), run))
