"""Delivering: taking pending messages from the log, and putting them in flight."""

from array import array
from collections.abc import Sequence
from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.channel import Channel
from nsqd.engine.credit import Credit
from nsqd.engine.in_flight import Run
from nsqd.engine.pending import PendingList, PendingRange
from nsqd.log.frames import Block, Buffer, published_ns, with_attempts_all, with_attempts_each
from nsqd.log.gaps import CannotRead
from nsqd.log.headers import frames_for

# The most bytes of one delivery to a consumer, so that large messages with a high RDY do not fill memory.
MAX_DELIVERY_BYTES: Final = 128 << 10
# How many messages one step draws, whether they are sent or not: a millisecond's work.
MAX_SAMPLED_PER_TURN: Final = 4096


def deliver(
    channel: Channel, consumer: Credit, limit: int, now_ns: int, end_reads: int
) -> tuple[list[Buffer], int]:
    """Put up to *limit* pending messages in flight to *consumer*; returns their frames, and how many it drew.

    It ends early when the log's count of reads of the disk has reached *end_reads*. With a sample rate,
    messages that are not drawn are finished.
    """
    if consumer.keep is None:
        return _take(channel, consumer, limit, now_ns, end_reads), 0
    pending = channel.backlog.pending
    before = pending.count
    pieces = _take_sampled(channel, consumer, limit, now_ns, end_reads)
    return pieces, before - pending.count


def _take(channel: Channel, consumer: Credit, limit: int, now_ns: int, end_reads: int) -> list[Buffer]:
    backlog, log = channel.backlog, channel.log
    pending = backlog.pending
    entries = pending.entries
    pieces: list[Buffer] = []
    room = MAX_DELIVERY_BYTES
    deadline_ns = now_ns + consumer.msg_timeout_ns
    extended = consumer.extended
    run_start = run_end = 0
    published = None if channel.latency is None else array("q")
    resident_from = log.resident_from
    if len(entries) > 1:
        pending.gather(resident_from)
    while limit > 0 and room > 0 and entries:
        entry = entries[0]
        if isinstance(entry, PendingList):
            count, piece = _take_scattered(channel, entry, consumer, limit, room, now_ns)
            if count:
                pieces.append(piece)
                limit -= count
                room -= len(piece)
            else:
                pending.split_first(entry)
            if log.reads >= end_reads:
                break
            continue
        start = entry.start
        try:
            block = log.read(start, min(entry.end, start + limit))
        except CannotRead as failure:
            channel.stalled = str(failure) or "cannot read"
            break
        if not isinstance(block, Block):
            end = entry.end if block is None else min(block.end, entry.end)
            channel.skip(start, end, lost=block is None or block.is_loss)
            _advance(backlog, entry, end)
            continue
        end = block.fitting(start, min(entry.end, block.next, start + limit), room)
        piece = frames_for(block, start, end, extended=extended)
        if entry.redelivered:
            attempts = _count_attempts(backlog, range(start, end))
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
                backlog.in_flight.add(Run(run_start, run_end, consumer, now_ns, deadline_ns, published))
                published = None if published is None else array("q")
            run_start, run_end = start, end
        if published is not None:
            published.extend([block.timestamp_ns(seq) for seq in range(start, end)])
        consumer.message_count += end - start
        channel.delivered_count += end - start
        # So the next checkpoint counts this delivery, even if nothing else happens before a kill.
        channel.changed = True
        # `_advance`, inlined: that saves a call where this is not compiled.
        pending.count -= end - start
        entry.start = end
        if end >= entry.end:
            entries.popleft()
        if start < resident_from and log.reads >= end_reads:
            break
    if run_end:
        backlog.in_flight.add(Run(run_start, run_end, consumer, now_ns, deadline_ns, published))
    return pieces


def _take_scattered(
    channel: Channel, entry: PendingList, consumer: Credit, limit: int, room: int, now_ns: int
) -> tuple[int, Buffer]:
    """Put the first messages of *entry* in flight; returns how many (0 if one is missing), and frames."""
    backlog = channel.backlog
    seqs = entry.seqs[entry.at : entry.at + limit]
    frames = channel.log.frames(seqs, room, extended=consumer.extended)
    if not frames:
        return 0, b""
    del seqs[len(frames) :]
    count = len(seqs)
    published = None if channel.latency is None else array("q", [published_ns(frame) for frame in frames])
    deadline_ns = now_ns + consumer.msg_timeout_ns
    backlog.in_flight.add(Run(seqs[0], seqs[-1] + 1, consumer, now_ns, deadline_ns, published, seqs))
    consumer.message_count += count
    channel.delivered_count += count
    channel.changed = True
    backlog.pending.count -= count
    entry.at += count
    if not len(entry):
        backlog.pending.entries.popleft()
    if entry.redelivered:
        return count, with_attempts_each(frames, _count_attempts(backlog, seqs))
    return count, b"".join(frames)


def _count_attempts(backlog: Backlog, seqs: Sequence[int]) -> list[int]:
    """Count one more delivery of these messages; returns for each how many there were."""
    tried = backlog.attempts
    counts = [tried.get(seq, 1) + 1 for seq in seqs]
    tried.update(zip(seqs, counts, strict=True))
    return counts


def _advance(backlog: Backlog, entry: PendingRange, end: int) -> None:
    """Messages of the first *entry* below *end* are no longer pending."""
    backlog.pending.count -= end - entry.start
    entry.start = end
    if end >= entry.end:
        backlog.pending.entries.popleft()


def _take_sampled(
    channel: Channel, consumer: Credit, limit: int, now_ns: int, end_reads: int
) -> list[Buffer]:
    """Like :func:`_take` with a sample rate: messages that are not drawn are finished for this channel.

    It ends after `MAX_SAMPLED_PER_TURN` messages: a low rate and a high RDY would pass a whole backlog.
    """
    keep = consumer.keep
    backlog, log = channel.backlog, channel.log
    pending = backlog.pending
    pieces: list[Buffer] = []
    room = MAX_DELIVERY_BYTES
    left = MAX_SAMPLED_PER_TURN
    while limit > 0 and room > 0 and left > 0 and pending.count and log.reads < end_reads:
        entry = pending.entries[0]
        if isinstance(entry, PendingList):
            pending.split_first(entry)
            continue
        start = seq = entry.start
        end = min(entry.end, start + left)
        while seq < end and not (keep is None or seq == channel.sampled or keep()):
            seq += 1
        left -= seq - start
        if seq > start:
            channel.skip(start, seq, lost=False)
            _advance(backlog, entry, seq)
        if seq == end:
            continue
        left -= 1
        taken = _take(channel, consumer, 1, now_ns, end_reads)
        pieces.extend(taken)
        if channel.stalled:
            # It is not drawn again: it is delivered when it can be read.
            first = pending.entries[0]
            channel.sampled = first.start if isinstance(first, PendingRange) else None
            break
        room -= sum(map(len, taken))
        limit -= 1
    return pieces
