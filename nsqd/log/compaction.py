"""Compaction of sparse segments, so that one deferred message does not retain a whole file.

The pending messages of neighbouring segments are copied into one segment. It has the number of the first of
them and the next generation. It gets its name when all its data is on the disk. From then on it replaces the
others. `retention` selects the segments.

A channel that is created during a compaction may need messages that no channel needed before. So a
compaction can be cancelled until just before the copy gets its name.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Lock
from typing import Final

from nsqd.log import retention, segment_index
from nsqd.log.disk import Disk
from nsqd.log.frames import Block, parse_block
from nsqd.log.gaps import Gap
from nsqd.log.layout import APPEND_HEADER_BYTES, FILE_HEADER_BYTES, Append
from nsqd.log.pages import appends_in, read_page
from nsqd.log.ranges import Ranges, merged, size_of, within
from nsqd.log.retention import SegmentStats, WantedPositions
from nsqd.log.segment import Segment
from nsqd.log.segment_writer import SegmentWriter, new_salt

# Less waste than this in a sparse segment is not worth a copy.
WORTH_BYTES: Final = 1 << 20
# Bytes that are read before other work gets its turn: with short messages, some milliseconds of work.
_MAX_READ_BYTES: Final = 32 << 10


class CompactionCancelled(Exception):
    """The compaction was cancelled while it ran."""


class Spoiled(Exception):
    """Messages of *segment* that are pending cannot be read."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(str(segment.path))
        self.segment = segment


