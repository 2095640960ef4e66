"""A topic's log: the newest blocks in memory, older ones read back through a source."""

from bisect import bisect_right
from typing import Final, Protocol

from nsqd.engine.block import Block

# The memory limit of a topic counts messages, as NSQ's does; this bounds it when messages are large.
RESIDENT_BYTES: Final = 64 << 20
# This much stays in memory whatever the limit is, or each message of a consumer that keeps up would be
# read back with the whole page it lies in.
RESIDENT_AT_LEAST_BYTES: Final = 256 << 10
# Dropped entries at the head of the tables are removed in bulk.
_COMPACT_AFTER: Final = 1024


class BlockSource(Protocol):
    """Where blocks are found that are no longer in memory: the disk, or nothing."""

    def block_from(self, seq: int) -> Block | None:
        """The stored block that holds *seq*, or the first one after it if that is lost; None past the end."""


class NoSource:
    """The source of a log that lives in memory only."""

    def block_from(self, seq: int) -> Block | None:  # noqa: ARG002 - the answer is the same for all
        return None


class Log:
    """Blocks in order of sequence. A gap between two blocks means that those messages were lost."""

    __slots__ = (
        "_blocks",
        "_bytes",
        "_firsts",
        "_head",
        "_hint",
        "_resident",
        "keep_all",
        "kept_from",
        "limit",
        "next_seq",
        "source",
    )

    def __init__(self, source: BlockSource, next_seq: int, limit: int, *, keep_all: bool = False) -> None:
        """*limit* is how many messages stay in memory; with *keep_all* only :meth:`release` drops any."""
        self.source = source
        self.next_seq = next_seq
        # Nothing that was stored at or after this sequence has been let go of.
        self.kept_from = next_seq
        self.limit = limit
        self.keep_all = keep_all
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._head = 0
        self._hint = 0
        self._resident = 0
        self._bytes = 0

    @property
    def resident_from(self) -> int:
        """The first sequence that is in memory."""
        return self._firsts[self._head] if self._head < len(self._firsts) else self.next_seq

    @property
    def resident_count(self) -> int:
        return self._resident

    def append(self, block: Block) -> None:
        self._blocks.append(block)
        self._firsts.append(block.first)
        self.next_seq = block.next
        self._resident += block.next - block.first
        self._bytes += len(block.data)
        if not self.keep_all:
            while self._bytes > RESIDENT_BYTES or (
                self._resident > self.limit and self._bytes > RESIDENT_AT_LEAST_BYTES
            ):
                self._drop_oldest()

    def release(self, seq: int) -> None:
        """Forget the blocks in memory that hold nothing at or after *seq*."""
        while self._head < len(self._blocks) and self._blocks[self._head].next <= seq:
            self._drop_oldest()

    def block_from(self, seq: int) -> Block | None:
        """The block that holds *seq*, or the first one after it when *seq* is lost; None past the end."""
        blocks = self._blocks
        # A reader that moves on takes the block it had, or the one behind it.
        for i in (self._hint, self._hint + 1):
            if self._head <= i < len(blocks) and blocks[i].first <= seq < blocks[i].next:
                self._hint = i
                return blocks[i]
        if self._head < len(blocks) and seq >= self._firsts[self._head]:
            i = bisect_right(self._firsts, seq, lo=self._head) - 1
            if seq >= blocks[i].next:
                i += 1
            if i >= len(blocks):
                return None
            self._hint = i
            return blocks[i]
        block = self.source.block_from(seq)
        if block is None and self._head < len(blocks):
            return blocks[self._head]
        return block

    def _drop_oldest(self) -> None:
        block = self._blocks[self._head]
        self._resident -= block.next - block.first
        self._bytes -= len(block.data)
        if self.keep_all:
            self.kept_from = block.next
        self._blocks[self._head] = _GONE
        self._head += 1
        if self._head >= _COMPACT_AFTER:
            del self._blocks[: self._head]
            del self._firsts[: self._head]
            self._hint = max(0, self._hint - self._head)
            self._head = 0


_GONE: Final = Block(0, 0, b"")
