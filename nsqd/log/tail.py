"""A topic's log: the newest blocks in memory, older ones read back through a source."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, Protocol

from nsqd.log.frames import Block, Buffer, parse_block
from nsqd.log.gaps import EVERYTHING, Gap, Why
from nsqd.log.headers import frames_for
from nsqd.log.ranges import Ranges, join, merged, within, without

# How many closed ranges are remembered. Each unclean stop of the node leaves one.
# Nothing is reported about older messages: another nsqd that still has them delivers them once more.
MAX_REMEMBERED_RANGES: Final = 256


class StoredRanges:
    """Which messages a log has or once had, as ranges ``first <= seq < end``; only these may be finished.

    Some messages were lost in a power cut, and after a start the numbers continue far above the last one.
    Another nsqd may have such a message, and would drop it if it were reported as finished.

    Numbers of messages that could not be stored are included: their publishers got an error, no copy is made
    of a write that failed, and the numbers are not used again.
    """

    __slots__ = ("closed", "first")

    def __init__(self, first: int) -> None:
        # Sorted, and all below `first`, where the open range begins.
        self.closed: Ranges = []
        self.first = first

    def __repr__(self) -> str:
        return f"<StoredRanges {self.closed} and from {self.first} on>"

    def ranges(self, end: int) -> Ranges:
        """All ranges, sorted and merged; *end* is where the log ends."""
        return merged([*self.closed, (self.first, end)])

    def part_of(self, gap: Gap, seq: int) -> Gap:
        """The part of a compacted *gap* from *seq* on: numbers that no message of the log had are unused.

        Of numbers that are no longer remembered it is not known.
        """
        known_from = self.closed[0][0] if len(self.closed) >= MAX_REMEMBERED_RANGES else 0
        numbers = [(max(seq, known_from), gap.end)]
        for start, end in without(numbers, self.ranges(max(gap.end, self.first))):
            return Gap(seq, start, gap.why) if seq < start else Gap(seq, end, Why.UNUSED)
        return Gap(seq, gap.end, gap.why)

    def resume_at(self, end: int, first: int) -> None:
        """The log ended at *end* and continues at *first*: all messages between them are lost."""
        if first > end:
            self.closed = self.ranges(end)[-MAX_REMEMBERED_RANGES:]
            self.first = first

    def reset(self, ranges: Ranges, first: int) -> None:
        """Take over *ranges* as far as they lie below *first*; from *first* on everything will be stored."""
        self.closed = within(merged(ranges), 0, first)[-MAX_REMEMBERED_RANGES:]
        self.first = first

    def remove(self, start: int, end: int) -> None:
        """Remove ``start <= seq < end``, because these messages cannot be read any more."""
        self.closed = [
            part
            for first, stop in self.closed
            for part in ((first, min(stop, start)), (max(first, end), stop))
            if part[0] < part[1]
        ]
        if end > self.first:
            if start > self.first:
                self.closed.append((self.first, start))
            self.first = end


# The memory limit of a topic counts messages, as NSQ's does; this limits bytes when messages are large.
RESIDENT_BYTES: Final = 64 << 20
# These bytes stay in memory with any limit. Otherwise each message for a consumer without lag would be read
# back with its whole page.
MIN_RESIDENT_BYTES: Final = 256 << 10
# Dropped entries at the head of the tables are removed in bulk.
_COMPACT_AFTER: Final = 1024
# How many blocks one step evicts. Publishers and consumers wait some tenths of a millisecond.
_MAX_EVICTED_PER_TURN: Final = 512


# After so many reads of the disk a delivery ends, because the event loop waits for each of them.
MAX_READS_PER_TURN: Final = 32


class BlockSource(Protocol):
    """Where blocks are read from that are no longer in memory: the segments on disk."""

    @property
    def reads(self) -> int:
        """How many reads of the disk there were so far, of all topics."""

    def read(self, seq: int, end: int) -> Block | Gap | None:
        """The stored block that holds *seq*, the gap in which it lies, or None past the end.

        Nothing is wanted from *end* on. Raises CannotRead when it is not known now which of the three it is.
        """

    def frames(self, seqs: list[int], room: int, *, extended: bool) -> list[Buffer]:
        """The frames of *seqs*, which are sorted, in order until *room* bytes are full.

        They are the frames for an *extended* or a plain subscriber.
        They end after some `MAX_READS_PER_TURN` reads of the disk, and before a message that this method
        cannot read: `read` returns it or the reason.
        """

    def seek(self, time_ns: int) -> int:
        """A sequence somewhat before the first message published at *time_ns* or later."""

    def page_start(self, seq: int) -> int:
        """The first sequence that is read together with *seq*; at or before it."""

    def weigh(self, start: int, end: int, count: Callable[[int, int], int]) -> int:
        """About how many bytes some messages of ``start <= seq < end`` take, as they are stored.

        *count* says how many of a part of them are meant.
        """


class Storage(Protocol):
    """The log of a topic on disk."""

    @property
    def segments(self) -> BlockSource:
        """Where the blocks of the topic are read from."""


class MessageLog:
    """Blocks in order of sequence, the newest of them in memory."""

    __slots__ = (
        "_blocks",
        "_bytes",
        "_firsts",
        "_head",
        "_hint",
        "_resident",
        "limit",
        "log_start",
        "next_seq",
        "source",
        "stored_ranges",
    )

    def __init__(self, source: BlockSource | None, next_seq: int, limit: int) -> None:
        """*limit* is how many messages stay in memory.

        Without *source* the log is only in memory, and only :meth:`retain` drops messages.
        """
        self.source = source
        self.next_seq = next_seq
        # Which messages it has or once had, up to its end.
        self.stored_ranges = StoredRanges(next_seq)
        # Nothing that was stored at or after this sequence has been removed.
        self.log_start = next_seq
        self.limit = limit
        self._blocks: list[Block] = []
        # An array, because removing thousands of its entries frees no objects.
        self._firsts = array("Q")
        self._head = 0
        self._hint = 0
        self._resident = 0
        self._bytes = 0

    @property
    def resident_from(self) -> int:
        """The first sequence that is in memory."""
        return self._firsts[self._head] if self._head < len(self._firsts) else self.next_seq

    @property
    def reads(self) -> int:
        """How many reads of the disk there were so far, of all topics."""
        return 0 if self.source is None else self.source.reads

    @property
    def resident_bytes(self) -> int:
        return self._bytes

    def append(self, block: Block) -> None:
        self._blocks.append(block)
        self._firsts.append(block.first)
        self.next_seq = block.next
        self._resident += block.next - block.first
        self._bytes += len(block.data)
        if self.source is not None:
            while self._bytes > RESIDENT_BYTES or (
                self._resident > self.limit and self._bytes > MIN_RESIDENT_BYTES
            ):
                self._drop_oldest()

    def extents(self) -> Ranges:
        """The ranges of messages in memory, in order."""
        found: Ranges = []
        for block in self._blocks[self._head :]:
            join(found, block.first, block.next)
        return found

    def release(self, seq: int) -> bool:
        """Forget some of the blocks in memory that end at or before *seq*; False when none are left.

        Only for a log that the source has as well.
        """
        blocks, head = self._blocks, self._head
        most = min(head + _MAX_EVICTED_PER_TURN, len(blocks))
        end = bisect_right(self._firsts, seq, head, most)
        if end > head and blocks[end - 1].next > seq:
            end -= 1
        messages = size = 0
        for block in blocks[head:end]:
            messages += block.next - block.first
            size += len(block.data)
        self._resident -= messages
        self._bytes -= size
        blocks[head:end] = [_EVICTED] * (end - head)
        self._head = end
        self._compact()
        return end == most > head

    def retain(self, ranges: list[tuple[int, int]]) -> None:
        """Evict all messages outside the sorted *ranges*; for a log that is only in memory.

        A block with few wanted messages is cut down to these. So one message that is pending for long does
        not keep a whole block in memory.
        """
        kept: list[Block] = []
        for block in self._blocks[self._head :]:
            wanted = within(ranges, block.first, block.next)
            if wanted == [(block.first, block.next)]:
                kept.append(block)
            elif wanted:
                kept += [
                    parse_block(start, block.frames(start, end), has_headers=block.has_headers)
                    for start, end in wanted
                ]
        self._blocks = kept
        self._firsts = array("Q", [block.first for block in kept])
        self._head = self._hint = 0
        self._resident = sum(map(len, kept))
        self._bytes = sum(len(block.data) for block in kept)
        self.log_start = max(self.log_start, self.resident_from)

    def read(self, seq: int, end: int = EVERYTHING) -> Block | Gap | None:
        """The block that holds *seq*, the gap in which it lies, or None past the end. Raises CannotRead.

        The reader wants nothing from *end* on, so for one message no more is read than that needs.
        """
        blocks = self._blocks
        # A sequential reader needs its last block, or the next one.
        i = self._hint
        if i < len(blocks) and blocks[i].next <= seq:
            i += 1
        if self._head <= i < len(blocks):
            block = blocks[i]
            if block.first <= seq < block.next:
                self._hint = i
                return block
        if seq >= self.next_seq:
            return None
        if self._head < len(blocks) and seq >= self._firsts[self._head]:
            i = bisect_right(self._firsts, seq, lo=self._head) - 1
            if seq < blocks[i].next:
                self._hint = i
                return blocks[i]
            end = self._firsts[i + 1] if i + 1 < len(blocks) else self.next_seq
            # A log that is only in memory has dropped messages that no channel must deliver.
            return Gap(seq, end, Why.COMPACTED if self.source is None else Why.UNUSED)
        if self.source is None:
            return Gap(seq, self.resident_from, Why.COMPACTED)
        found = self.source.read(seq, end)
        if found is None:
            return Gap(seq, self.resident_from, Why.UNUSED)
        if isinstance(found, Gap) and found.why is Why.COMPACTED:
            return self.stored_ranges.part_of(found, seq)
        return found

    def frames(self, seqs: list[int], room: int, *, extended: bool) -> list[Buffer]:
        """The frames of *seqs*, which are sorted, in order until *room* bytes are full.

        They are the frames for an *extended* or a plain subscriber.
        They end after some `MAX_READS_PER_TURN` reads of the disk, and before a message that this method
        cannot read: :meth:`read` returns it or the reason.
        """
        resident_from = self.resident_from
        if seqs[0] < resident_from and self.source is not None:
            return self.source.frames(seqs[: bisect_left(seqs, resident_from)], room, extended=extended)
        found: list[Buffer] = []
        for seq in seqs:
            block = self.read(seq, seq + 1)
            if room <= 0 or not isinstance(block, Block):
                break
            piece = frames_for(block, seq, seq + 1, extended=extended)
            found.append(piece)
            room -= len(piece)
        return found

    def seek(self, time_ns: int) -> int:
        """A sequence somewhat before the first message published at *time_ns* or later."""
        return self.resident_from if self.source is None else self.source.seek(time_ns)

    def page_start(self, seq: int) -> int:
        """The first sequence that is read together with *seq*; at or before it."""
        blocks, firsts = self._blocks, self._firsts
        if self._head < len(blocks) and seq >= firsts[self._head]:
            i = bisect_right(firsts, seq, lo=self._head) - 1
            return blocks[i].first if seq < blocks[i].next else blocks[i].next
        return 0 if self.source is None else self.source.page_start(seq)

    def weigh(self, start: int, end: int, count: Callable[[int, int], int]) -> int:
        """About how many bytes some messages of ``start <= seq < end`` take.

        *count* says how many of a part of them are meant.
        """
        if self.source is not None:
            return self.source.weigh(start, end, count)
        weight = 0
        at = max(self._head, bisect_right(self._firsts, start, lo=self._head) - 1)
        for block in self._blocks[at:]:
            if block.first >= end:
                break
            low, high = max(start, block.first), min(end, block.next)
            if low < high:
                weight += (block.offset(high) - block.offset(low)) * count(low, high) // (high - low)
        return weight

    def _drop_oldest(self) -> None:
        block = self._blocks[self._head]
        self._resident -= block.next - block.first
        self._bytes -= len(block.data)
        self._blocks[self._head] = _EVICTED
        self._head += 1
        if self._head >= _COMPACT_AFTER:
            self._compact()

    def _compact(self) -> None:
        # Only when at least half of a table goes; otherwise a long table would be moved again and again.
        if self._head >= max(_COMPACT_AFTER, len(self._blocks) // 2):
            del self._blocks[: self._head]
            del self._firsts[: self._head]
            self._hint = max(0, self._hint - self._head)
            self._head = 0


_EVICTED: Final = Block(0, 0, b"")
