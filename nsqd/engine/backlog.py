"""The messages that one channel, or a topic before its channels, must deliver, and the state of each."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from nsqd.engine.credit import Credit
from nsqd.engine.dead_letter_queue import DeadLetterMove, DeadLetterQueue
from nsqd.engine.deferred import Deferred
from nsqd.engine.in_flight import InFlight
from nsqd.engine.journal import Journal
from nsqd.engine.pending import PendingQueue
from nsqd.log.ranges import Ranges, RangeSet, merged, ranges_of, size_of, size_of_range, within, without
from nsqd.log.tail import MessageLog

UNLIMITED: Final = 1 << 62
# All messages are weighed again when their number has changed by one part in so many.
_REWEIGH_SHARE: Final = 32


class MessageState(Enum):
    """What a channel has done with a message."""

    PENDING = "waiting"
    DEFERRED = "deferred"
    IN_FLIGHT = "in_flight"
    # Being moved to the dead letters.
    DEAD_LETTERING = "dead_lettering"
    FINISHED = "finished"


class Weight:
    """How many bytes a backlog must deliver.

    The messages are weighed now and then; in between the bytes are estimated from their number.
    """

    __slots__ = ("_bytes", "_count", "_end", "_weighed")

    def __init__(self) -> None:
        self._bytes = self._end = 0
        # How many messages those bytes are, and how many were pending when all were weighed.
        self._count = self._weighed = 0

    def of(self, backlog: "Backlog", log: MessageLog) -> int:
        """About how many bytes *backlog* must deliver of *log*."""
        count = backlog.count()
        if not count:
            return 0
        if abs(count - self._weighed) * _REWEIGH_SHARE > self._weighed:
            # From the first message that is pending, so that a long log costs nothing before it.
            self._bytes = log.weigh(backlog.finished.floor, backlog.end, backlog.count_unfinished)
            self._count = self._weighed = count
        elif backlog.end != self._end:
            self._bytes += log.weigh(self._end, backlog.end, size_of_range)
            self._count += backlog.end - self._end
        self._end = backlog.end
        # Messages that left since then are assumed to weigh as much as the rest.
        return self._bytes * count // self._count

    @property
    def mean(self) -> int:
        """Mean bytes of one message, at least 1."""
        return max(1, self._bytes // max(1, self._count))

    def forget(self) -> None:
        """Weigh all messages the next time."""
        self._weighed = 0


class Backlog:
    """A map from each message below ``end`` to its state.

    A message in ``finished`` is done with. Every other one is in one of `pending`, `in_flight`, `deferred`
    and `dead_letter_queue`, or is suspended and in none of them. A channel has one backlog. A topic has one
    for messages published before its first channel or while it is paused.
    """

    __slots__ = (
        "attempts",
        "dead_letter_queue",
        "deferred",
        "end",
        "finished",
        "in_flight",
        "journal",
        "limit",
        "pending",
        "ready",
        "suspended",
        "weight",
    )

    def __init__(self, limit: int = UNLIMITED, ready: Iterable[Credit] = ()) -> None:
        """*limit* bounds the pending messages; those beyond it are dropped, as an ephemeral channel does.

        What the *ready* consumers can be sent is pending besides.
        """
        self.limit = limit
        self.ready = ready
        self.pending = PendingQueue()
        self.in_flight = InFlight()
        self.deferred = Deferred()
        # Messages on their way to the dead letters.
        self.dead_letter_queue = DeadLetterQueue()
        # Deliveries of each message that came back; a message that never came back has no entry.
        self.attempts: dict[int, int] = {}
        self.finished = RangeSet()
        self.end = 0
        # Facts that a checkpoint cannot see in ``finished``; None for messages that live in memory only.
        self.journal = Journal() if limit >= UNLIMITED else None
        self.weight = Weight()
        # These do not become pending, because another nsqd may deliver them: see `suspend`. Mostly empty.
        self.suspended: Ranges = []

    def reset(self, position: int) -> None:
        """Begin again at *position*: messages below are finished, and messages from there on are new.

        Messages in flight and on their way to the dead letters stay there.
        """
        self.finished = RangeSet(position)
        self.end = position
        self.pending.clear()
        self.deferred.clear()
        self.attempts.clear()
        if self.journal is not None:
            self.journal = Journal()

    def extend(self, start: int, end: int, due_ns: int = 0, attempts: int = 0) -> None:
        """Add new messages ``start <= seq < end`` as pending, or as deferred if *due_ns* is given.

        *attempts* is how often another nsqd has delivered them.
        """
        # No message here has a number in between: those were left out, or belong to others.
        self.pass_over(start)
        self.end = end
        if attempts:
            self.set_attempts(start, end, attempts)
        if due_ns:
            self.defer(start, end, due_ns)
        elif self.suspended or self.limit < UNLIMITED:
            self.enqueue([(start, end)], redelivered=attempts > 0)
        else:
            # Runs for each publish: a call less.
            self.pending.append([(start, end)], redelivered=attempts > 0)

    def pass_over(self, position: int) -> None:
        """Finish all from ``end`` to *position*, which were never pending here."""
        if position > self.end:
            self.finished.add(self.end, position)
            self.end = position

    # --- from one state to another ---

    def enqueue(self, ranges: Ranges, *, redelivered: bool | None = None) -> None:
        """Unfinished messages in *ranges*, sorted and merged, that are in no state become pending.

        They join the tail. *redelivered* is whether they were delivered before; with None `attempts` tells
        it for each, and those that were are behind the others.
        """
        if redelivered is None:
            tried = self._tried_of(ranges) if self.attempts else []
            if tried:
                self.enqueue(without(ranges, tried), redelivered=False)
                self.enqueue(tried, redelivered=True)
                return
            redelivered = False
        if self.suspended:
            ranges = without(ranges, self.suspended)
        if self.limit < UNLIMITED:
            ranges = self._within_limit(ranges)
        self.pending.append(ranges, redelivered=redelivered)

    def defer(self, start: int, end: int, due_ns: int) -> None:
        """Unfinished messages ``start <= seq < end`` that are in no state are deferred until *due_ns*."""
        self.deferred.add(start, end, due_ns)
        if self.journal is not None:
            self.journal.defer(start, end, due_ns)

    def release_due(self, now_ns: int) -> int | None:
        """Deferred messages whose time has come become pending; returns the lowest of them.

        None when there are none. When very many are due, some are left for the next call.
        """
        if not self.deferred.count:
            return None
        ranges = self.deferred.take_due(now_ns)
        self.enqueue(ranges)
        return ranges[0][0] if ranges else None

    def note_delivered(self, start: int, end: int) -> None:
        """Messages that were taken out of flight and are not finished count as delivered before."""
        attempts, journal = self.attempts, self.journal
        if end - start > 1 and attempts.keys().isdisjoint(range(start, end)):
            self.set_attempts(start, end, 1)
            return
        for seq in range(start, end):
            count = attempts.setdefault(seq, 1)
            if journal is not None:
                journal.tried(seq, seq + 1, count)

    def discard(self, ranges: Ranges) -> list[tuple[Credit, Ranges]]:
        """Unfinished messages in *ranges*, sorted and merged, are in no state from now on.

        Returns the consumers that had some in flight, and which.
        """
        left = size_of(ranges)
        left -= self.pending.remove(ranges, left)
        taken = self.in_flight.remove(ranges) if left and self.in_flight.count else []
        left -= sum([size_of(of_consumer) for _, of_consumer in taken])
        if left:
            left -= self.deferred.remove(ranges)
        if left:
            self.dead_letter_queue.remove(ranges)
        return taken

    def remove(self, ranges: Ranges) -> tuple[Ranges, list[tuple[Credit, Ranges]]]:
        """Finish messages in *ranges*, which are in any order, whatever their state is.

        Returns those that were not finished, sorted and merged, and what `take_out` does.
        """
        unfinished = [part for start, end in merged(ranges) for part in self.unfinished(start, end)]
        taken = self.discard(unfinished)
        self.finish(unfinished)
        return unfinished, taken

    def finish(self, ranges: Ranges) -> None:
        """Messages in *ranges*, sorted and merged, that are in no state are finished."""
        for start, end in ranges:
            self.finished.add(start, end)
        if self.attempts and ranges:
            for seq in self._tried_seqs(ranges):
                del self.attempts[seq]

    def finish_dead(self, move: DeadLetterMove) -> bool:
        """Messages that were moved to the dead letters are finished; False if they were removed before."""
        if not self.dead_letter_queue.written(move):
            return False
        self.finish([(move.start, move.end)])
        return True

    def merge(self, other: "Backlog") -> None:
        """Add the unfinished messages of *other*, a topic's, behind the pending ones."""
        start = max(self.end, other.finished.floor)
        for low, high in other.unfinished(start, other.end):
            self.pass_over(low)
            self.end = high
        self.pass_over(other.end)
        for seq, count in other.attempts.items():
            if seq >= start:
                self.set_attempts(seq, seq + 1, count)
        for entry in other.pending.entries:
            self.enqueue(within(entry.ranges(), start, self.end), redelivered=entry.redelivered)
        for due_ns, low, high in other.deferred.runs():
            if high > start:
                self.defer(max(low, start), high, due_ns)

    def suspend(self, ranges: Ranges) -> None:
        """Suspend exactly *ranges*, because another nsqd that has them may have delivered them.

        Suspended messages are not finished, but they are not pending. Those in flight or deferred do not
        become pending when they come back or are due. No checkpoint has them.
        """
        ranges = merged(ranges)
        resumed = without(self.suspended, ranges)
        self.suspended = ranges
        self.pending.remove(ranges)
        if resumed:
            elsewhere = [(start, end) for _, start, end in self.deferred.runs()]
            elsewhere += self.in_flight.ranges() + self.dead_letter_queue.ranges()
            unfinished = [part for start, end in resumed for part in self.unfinished(start, end)]
            self.enqueue(without(unfinished, merged(elsewhere)))

    # --- questions ---

    def state_of(self, seq: int) -> MessageState:
        """The state of a message below ``end``; a suspended one is pending.

        It takes time in proportion to the runs that are deferred and in flight.
        """
        if seq in self.finished:
            return MessageState.FINISHED
        if self.in_flight.has(seq):
            return MessageState.IN_FLIGHT
        if any(start <= seq < end for start, end in self.dead_letter_queue.ranges()):
            return MessageState.DEAD_LETTERING
        if any(start <= seq < end for _, start, end in self.deferred.runs()):
            return MessageState.DEFERRED
        return MessageState.PENDING

    def count(self) -> int:
        """How many messages are in a state."""
        return self.pending.count + self.deferred.count + self.in_flight.count + self.dead_letter_queue.count

    def unfinished(self, start: int, end: int) -> Ranges:
        """The messages of ``start <= seq < end`` that are not finished, sorted and merged."""
        return self.finished.missing(start, min(end, self.end))

    def count_unfinished(self, start: int, end: int) -> int:
        """How many messages of ``start <= seq < end`` are not finished."""
        return self.finished.count_missing(start, min(end, self.end))

    def lowest(self) -> int | None:
        """The lowest sequence that is not finished; None when all are."""
        floor = self.finished.floor
        return floor if floor < self.end else None

    # --- inside ---

    def _within_limit(self, ranges: Ranges) -> Ranges:
        """The first messages of *ranges*, as many as the limit allows; the others are finished."""
        # Even with a limit of 0, a message can be handed to a consumer that is waiting for it.
        room = self.limit - self.pending.count + sum([max(0, consumer.credit) for consumer in self.ready])
        if size_of(ranges) <= room:
            return ranges
        kept: Ranges = []
        for start, end in ranges:
            stop = min(end, start + max(0, room))
            if start < stop:
                kept.append((start, stop))
            if stop < end:
                self.finish([(stop, end)])
            room -= end - start
        return kept

    def set_attempts(self, start: int, end: int, count: int) -> None:
        """Messages ``start <= seq < end`` were delivered *count* times."""
        self.attempts.update(dict.fromkeys(range(start, end), count))
        if self.journal is not None:
            self.journal.tried(start, end, count)

    def _tried_of(self, ranges: Ranges) -> Ranges:
        """Those of *ranges* that were delivered before, sorted and merged."""
        tried = self._tried_seqs(ranges)
        return ranges if len(tried) == size_of(ranges) else ranges_of(tried)

    def _tried_seqs(self, ranges: Ranges) -> list[int]:
        attempts = self.attempts
        if size_of(ranges) <= len(attempts):
            return [seq for start, end in ranges for seq in range(start, end) if seq in attempts]
        return sorted([seq for seq in attempts if within(ranges, seq, seq + 1)])