class Compaction:
    """One attempt: :meth:`run` in any thread, then ``Cleaner.end_compaction``."""

    def __init__(
        self,
        disk: Disk,
        closed: dict[int, Segment],
        wanted: WantedPositions,
        warn: Callable[[str], None],
        segment_bytes: int,
        *,
        resting: bool = True,
        spend: Callable[[int], None] = lambda _size: None,
    ) -> None:
        """*closed* are the segments that may be changed, by their index in the log.

        *segment_bytes* is the size of a full segment.
        *spend* is called every few milliseconds with the bytes that were read and written, and may wait.
        """
        self.old: list[Segment] = []
        self.new: Segment | None = None
        # The old segments whose files may be removed. None until the name of the copy is durable, because a
        # power cut could remove that name. If the sync of the name failed, the next start removes them.
        self.replaced: list[Segment] = []
        # The messages of the old segments that are in the copy.
        self.copied: Ranges = []
        # Segments that are not compacted, because some of their pending messages cannot be read.
        self.spoiled: list[Segment] = []
        # Locked only briefly, never during disk operations.
        self._lock = Lock()
        self._cancelled = False
        self._decided = False
        self._disk = disk
        self._closed = closed
        self._wanted = wanted
        self._warn = warn
        self._segment_bytes = segment_bytes
        self._resting = resting
        self._spend = spend

    def run(self) -> None:
        """Compact the most worthwhile run of neighbours, if any. Raises OSError."""
        extents = []
        for place, segment in self._closed.items():
            size = segment.size - FILE_HEADER_BYTES
            wanted = wanted_bytes(segment, self._wanted)
            extents.append(SegmentStats(place, size, wanted, segment.header.origin))
            self._spend(0)
        segment_bytes = self._segment_bytes
        worth_bytes = min(WORTH_BYTES, segment_bytes // 4)
        runs = retention.plan(extents, segment_bytes, worth_bytes, resting=self._resting)
        for run in runs:
            self.old = [self._closed[extent.place] for extent in run]
            try:
                self.new = self._rewrite(self.old)
            except CompactionCancelled:
                return
            except Spoiled as error:
                # Not compacted: the channel that must deliver the lost messages must find the loss and count
                # it.
                self.spoiled.append(error.segment)
                continue
            return

    def cancel(self) -> bool:
        """Cancel the compaction. False when it is too late: then only *kept* of the old segments counts."""
        with self._lock:
            self._cancelled = not self._decided
            return self._cancelled

    def _decide(self) -> bool:
        """Decide to use the copy, so that it cannot be cancelled any more; False when it was cancelled."""
        with self._lock:
            self._decided = not self._cancelled
            return self._decided

    # --- reading ---

    def _blocks(self, segment: Segment) -> Iterator[list[Block]]:
        """The wanted messages, page by page; deferred ones with their due time. Raises Spoiled."""
        for page in range(segment.pages):
            here = self._wanted.ranges(segment.page_firsts[page], segment.page_end(page))
            if not here:
                continue
            blocks: list[Block] = []
            read = 0
            for append, data in self._appends(segment, page):
                # Notes are not copied, because both checkpoints know them: see
                # `Cleaner.begin_compaction`.
                wanted = [] if append.is_note else within(here, append.first, append.next)
                if wanted:
                    blocks += _parts(append, data, wanted)
                read += APPEND_HEADER_BYTES + len(data)
                if read >= _MAX_READ_BYTES:
                    self._spend(read)
                    read = 0
            self._spend(read)
            if sum(map(len, blocks)) < size_of(here) and self._is_damaged(segment, page, here):
                raise Spoiled(segment)
            yield blocks

    def _appends(self, segment: Segment, page: int) -> Iterator[tuple[Append, bytes]]:
        """The appends of a page. Raises Spoiled when the file is not there."""
        try:
            yield from appends_in(self._disk, segment, page)
        except FileNotFoundError:
            raise Spoiled(segment) from None

    def _is_damaged(self, segment: Segment, page: int, pending: Ranges) -> bool:
        """Whether pending messages are lost; those missing in a compacted segment may have been finished."""
        return any(
            isinstance(found, Gap) and found.is_loss and bool(within(pending, found.start, found.end))
            for found in read_page(self._disk, segment, page)
        )

    # --- writing ---

    def _rewrite(self, old: list[Segment]) -> Segment | None:
        disk, first = self._disk, old[0]
        header = replace(first.header, salt=new_salt(first.header.log_id), ends=old[-1].next)
        new = Segment(first.folder, first.number, header, first.generation + 1)
        unfinished = new.path.with_name(new.path.name + ".new")
        disk.remove(unfinished)
        writer = SegmentWriter(disk, new, unfinished)
        try:
            try:
                self._copy(old, writer)
                disk.sync(writer.fd)
            finally:
                disk.close(writer.fd)
        except (OSError, CompactionCancelled, Spoiled):
            disk.remove(unfinished)
            raise
        if not self._decide():
            disk.remove(unfinished)
            return None
        try:
            disk.rename(unfinished, new.path)
        except OSError:
            disk.remove(unfinished)
            with self._lock:
                self._decided, self._cancelled = False, True
            raise
        # From here on the next start would use the copy, so it is used now, even if something below fails.
        new.next = header.ends
        new.end_synced()
        try:
            disk.sync_folder(new.folder)
            self.replaced = old
            segment_index.write(disk, new, self.copied)
        except OSError as error:
            self._warn(f"{new.path} is used, but something of it could not be written: {error}")
        return new

    def _copy(self, old: list[Segment], writer: SegmentWriter) -> None:
        kept: Ranges = []
        for segment in old:
            for blocks in self._blocks(segment):
                if self._cancelled:
                    raise CompactionCancelled
                if blocks:
                    writer.append(blocks, [])
                    kept += [(block.first, block.next) for block in blocks]
                    self._spend(sum(len(block.data) for block in blocks))
        if not kept:
            # Write only the header. It states the sequence below which all messages were finished.
            writer.append([], [])
        self.copied = merged(kept)


def _parts(append: Append, data: bytes, wanted: Ranges) -> list[Block]:
    """The wanted messages of an append."""
    if wanted == [(append.first, append.next)]:
        pieces = [(append.first, data)]
    else:
        block = parse_block(append.first, data)
        pieces = [(start, block.frames(start, end)) for start, end in wanted]
    return [
        parse_block(first, piece, due_ns=append.due_ns, has_headers=append.has_headers)
        for first, piece in pieces
    ]


def wanted_bytes(segment: Segment, wanted: WantedPositions) -> int:
    """The approximate size in bytes of a copy of the wanted messages of *segment*."""
    data = segment.size - FILE_HEADER_BYTES
    if not segment.messages:
        return 0
    if segment.header.ends:
        # A compacted segment lacks some sequences, so its pages cannot be weighed by their sequences.
        return min(data, _copy_bytes(data, segment.messages, *wanted.totals(segment.first, segment.next)))
    found = 0
    for page in range(segment.pages):
        first, end = segment.page_firsts[page], segment.page_end(page)
        if first < end:
            size = segment.page_size(page)
            found += min(size, _copy_bytes(size, end - first, *wanted.totals(first, end)))
    return min(data, found)


def _copy_bytes(size: int, messages: int, wanted: int, ranges: int) -> int:
    """About how many bytes a copy has of *wanted* messages in *ranges*, of *messages* that have *size* bytes.

    In the copy each range is one append. Very short messages shared an append before. Longer ones may have
    had one each, and its header is part of their size.
    """
    header = max(0, APPEND_HEADER_BYTES - max(0, size // messages - APPEND_HEADER_BYTES) // 2)
    return size * wanted // messages + header * ranges
