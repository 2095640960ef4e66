"""Delivering: taking waiting messages from the log, and putting them in flight."""

from array import array
from collections.abc import Sequence
from typing import Final

from nsqd.engine.backlog import UNLIMITED, Backlog
from nsqd.engine.clock import Wall
from nsqd.engine.credit import Credit
from nsqd.engine.in_flight import InFlight
from nsqd.engine.latency import Latency
from nsqd.engine.pending_ranges import SHORT, PendingList, PendingRange, together
from nsqd.log.frames import Block, Piece, published_ns, with_attempts_all, with_attempts_each
from nsqd.log.gaps import CannotRead, Gap
from nsqd.log.headers import frames_for
from nsqd.log.ids import MessageIds
from nsqd.log.tail import READS_AT_ONCE, MessageLog

# The most bytes one consumer is sent in one go, so that large messages with a high RDY do not fill memory.
TAKE_BYTES: Final = 128 << 10
# How many messages are put in the order of the file at once: a millisecond's work.
_TOGETHER: Final = 4096
# How many messages are drawn at once, whether they are sent or not: a millisecond's work.
DRAWN_AT_ONCE: Final = 4096


class Delivering(Backlog):
    """Owes messages of a log and gives them to consumers, which have credit."""

    __slots__ = (
        "_drawn",
        "changed",
        "delivered_count",
        "ids",
        "in_flight",
        "latency",
        "log",
        "lost_count",
        "stalled",
        "wall",
    )

    def __init__(self, log: MessageLog, limit: int = UNLIMITED, wall: Wall | None = None) -> None:
        """*limit* bounds what waits."""
        super().__init__(limit)
        self.log = log
        self.wall = wall or Wall()
        # What is pending changed since the last checkpoint; publishing does not count, because it is in the
        # log.
        self.changed = True
        # The message that was drawn for a sampled consumer and could not be read yet.
        self._drawn: int | None = None
        self.in_flight = InFlight()
        # For a promoted copy: the ids of its messages.
        self.ids: MessageIds | None = None
        self.delivered_count = 0
        # Messages that were pending but are no longer in the log: a damaged file, a cut tail.
        self.lost_count = 0
        # Why waiting messages cannot be read now; nothing is delivered until they can.
        self.stalled = ""
        # Set while end-to-end latency is measured.
        self.latency: Latency | None = None

    def give(self, consumer: Credit, limit: int, now_ns: int) -> tuple[list[Piece], int]:
        """:meth:`take`, or :meth:`take_sampled` with a sample rate; and how many were drawn for that."""
        if consumer.keep is None:
            return self.take(consumer, limit, now_ns), 0
        waiting = self.depth
        pieces = self.take_sampled(consumer, limit, now_ns)
        return pieces, waiting - self.depth

    def take(self, consumer: Credit, limit: int, now_ns: int) -> list[Piece]:
        """Put up to *limit* waiting messages in flight to *consumer*; returns their frames in pieces.

        It ends early after some `READS_AT_ONCE` reads of the disk.
        """
        pieces: list[Piece] = []
        room = TAKE_BYTES
        deadline_ns = now_ns + consumer.msg_timeout_ns
        extended = consumer.extended
        run_start = run_end = 0
        published = None if self.latency is None else array("q")
        if len(self.queue) > 1:
            self._gather()
        log = self.log
        resident_from = log.resident_from
        end_reads = log.reads + READS_AT_ONCE
        while limit > 0 and room > 0 and self.queue:
            span = self.queue[0]
            if isinstance(span, PendingList):
                count, piece = self._take_scattered(span, consumer, limit, room, now_ns)
                if count:
                    pieces.append(piece)
                    limit -= count
                    room -= len(piece)
                else:
                    self._single_out(span)
                if log.reads >= end_reads:
                    break
                continue
            start = span.start
            try:
                block = log.read(start, min(span.end, start + limit))
            except CannotRead as failure:
                self.stalled = str(failure) or "cannot read"
                break
            if not isinstance(block, Block):
                self._skip(span, span.end if block is None else min(block.end, span.end), block)
                continue
            end = block.fitting(start, min(span.end, block.next, start + limit), room)
            piece = frames_for(block, start, end, extended=extended)
            if span.redelivered:
                attempts = self._delivered_again(range(start, end))
                piece = with_attempts_all(piece, attempts) or with_attempts_each(
                    [frames_for(block, seq, seq + 1, extended=extended) for seq in range(start, end)],
                    attempts,
                )
            pieces.append(piece)
            room -= len(piece)
            limit -= end - start
            if start == run_end:
                run_end = end
            else:
                if run_end:
                    self.in_flight.add(run_start, run_end, consumer, now_ns, deadline_ns, published)
                    published = None if published is None else array("q")
                run_start, run_end = start, end
            if published is not None:
                published.extend([block.timestamp_ns(seq) for seq in range(start, end)])
            self._delivered(consumer, end - start)
            span.start = end
            if end == span.end:
                self.queue.popleft()
            if start < resident_from and log.reads >= end_reads:
                break
        if run_end:
            self.in_flight.add(run_start, run_end, consumer, now_ns, deadline_ns, published)
        return pieces

    def _take_scattered(
        self, span: PendingList, consumer: Credit, limit: int, room: int, now_ns: int
    ) -> tuple[int, Piece]:
        """Put the first messages of *span* in flight; returns how many (0 if one is missing), and frames."""
        seqs = span.seqs[span.at : span.at + limit]
        frames = self.log.frames(seqs, room, extended=consumer.extended)
        if not frames:
            return 0, b""
        del seqs[len(frames) :]
        published = None if self.latency is None else array("q", [published_ns(frame) for frame in frames])
        deadline_ns = now_ns + consumer.msg_timeout_ns
        self.in_flight.add_scattered(seqs, consumer, now_ns, deadline_ns, published)
        self._delivered(consumer, len(seqs))
        span.at += len(seqs)
        if not len(span):
            self.queue.popleft()
        if span.redelivered:
            return len(seqs), with_attempts_each(frames, self._delivered_again(seqs))
        return len(seqs), b"".join(frames)

    def _delivered_again(self, seqs: Sequence[int]) -> list[int]:
        """Count one more delivery of these messages; returns for each how many there were."""
        tried = self.attempts
        counts = [tried.get(seq, 1) + 1 for seq in seqs]
        tried.update(zip(seqs, counts, strict=True))
        return counts

    def _delivered(self, consumer: Credit, count: int) -> None:
        self.depth -= count
        consumer.in_flight += count
        consumer.message_count += count
        self.delivered_count += count

    def _gather(self) -> None:
        """Let the short spans at the front, if they lie on disk, wait together in the order of the file.

        Messages that were requeued or timed out one by one lie anywhere; in order, each place is read only
        once.
        """
        queue = self.queue
        resident_from = self.log.resident_from
        # By whether they were delivered before; the kind that waits first stays first.
        found: dict[bool, list[int]] = {}
        count = 0
        while queue and count < _TOGETHER:
            span = queue[0]
            if isinstance(span, PendingList) or len(span) > SHORT or span.start >= resident_from:
                break
            found.setdefault(span.redelivered, []).extend(range(span.start, span.end))
            count += len(span)
            queue.popleft()
        for redelivered, seqs in reversed(found.items()):
            queue.appendleft(together(sorted(seqs), redelivered=redelivered))

    def _single_out(self, span: PendingList) -> None:
        """Split the first message off *span*, which is the first, so that it waits before it."""
        seq = span.seqs[span.at]
        span.at += 1
        if not len(span):
            self.queue.popleft()
        self.queue.appendleft(PendingRange(seq, seq + 1, span.redelivered))

    def take_sampled(self, consumer: Credit, limit: int, now_ns: int) -> list[Piece]:
        """Like :meth:`take` with a sample rate: messages that are not drawn are finished for this channel.

        It ends after `DRAWN_AT_ONCE` messages, because a low rate and a high RDY would pass a whole backlog.
        """
        keep = consumer.keep
        pieces: list[Piece] = []
        room = TAKE_BYTES
        left = DRAWN_AT_ONCE
        end_reads = self.log.reads + READS_AT_ONCE
        while limit > 0 and room > 0 and left > 0 and self.depth and self.log.reads < end_reads:
            span = self.queue[0]
            if isinstance(span, PendingList):
                self._single_out(span)
                continue
            start = seq = span.start
            end = min(span.end, start + left)
            while seq < end and not (keep is None or seq == self._drawn or keep()):
                seq += 1
            left -= seq - start
            if seq > start:
                self._finish_first(span, seq)
            if seq == end:
                continue
            left -= 1
            taken = self.take(consumer, 1, now_ns)
            pieces.extend(taken)
            if self.stalled:
                # It is not drawn again: it is delivered when it can be read.
                first = self.queue[0]
                self._drawn = first.start if isinstance(first, PendingRange) else None
                break
            room -= sum(map(len, taken))
            limit -= 1
        return pieces

    def _skip(self, span: PendingRange, end: int, gap: Gap | None) -> None:
        """Finish the first *span* up to *end*: nothing of it can be delivered, now or later."""
        if gap is None or gap.is_loss:
            if self.ids is None:
                # What a copy lacks is on the nsqd whose log it is, or was lost there.
                self.lost_count += end - span.start
            # No consumer has finished these, so other nsqd must not be told that they are finished.
            self.log.stored_ranges.take_out(span.start, end)
        self._finish_first(span, end)

    def _finish_first(self, span: PendingRange, end: int) -> None:
        """Finish the first *span* up to *end*, without delivering it."""
        self.changed = True
        self.forget_attempts(span.start, end)
        self.finished.add(span.start, end)
        self.depth -= end - span.start
        span.start = end
        if span.start >= span.end:
            self.queue.popleft()
