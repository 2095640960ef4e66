"""Making segments smaller of which little is wanted: a deferred message holds no more than itself.

What is still owed of a run of neighbours is copied into one segment, of the next generation, beside the first
of them. It gets its name when everything in it is on the disk; from then on the others do not count.
`retention` says which segments these are.

A channel that is made meanwhile and given what is stored may be given what nobody was owed before. So a
compaction can be given up, until the moment before the copy gets its name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from nsqd.log import retention, segment_index
from nsqd.log.disk import Disk
from nsqd.log.frames import Block, parse_block
from nsqd.log.gaps import Gap
from nsqd.log.layout import FILE_HEADER_BYTES, Append
from nsqd.log.pages import appends_in, read_page
from nsqd.log.ranges import Ranges, merged, within
from nsqd.log.retention import Extent
from nsqd.log.segment import Segment
from nsqd.log.segment_writer import SegmentWriter, new_salt

# Less than this in a sparse segment is not worth a copy.
WORTH_BYTES: Final = 1 << 20
# Of more ranges than this in a segment the bytes are told from their number.
_MEASURED: Final = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a full segment, and of waste in one that is worth a copy."""

    segment: int
    worth: int


class GivenUp(Exception):
    """Somebody gave the compaction up while it ran."""


class Spoiled(Exception):
    """Something that is owed of a segment cannot be read."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(str(segment.path))
        self.segment = segment


class Compaction:
    """One attempt: :meth:`run` in any thread, then ``ShrinkingLog.end_compaction``."""

    def __init__(
        self,
        disk: Disk,
        closed: dict[int, Segment],
        owed: Callable[[], Ranges],
        warn: Callable[[str], None],
        sizes: Sizes,
        *,
        resting: bool = True,
        spend: Callable[[int], None] = lambda _size: None,
    ) -> None:
        """*closed* are the segments that may be touched, by their place in the log.

        *spend* is told of the bytes that are read, and written, and may wait.
        """
        self.old: list[Segment] = []
        self.new: Segment | None = None
        # Those whose files can go. Until the name of the copy is durable, a power cut may need the old ones;
        # then the next start removes them.
        self.replaced: list[Segment] = []
        # What the copy has of the old segments.
        self.kept: Ranges = []
        # Those that are left alone, because something that is owed of them cannot be read.
        self.spoiled: list[Segment] = []
        # Held for a moment, never while the disk is used.
        self._lock = Lock()
        self._given_up = False
        self._decided = False
        self._disk = disk
        self._closed = closed
        self._owed = owed
        self._warn = warn
        self._sizes = sizes
        self._resting = resting
        self._spend = spend

    def run(self) -> None:
        """Put the neighbours together that are to be first, if there are any. Raises OSError."""
        owed = self._owed()
        extents = [
            Extent(
                place, segment.size - FILE_HEADER_BYTES, wanted_bytes(segment, owed), segment.header.origin
            )
            for place, segment in self._closed.items()
        ]
        runs = retention.plan(extents, self._sizes.segment, self._sizes.worth, resting=self._resting)
        for run in runs:
            self.old = [self._closed[extent.place] for extent in run]
            try:
                self.new = self._rewrite(self.old, owed)
            except GivenUp:
                return
            except Spoiled as error:
                # A loss is found and counted by the channel that is owed it, not hidden by a compaction.
                self.spoiled.append(error.segment)
                continue
            return

    def give_up(self) -> bool:
        """Let it come to nothing; False when it is too late: of the old ones only *kept* counts now."""
        with self._lock:
            self._given_up = not self._decided
            return self._given_up

    def _decide(self) -> bool:
        """Whether nobody gave it up, which from now on nobody can."""
        with self._lock:
            self._decided = not self._given_up
            return self._decided

    # --- reading ---

    def _blocks(self, segment: Segment, owed: Ranges) -> Iterator[list[Block]]:
        """The messages that are owed, deferred ones with their due time, page by page. Raises Spoiled."""
        owed = within(owed, segment.first, segment.next)
        for page in _pages(segment, owed):
            here = within(owed, segment.page_firsts[page], segment.page_end(page))
            missing = sum(end - start for start, end in here)
            blocks: list[Block] = []
            for append, data in self._appends(segment, page):
                # Both checkpoints know of the notes: see `ShrinkingLog.begin_compaction`.
                wanted = [] if append.is_note else within(owed, append.first, append.next)
                if wanted:
                    block = parse_block(append.first, data)
                    blocks += [
                        parse_block(
                            start,
                            block.frames(start, end),
                            due_ns=append.due_ns,
                            has_headers=append.has_headers,
                        )
                        for start, end in wanted
                    ]
            self._spend(segment.page_size(page))
            if sum(map(len, blocks)) < missing and self._is_damaged(segment, page, owed):
                raise Spoiled(segment)
            yield blocks

    def _appends(self, segment: Segment, page: int) -> Iterator[tuple[Append, bytes]]:
        """The appends of a page. Raises Spoiled when the file is not there."""
        try:
            yield from appends_in(self._disk, segment, page)
        except FileNotFoundError:
            raise Spoiled(segment) from None

    def _is_damaged(self, segment: Segment, page: int, owed: Ranges) -> bool:
        """Whether what is missing is lost; in a compacted segment it may have been finished."""
        return any(
            isinstance(found, Gap) and found.is_loss and bool(within(owed, found.start, found.end))
            for found in read_page(self._disk, segment, page)
        )

    # --- writing ---

    def _rewrite(self, old: list[Segment], owed: Ranges) -> Segment | None:
        disk, first = self._disk, old[0]
        header = replace(first.header, salt=new_salt(), ends=old[-1].next)
        new = Segment(first.folder, first.number, header, first.generation + 1)
        unfinished = new.path.with_name(new.path.name + ".new")
        disk.remove(unfinished)
        writer = SegmentWriter(disk, new, unfinished)
        try:
            try:
                self._copy(old, owed, writer)
                disk.sync(writer.fd)
            finally:
                disk.close(writer.fd)
        except (OSError, GivenUp, Spoiled):
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
                self._decided, self._given_up = False, True
            raise
        # From here on the copy counts at the next start, so it counts now, whatever fails.
        new.next = header.ends
        new.end_synced()
        try:
            disk.sync_folder(new.folder)
            self.replaced = old
            segment_index.write(disk, new)
        except OSError as error:
            self._warn(f"{new.path} is used, but something of it could not be written: {error}")
        return new

    def _copy(self, old: list[Segment], owed: Ranges, writer: SegmentWriter) -> None:
        kept: Ranges = []
        for segment in old:
            for blocks in self._blocks(segment, owed):
                if self._given_up:
                    raise GivenUp
                if blocks:
                    writer.append(blocks, [])
                    kept += [(block.first, block.next) for block in blocks]
                    self._spend(sum(len(block.data) for block in blocks))
        if not kept:
            # Nothing but the header, which says up to where all was finished.
            writer.append([], [])
        self.kept = merged(kept)


def wanted_bytes(segment: Segment, owed: Ranges) -> int:
    """About how many bytes of the data of *segment* are owed."""
    data = segment.size - FILE_HEADER_BYTES
    if not segment.messages:
        return 0
    ranges = within(owed, segment.first, segment.next)
    count = sum(end - start for start, end in ranges)
    if count >= segment.messages:
        return data
    if segment.header.ends or len(ranges) > _MEASURED:
        # Numbers are missing in it, so that places do not follow from them.
        return data * count // segment.messages
    return min(data, sum(_offset(segment, end) - _offset(segment, start) for start, end in ranges))


def _offset(segment: Segment, seq: int) -> int:
    """About where *seq* lies in the file."""
    page = segment.page_of(seq)
    first = segment.page_firsts[page]
    end = segment.page_end(page)
    share = (seq - first) / (end - first) if end > first else 0.0
    return segment.page_offsets[page] + round(segment.page_size(page) * share)


def _pages(segment: Segment, wanted: Ranges) -> Iterator[int]:
    """The pages in which any of *wanted* lies, in order."""
    done = -1
    if segment.pages:
        for start, end in wanted:
            for page in range(max(done + 1, segment.page_of(start)), segment.page_of(end - 1) + 1):
                yield page
                done = page
