"""Messages in flight: runs of consecutive messages delivered together.

A run is one dictionary entry, under its first unanswered message, for as long as its consumer answers in
order. The first answer out of order breaks the run: then each of its messages has an entry of its own. So a
client that handles a batch from front to back costs a few operations per batch, and any other client costs
one dictionary entry per message.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from nsqd.engine.credit import Credit
from nsqd.log.ranges import Ranges, merged, ranges_of, within

# How many entries a checkpoint checks for new deliveries: less than a millisecond's work.
_MAX_FRESH_PER_CHECKPOINT: Final = 10_000
# How many messages one step times out: a millisecond or two, in which no other client is served.
_MAX_EXPIRED_PER_TURN: Final = 8192


class NotInFlight(Exception):
    """The message cannot be answered; the text is the reason for the client."""


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
        "in_checkpoint",
        "left",
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
        """*published*: when each message was published, in ns since 1970, if it is needed."""
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
        self.in_checkpoint = False

    def members(self) -> Sequence[int]:
        """Its messages, in order; of an unbroken run only those that are not answered."""
        return range(self.start, self.end) if self.scattered is None else self.scattered

    def index(self, seq: int) -> int:
        """The index of *seq* among all messages of the run."""
        return seq - self.first if self.scattered is None else bisect_left(self.scattered, seq)

    def __repr__(self) -> str:
        return f"<Run {self.start}..{self.end} left {self.left}{' broken' if self.broken else ''}>"


class InFlight:
    """All runs of one channel, found by message, and by consumer in the order of their deadlines.

    It updates `Credit.in_flight` of the consumers.
    """

    __slots__ = ("_entries", "_runs", "_wide", "count")

    def __init__(self) -> None:
        self._entries: dict[int, Run] = {}
        # Unbroken runs of more than one message: they are searched for a message that has no entry.
        self._wide: dict[Run, None] = {}
        # The runs of each consumer that had some and did not leave, in the order of their deadlines.
        self._runs: dict[Credit, dict[Run, None]] = {}
        self.count = 0

    def add(self, run: Run) -> None:
        """Put the messages of *run*, a new one, in flight to its consumer."""
        if run.scattered is not None:
            self._entries.update(dict.fromkeys(run.scattered, run))
        else:
            self._entries[run.start] = run
            if run.left > 1:
                self._wide[run] = None
        self.count += run.left
        consumer = run.consumer
        consumer.in_flight += run.left
        runs = self._runs.get(consumer)
        if runs is None:
            self._runs[consumer] = {run: None}
            return
        later: list[Run] = []
        if runs and run.deadline_ns < next(reversed(runs)).deadline_ns:
            # Touched messages can be due before later ones, because of the maximum from their delivery on.
            later = [one for one in runs if one.deadline_ns > run.deadline_ns]
        for one in later:
            del runs[one]
        runs[run] = None
        for one in later:
            runs[one] = None

    def find(self, seq: int, consumer: Credit) -> Run:
        """The run that holds *seq*. Raises NotInFlight, also when another consumer has it."""
        run = self._entries.get(seq)
        if run is None:
            run = self._break_around(seq)
        if run.consumer is not consumer:
            raise NotInFlight("client does not own message")
        return run

    def has(self, seq: int) -> bool:
        """Whether it is in flight."""
        return seq in self._entries or any(run.start < seq < run.end for run in self._wide)

    def take(self, seq: int, consumer: Credit) -> Run:
        """Take *seq* out of flight and return the run it was in. Raises NotInFlight."""
        run = self.find(seq, consumer)
        del self._entries[seq]
        self.count -= 1
        consumer.in_flight -= 1
        run.left -= 1
        if not run.left:
            self._drop(run)
        elif not run.broken:
            run.start = seq + 1
            self._entries[run.start] = run
        return run

    def take_each(self, seqs: Sequence[int], consumer: Credit) -> list[tuple[int, NotInFlight]]:
        """Take messages of *consumer* out of flight, in any order; returns index and reason of failures."""
        failed: list[tuple[int, NotInFlight]] = []
        entries = self._entries
        taken = 0
        for index, seq in enumerate(seqs):
            run = entries.get(seq)
            if run is not None and run.consumer is consumer and (run.broken or run.left == 1):
                del entries[seq]
                run.left -= 1
                taken += 1
                if not run.left:
                    self._drop(run)
                continue
            try:
                self.take(seq, consumer)
            except NotInFlight as why:
                failed.append((index, why))
        self.count -= taken
        consumer.in_flight -= taken
        return failed

    def unbroken(self, seq: int, consumer: Credit) -> int:
        """How many messages from *seq* on are the head of one unbroken run of *consumer*; 0 when none are."""
        run = self._entries.get(seq)
        if run is None or run.broken or run.consumer is not consumer:
            return 0
        return run.left

    def take_head(self, seq: int, count: int) -> None:
        """Take *count* messages from *seq* on out of flight, at most as many as :meth:`unbroken` said."""
        run = self._entries.pop(seq)
        self.count -= count
        run.consumer.in_flight -= count
        run.left -= count
        if run.left:
            run.start = seq + count
            self._entries[run.start] = run
        else:
            self._drop(run)

    def touch(self, seq: int, consumer: Credit, deadline_ns: int) -> None:
        """Give *seq* a deadline of its own; its time of delivery does not change. Raises NotInFlight."""
        run = self.find(seq, consumer)
        published = run.published
        if published is not None:
            index = run.index(seq)
            published = published[index : index + 1]
        self.take(seq, consumer)
        self.add(Run(seq, seq + 1, consumer, run.delivered_ns, deadline_ns, published))

    def break_run(self, seq: int) -> None:
        """Give each message of the run that begins with *seq* its own entry."""
        self._break(self._entries[seq])

    def next_deadline_ns(self) -> int | None:
        """When :meth:`expired` finds something; takes time in proportion to the consumers."""
        return min((next(iter(runs)).deadline_ns for runs in self._runs.values() if runs), default=None)

    def expired(self, now_ns: int) -> list[tuple[Credit, Ranges]]:
        """Take runs whose deadline has passed out of flight: their consumers and ranges of messages.

        It stops after some thousand messages; the next call finds the others.
        """
        limit = _MAX_EXPIRED_PER_TURN
        found: list[tuple[Credit, Ranges]] = []
        for consumer, runs in self._runs.items():
            late: list[Run] = []
            for run in runs:
                if limit <= 0 or run.deadline_ns > now_ns:
                    break
                limit -= run.left
                late.append(run)
            found += [(consumer, self._take_run(run)) for run in late]
        return found

    def of_consumer(self, consumer: Credit) -> Ranges:
        """Take everything out of flight that *consumer*, which leaves, has; returns the ranges, sorted."""
        ranges = sorted(part for run in list(self._runs.get(consumer, ())) for part in self._take_run(run))
        self._runs.pop(consumer, None)
        return ranges

    def remove(self, ranges: Ranges) -> list[tuple[Credit, Ranges]]:
        """Take messages in *ranges*, sorted and merged, out of flight: the ranges that each consumer had."""
        taken: list[tuple[Credit, Ranges]] = []
        for run in list(dict.fromkeys(self._entries.values())):
            found = within(ranges, run.start, run.end)
            if found == [(run.start, run.end)]:
                taken.append((run.consumer, self._take_run(run)))
            elif found:
                seqs = [
                    seq
                    for seq in run.members()
                    if within(found, seq, seq + 1) and (not run.broken or self._entries.get(seq) is run)
                ]
                for seq in seqs:
                    self.take(seq, run.consumer)
                if seqs:
                    taken.append((run.consumer, ranges_of(seqs)))
        return taken

    def ranges(self) -> Ranges:
        """The messages in flight, sorted and merged."""
        return merged(self.snapshot()())

    def fresh(self) -> Ranges:
        """Ranges that were delivered since the last call and are in flight; not all of very many."""
        found: Ranges = []
        runs: list[Run] = []
        for seq, run in islice(reversed(self._entries.items()), _MAX_FRESH_PER_CHECKPOINT):
            if not run.in_checkpoint:
                runs.append(run)
                found.append((seq, seq + 1) if run.broken else (seq, run.end))
        for run in runs:
            run.in_checkpoint = True
        return found

    def snapshot(self) -> Callable[[], Ranges]:
        """A function that returns the ranges of messages in flight now, in no order, in any thread.

        The copy is quick; the function takes time in proportion to the ranges.
        """
        entries, wide = self._entries.copy(), self._wide.copy()
        # The runs change later, so only their ends and which of them are unbroken are used.
        return lambda: [(seq, run.end if run in wide else seq + 1) for seq, run in entries.items()]

    def note_again(self) -> None:
        """The next checkpoint states again that all of this was delivered."""
        for run in self._entries.values():
            run.in_checkpoint = False

    def runs_of(self, seqs: Sequence[int]) -> dict[int, Run]:
        """The runs of those of *seqs* that are in flight; nothing is broken."""
        entries = self._entries
        found = {seq: run for seq in seqs if (run := entries.get(seq)) is not None}
        for run in self._wide if len(found) < len(seqs) else ():
            found.update([(seq, run) for seq in seqs if run.start < seq < run.end])
        return found

    def _drop(self, run: Run) -> None:
        """Forget *run*, of which nothing is in flight any more."""
        del self._runs[run.consumer][run]
        if self._wide:
            self._wide.pop(run, None)

    def _take_run(self, run: Run) -> Ranges:
        entries = self._entries
        if run.broken:
            seqs = [seq for seq in run.members() if entries.get(seq) is run]
            for seq in seqs:
                del entries[seq]
            ranges = ranges_of(seqs)
        else:
            del entries[run.start]
            ranges = [(run.start, run.end)]
        self.count -= run.left
        run.consumer.in_flight -= run.left
        run.left = 0
        self._drop(run)
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
