"""Making a segment smaller that is kept alive by few messages: a deferred one, a stuck one.

What is still owed is copied into a segment of the next generation beside the old one. Its index gets its
name last, when everything is on disk: without an index the copy does not exist, with it the older
generation does not count.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from nsqd.engine.block import Block, parse_block
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.storage.disk import Disk
from nsqd.storage.segment import Segment, SegmentWriter

# Worth it when at least this share of a segment's messages is owed by nobody ...
_SPARSE: Final = 7 / 8
# ... and the segment is large enough for anybody to notice.
WORTH_BYTES: Final = 1 << 20

Ranges = list[tuple[int, int]]


def owed_by(topic: Topic) -> Callable[[], Ranges]:
    """What the topic and its channels owe at this moment; worked out when it is called, in any thread."""
    ranges: Ranges = []
    deferred: list[list[tuple[int, int]]] = []
    for owed in (topic.backlog, *topic.channels.values()):
        ranges += [(span.start, span.end) for span in owed.pending]
        # A copy is quick; going through a million of them is not, and is left to the thread.
        deferred.append(list(owed.deferred))
        if isinstance(owed, Channel):
            ranges += owed.in_flight.ranges()

    def work_out() -> Ranges:
        return merged(ranges + [(seq, seq + 1) for entries in deferred for _, seq in entries])

    return work_out


def merged(ranges: Ranges) -> Ranges:
    """The same sequences as sorted ranges that neither touch nor overlap."""
    result: Ranges = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            if end > result[-1][1]:
                result[-1] = (result[-1][0], end)
        elif start < end:
            result.append((start, end))
    return result


def compact(
    disk: Disk, sealed: list[Segment], owed: Ranges, warn: Callable[[str], None], worth_bytes: int
) -> tuple[Segment, Segment] | None:
    """Compact the oldest segment of which little is owed; returns it and its replacement, or None.

    *owed* is sorted and merged; smaller segments than *worth_bytes* are left alone. The replacement may be
    empty; then it has no files. Raises OSError.
    """
    for segment in sealed:
        if segment.size < worth_bytes:
            continue
        needed = sum(end - start for start, end in _within(owed, segment.first, segment.next))
        if needed <= segment.messages * (1 - _SPARSE):
            return segment, _rewrite(disk, segment, owed, warn)
    return None


def _rewrite(disk: Disk, old: Segment, owed: Ranges, warn: Callable[[str], None]) -> Segment:
    new = Segment(old.folder, old.first, old.generation + 1)
    unfinished = new.index_path.with_name(new.index_path.name + ".new")
    disk.remove(unfinished)
    disk.remove(new.data_path)
    writer = SegmentWriter(disk, new, unfinished)
    try:
        for page in range(old.pages):
            blocks = list(_kept(old, page, owed, warn))
            if blocks:
                writer.append(blocks)
        for fd in writer.descriptors():
            disk.sync(fd)
            disk.close(fd)
    except OSError:
        disk.remove(unfinished)
        disk.remove(new.data_path)
        raise
    finally:
        writer.close()
    if new.messages:
        disk.rename(unfinished, new.index_path)
        disk.sync_folder(new.folder)
    else:
        disk.remove(unfinished)
        disk.remove(new.data_path)
    return new


def _kept(segment: Segment, page: int, owed: Ranges, warn: Callable[[str], None]) -> Iterator[Block]:
    """The messages of a page that are owed, in blocks; a deferred one keeps its due time."""
    for entry, data in segment.appends(page):
        wanted = _within(owed, entry.first, entry.next)
        if not wanted:
            continue
        if not entry.matches(data):
            warn(f"{segment.data_path}: checksum mismatch at {entry.start}, left out of the compaction")
            continue
        block = parse_block(entry.first, data)
        for start, end in wanted:
            yield parse_block(start, block.frames(start, end), due_ns=entry.due_ns)


def _within(ranges: Ranges, first: int, end: int) -> Ranges:
    """The parts of sorted *ranges* that lie in ``first <= seq < end``."""
    at = max(0, bisect_right(ranges, (first, first)) - 1)
    found: Ranges = []
    while at < len(ranges) and ranges[at][0] < end:
        low, high = max(ranges[at][0], first), min(ranges[at][1], end)
        if low < high:
            found.append((low, high))
        at += 1
    return found
