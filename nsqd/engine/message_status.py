"""The state of some or all messages on a channel, for readers in any thread. Changes nothing.

To find the state of one message, every pending entry and every deferred run is checked. So copies are made
in the loop, and any thread computes the state from them.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from nsqd.engine.backlog import Backlog, MessageState
from nsqd.engine.channel import Channel
from nsqd.engine.credit import Credit
from nsqd.engine.deferred import runs_in
from nsqd.engine.in_flight import Run
from nsqd.engine.pending import Entry, PendingList, ranges_in
from nsqd.log.ranges import Ranges, merged, within, without


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """The state of one message; times are those of the engine's clock, 0 where there is none.

    *place* counts from 1, in the order of delivery; 0 when the message waits at the topic. *since_ns* is when
    it was delivered to *consumer*, *until_ns* its deadline there, or when it is due.
    """

    state: MessageState
    ordinal: int = 0
    since_ns: int = 0
    until_ns: int = 0
    consumer: Credit | None = None


_DEAD_LETTERING = MessageStatus(MessageState.DEAD_LETTERING)
_FINISHED = MessageStatus(MessageState.FINISHED)
_AT_TOPIC = MessageStatus(MessageState.PENDING)


def work_on(channel: Channel, backlog: Backlog) -> int:
    """How many messages and ranges are checked for the state of one message."""
    entries = channel.backlog.pending.entries
    pending = sum(len(entry) if isinstance(entry, PendingList) else 1 for entry in entries)
    return pending + channel.backlog.deferred.count + backlog.deferred.count


class StatusSnapshot:
    """The states of some messages at one moment: made in the loop, :meth:`resolve` in any thread."""

    def __init__(self, channel: Channel, backlog: Backlog, seqs: Sequence[int]) -> None:
        """*seqs* are messages that were stored; *backlog* is what the topic holds for its channels."""
        self._seqs = seqs
        self._cached: dict[int, MessageStatus] = {}
        own = channel.backlog
        runs = own.in_flight.runs_of(seqs)
        dead_letter_queue = merged(own.dead_letter_queue.ranges())
        held = channel.topic_backlog_ranges(backlog)
        for seq in seqs:
            run = runs.get(seq)
            if run is not None:
                self._cached[seq] = _in_flight(run)
            elif not (own.unfinished(seq, seq + 1) or within(held, seq, seq + 1)):
                self._cached[seq] = _FINISHED
            elif dead_letter_queue and within(dead_letter_queue, seq, seq + 1):
                self._cached[seq] = _DEAD_LETTERING
        self._pending: list[Entry] = []
        self._dues: list[array[int]] = []
        if len(self._cached) < len(seqs):
            self._pending = list(own.pending.entries)
            self._dues = own.deferred.snapshot() + backlog.deferred.snapshot()

    def resolve(self) -> list[MessageStatus]:
        """The state of each message, in the order in which they were given."""
        unknown = sorted(seq for seq in self._seqs if seq not in self._cached)
        if unknown:
            self._find_pending(unknown)
            self._find_deferred(unknown)
        return [self._cached.get(seq, _AT_TOPIC) for seq in self._seqs]

    def _find_pending(self, unknown: list[int]) -> None:
        before = 1
        for start, end in ranges_in(self._pending):
            for seq in unknown[bisect_left(unknown, start) : bisect_left(unknown, end)]:
                self._cached[seq] = MessageStatus(MessageState.PENDING, ordinal=before + seq - start)
            before += end - start

    def _find_deferred(self, unknown: list[int]) -> None:
        first, last = unknown[0], unknown[-1]
        for due_ns, start, end in runs_in(self._dues):
            if start <= last and end > first:
                for seq in unknown[bisect_left(unknown, start) : bisect_left(unknown, end)]:
                    self._cached.setdefault(seq, MessageStatus(MessageState.DEFERRED, until_ns=due_ns))


class StateFilter:
    """Which messages of a channel are in one state at one moment: made in the loop, used in any thread.

    Without a state it finds what the channel itself has not finished.
    """

    def __init__(self, channel: Channel, backlog: Backlog, state: MessageState | None) -> None:
        """*backlog* is what the topic holds for its channels."""
        self._state = state
        own = channel.backlog
        self._finished, self._end = own.finished.copy(), own.end
        self._topic_backlog = channel.topic_backlog_ranges(backlog)
        self._in_flight = own.in_flight.snapshot() if state is MessageState.IN_FLIGHT else None
        self._pending: list[Entry] = []
        self._topic_pending: list[Entry] = []
        if state is MessageState.PENDING:
            self._pending, self._topic_pending = list(own.pending.entries), list(backlog.pending.entries)
        self._dead_lettering: Ranges = []
        if state is MessageState.DEAD_LETTERING:
            self._dead_lettering = own.dead_letter_queue.ranges()
        self._dues: list[array[int]] = []
        self._topic_dues: list[array[int]] = []
        if state is MessageState.DEFERRED:
            self._dues, self._topic_dues = own.deferred.snapshot(), backlog.deferred.snapshot()
        # All of them, after the first question.
        self._all: Ranges | None = None

    def ranges(self, start: int, end: int) -> Ranges:
        """Those of ``start <= seq < end``, sorted and merged.

        It takes time in proportion to the messages that are not finished, not to the numbers between them.
        """
        if self._state is None:
            return self._finished.missing(start, min(end, self._end))
        if self._all is None:
            self._all = merged(self._unsorted())
        if self._state is MessageState.FINISHED:
            return without([(start, end)], self._all)
        return within(self._all, start, end)

    def _unsorted(self) -> Ranges:
        """The messages in that state; for finished ones all others."""
        if self._state is MessageState.FINISHED:
            return self._finished.missing(0, self._end) + self._topic_backlog
        if self._in_flight is not None:
            return self._in_flight()
        held = [
            part
            for low, high in ranges_in(self._topic_pending)
            for part in within(self._topic_backlog, low, high)
        ]
        deferred = [(low, high) for _, low, high in self._runs()]
        return ranges_in(self._pending) + held + self._dead_lettering + deferred

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Due time, start and end of each deferred run."""
        yield from runs_in(self._dues)
        for due_ns, start, end in runs_in(self._topic_dues):
            for low, high in within(self._topic_backlog, start, end):
                yield due_ns, low, high

    def by_due_time(self, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        """Due time and sequence of the first deferred messages behind *after*, which is such a pair.

        Takes time in proportion to all deferred messages.
        """
        # The messages of a run share their due time, so those behind *after* are counted from where the run
        # begins.
        runs = (run for run in self._runs() if (run[0], run[2] - 1) > after)
        found: list[tuple[int, int]] = []
        for due_ns, start, end in nsmallest(limit, runs):
            first = max(start, after[1] + 1) if due_ns == after[0] else start
            found += [(due_ns, seq) for seq in range(first, min(end, first + limit))]
        return sorted(found)[:limit]


def _in_flight(run: Run) -> MessageStatus:
    return MessageStatus(
        MessageState.IN_FLIGHT, since_ns=run.delivered_ns, until_ns=run.deadline_ns, consumer=run.consumer
    )
