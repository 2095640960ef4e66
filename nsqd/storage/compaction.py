"""Making a segment smaller that is kept alive by few messages: a deferred one, a stuck one.

What is still owed is copied into a segment of the next generation beside the old one. It gets its name when
everything in it is on the disk; from then on the older generation does not count.

A channel that is made meanwhile and given what is stored may be given what nobody was owed before. So a
compaction can be given up, until the moment before the copy gets its name.
"""

from array import array
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final

from nsqd.engine.block import Block, parse_block
from nsqd.engine.channel import Channel
from nsqd.engine.owed import Ranges, merged, within
from nsqd.engine.topic import Topic
from nsqd.storage import segment_index
from nsqd.storage.disk import Disk
from nsqd.storage.segment import Segment, SegmentWriter, new_salt

# Worth it when at least this share of a segment's messages is owed by nobody ...
_SPARSE: Final = 7 / 8
# ... and the segment is large enough for anybody to notice.
WORTH_BYTES: Final = 1 << 20


def owed_by(topic: Topic) -> Callable[[], Ranges]:
    """What the topic and its channels owe at this moment; worked out when it is called, in any thread."""
    ranges: Ranges = []
    deferred: list[array[int]] = []
    for owed in (topic.backlog, *topic.channels.values()):
        ranges += [(span.start, span.end) for span in owed.pending]
        # A copy is quick; going through a million of them is not, and is left to the thread.
        deferred.append(owed.deferred.snapshot())
        if isinstance(owed, Channel):
            ranges += owed.in_flight.ranges()

    def work_out() -> Ranges:
        return merged(ranges + [run for runs in deferred for run in zip(runs[1::3], runs[2::3], strict=True)])

    return work_out


class Compaction:
    """One attempt: :meth:`run` in any thread, then ``TopicStore.end_compaction``."""

    def __init__(
        self,
        disk: Disk,
        closed: list[Segment],
        owed: Callable[[], Ranges],
        warn: Callable[[str], None],
        worth_bytes: int,
    ) -> None:
        """Of the *closed* segments, smaller ones than *worth_bytes* are left alone."""
        self.old: Segment | None = None
        self.new: Segment | None = None
        # What the copy has of the old segment.
        self.kept: Ranges = []
        # Held for a moment, never while the disk is used.
        self._lock = Lock()
        self._given_up = False
        self._decided = False
        self._disk = disk
        self._closed = closed
        self._owed = owed
        self._warn = warn
        self._worth_bytes = worth_bytes

    def run(self) -> None:
        """Compact the oldest segment of which little is owed, if there is one. Raises OSError."""
        owed = self._owed()
        for segment in self._closed:
            if segment.size < self._worth_bytes:
                continue
            needed = sum(end - start for start, end in within(owed, segment.first, segment.next))
            if needed > segment.messages * (1 - _SPARSE):
                continue
            kept = self._kept(segment, owed)
            if kept is not None:
                self.old = segment
                self.kept = merged([(block.first, block.next) for block in kept])
                self.new = self._rewrite(segment, kept)
                return

    def give_up(self) -> bool:
        """Let it come to nothing; False when it is too late: of the old segment only *kept* counts now."""
        with self._lock:
            self._given_up = not self._decided
            return self._given_up

    def _decide(self) -> bool:
        """Whether nobody gave it up, which from now on nobody can."""
        with self._lock:
            self._decided = not self._given_up
            return self._decided

    def _kept(self, segment: Segment, owed: Ranges) -> list[Block] | None:
        """The messages that are owed, deferred ones with their due time; None if one of them is damaged.

        A loss is found and counted by the channel that is owed it, not hidden by a compaction.
        """
        blocks: list[Block] = []
        for page in range(segment.pages):
            for append, data in segment.appends(self._disk, page):
                if append.is_note:
                    # Both checkpoints know of it: see `TopicStore.begin_compaction`.
                    continue
                wanted = within(owed, append.first, append.next)
                if wanted:
                    block = parse_block(append.first, data)
                    blocks += [
                        parse_block(start, block.frames(start, end), due_ns=append.due_ns)
                        for start, end in wanted
                    ]
        wanted = within(owed, segment.first, segment.next)
        if sum(end - start for start, end in wanted) != sum(map(len, blocks)):
            self._warn(f"{segment.path} is not compacted: messages that are owed cannot be read")
            return None
        return blocks

    def _rewrite(self, old: Segment, blocks: list[Block]) -> Segment | None:
        disk = self._disk
        header = replace(old.header, salt=new_salt(), ends=old.next)
        new = Segment(old.folder, old.number, header, old.generation + 1)
        unfinished = new.path.with_name(new.path.name + ".new")
        disk.remove(unfinished)
        writer = SegmentWriter(disk, new, unfinished)
        try:
            try:
                writer.append(blocks, [])
                disk.sync(writer.fd)
            finally:
                disk.close(writer.fd)
        except OSError:
            disk.remove(unfinished)
            raise
        if not self._decide():
            disk.remove(unfinished)
            return None
        try:
            disk.rename(unfinished, new.path)
            disk.sync_folder(new.folder)
            new.next = new.synced = old.next
            segment_index.write(disk, new)
        except OSError:
            # The old segment goes on; the copy must not count instead at the next start.
            disk.remove(new.path)
            raise
        return new
