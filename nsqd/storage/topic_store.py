"""The folder of one topic: its segments, and the appends to the newest of them."""

import re
import shutil
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.engine.block import Block
from nsqd.storage.compaction import WORTH_BYTES, compact
from nsqd.storage.disk import Disk
from nsqd.storage.segment import Entry, Segment, SegmentWriter, recover

FOLDER_SUFFIX: Final = ".topic"
CHECKPOINT: Final = "checkpoint"
# Pages that were read back and may be wanted again: by the next channel, or a message at a time.
_CACHED_PAGES: Final = 4
# An active segment whose messages are all acknowledged is given up from this size on.
_DROP_ACTIVE_BYTES: Final = 1 << 20
_DATA_NAME: Final = re.compile(r"([0-9a-f]{16})(?:\.(\d+))?\.log")


def topic_folder(data_path: Path, topic_name: str) -> Path:
    # The suffix keeps a topic called ".." inside the data path.
    return data_path / (topic_name + FOLDER_SUFFIX)


class TopicStore:
    """Appends blocks and finds them again. Not thread-safe but for what :meth:`begin_sync` hands out."""

    __slots__ = (
        "_cache",
        "_compacted",
        "_disk",
        "_firsts",
        "_max_segment_bytes",
        "_new_names",
        "_sealed_unsynced",
        "_segments",
        "_warn",
        "_worth_compacting",
        "_writer",
        "folder",
        "unsynced",
    )

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        max_segment_bytes: int,
        warn: Callable[[str], None],
        *,
        worth_compacting: int = WORTH_BYTES,
    ) -> None:
        """*warn* is told in one sentence of what was found damaged; sizes in bytes."""
        self.folder = folder
        # Messages appended since the last sync.
        self.unsynced = 0
        self._disk = disk
        self._max_segment_bytes = max_segment_bytes
        self._warn = warn
        self._worth_compacting = worth_compacting
        self._writer: SegmentWriter | None = None
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        self._cache: OrderedDict[tuple[int, int, int], list[Block]] = OrderedDict()
        # Files were created or removed, so the folder itself is to be synced.
        self._new_names = False
        # The segment a compaction was made of, and what came out.
        self._compacted: tuple[Segment, Segment] | None = None
        # Descriptors of closed segments that no sync has covered yet.
        self._sealed_unsynced: list[int] = []

    # --- writing ---

    def append(self, blocks: list[Block]) -> None:
        """Write blocks to the newest segment. Raises OSError; then none of them counts as stored."""
        writer = self._writer
        if writer is not None and writer.segment.size >= self._max_segment_bytes:
            self.seal()
            writer = None
        if writer is None:
            self._disk.make_folder(self.folder)
            writer = self._writer = SegmentWriter(self._disk, Segment(self.folder, blocks[0].first))
            self._segments.append(writer.segment)
            self._firsts.append(writer.segment.first)
            self._new_names = True
        try:
            writer.append(blocks)
        except OSError:
            # What is in the file now is not known; the next append begins a new one.
            self.seal()
            if not writer.segment.entries:
                # On a full disk every attempt would leave two empty files behind.
                self._segments.pop()
                self._firsts.pop()
                writer.segment.remove(self._disk)
            raise
        self.unsynced += blocks[-1].next - blocks[0].first

    def seal(self) -> None:
        """Close the newest segment; the next append begins another."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            if self.unsynced:
                # Closed is not durable: the next sync covers it, too.
                self._sealed_unsynced += writer.descriptors()
            writer.close()

    def begin_sync(self) -> Callable[[], None] | None:
        """What is to be called, in any thread, to make all appends so far durable; None when all are.

        It raises OSError.
        """
        if not self.unsynced:
            return None
        descriptors, self._sealed_unsynced = self._sealed_unsynced, []
        if self._writer is not None:
            descriptors += self._writer.descriptors()
        self.unsynced = 0
        new_names, self._new_names = self._new_names, False
        disk, folder = self._disk, self.folder

        def sync() -> None:
            try:
                for fd in descriptors:
                    disk.sync(fd)
            finally:
                for fd in descriptors:
                    disk.close(fd)
            if new_names:
                disk.sync_folder(folder)
                disk.sync_folder(folder.parent)

        return sync

    def begin_checkpoint(self, content: bytes, *, durable: bool = True) -> Callable[[], None]:
        """What is to be called, once and in any thread, to replace the checkpoint. Both raise OSError.

        The folder is opened now: a topic that is deleted and made anew meanwhile keeps its own checkpoint.
        """
        self._disk.make_folder(self.folder)
        folder = self._disk.open_folder(self.folder)
        disk = self._disk

        def write() -> None:
            try:
                disk.replace(folder, CHECKPOINT, content, durable=durable)
            finally:
                disk.close(folder)

        return write

    def can_drop_below(self, seq: int) -> bool:
        """Whether :meth:`drop_below` would find something to remove."""
        if not self._segments or self._segments[0].next > seq:
            return False
        oldest = self._segments[0]
        written_to = self._writer is not None and self._writer.segment is oldest
        return not written_to or oldest.size >= _DROP_ACTIVE_BYTES

    def drop_below(self, seq: int) -> int:
        """Remove segments that hold nothing at or after *seq*; returns how many."""
        writer = self._writer
        if writer is not None and writer.segment.next <= seq and writer.segment.size >= _DROP_ACTIVE_BYTES:
            self.seal()
        dropped = 0
        while self._segments and self._segments[0].next <= seq:
            if self._writer is not None and self._segments[0] is self._writer.segment:
                break
            segment = self._segments.pop(0)
            del self._firsts[0]
            segment.remove(self._disk)
            dropped += 1
        return dropped

    @property
    def has_sealed_segments(self) -> bool:
        return len(self._segments) > (self._writer is not None)

    def begin_compaction(self, owed: Callable[[], list[tuple[int, int]]]) -> Callable[[], None] | None:
        """What is to be called, in any thread, to make the oldest sparse segment smaller; None if none is.

        *owed* gives, sorted and merged, the ranges that anybody still owes; it is called in that thread.
        :meth:`end_compaction` puts the result in place. What is called raises OSError.
        """
        sealed = self._segments[:-1] if self._writer is not None else list(self._segments)
        if not sealed:
            return None

        def work() -> None:
            self._compacted = compact(self._disk, sealed, owed(), self._warn, self._worth_compacting)

        return work

    def end_compaction(self) -> int:
        """Use what the last compaction made; returns how many bytes that saved. Raises OSError."""
        compacted, self._compacted = self._compacted, None
        if compacted is None:
            return 0
        old, new = compacted
        if old not in self._segments:
            # Dropped or deleted meanwhile: then nobody needs the copy either.
            new.remove(self._disk)
            return 0
        at = self._segments.index(old)
        if new.messages:
            self._segments[at] = new
        else:
            del self._segments[at]
            del self._firsts[at]
        self._cache.clear()
        old.remove(self._disk)
        return old.size - new.size

    def close(self) -> None:
        self.seal()
        for fd in self._sealed_unsynced:
            self._disk.close(fd)
        self._sealed_unsynced = []

    def delete(self) -> None:
        """Remove the topic from the disk."""
        self.close()
        self._segments.clear()
        self._firsts.clear()
        self._cache.clear()
        if self.folder.exists():
            # Renamed first: a folder that is half removed must not be taken for a topic.
            doomed = self.folder.with_name(self.folder.name + ".deleted")
            shutil.rmtree(doomed, ignore_errors=True)
            self._disk.rename(self.folder, doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    # --- reading ---

    @property
    def first_seq(self) -> int | None:
        """The first sequence on disk; None when there is no segment."""
        return self._firsts[0] if self._firsts else None

    def extents(self) -> list[tuple[int, int]]:
        """Where messages are: ``start <= seq < end``, in order; no sequence between them was stored."""
        found: list[tuple[int, int]] = []
        for segment in self._segments:
            if found and found[-1][1] == segment.first:
                found[-1] = (found[-1][0], segment.next)
            elif segment.first < segment.next:
                found.append((segment.first, segment.next))
        return found

    @property
    def size(self) -> int:
        """Bytes of message data on disk."""
        return sum(segment.size for segment in self._segments)

    def block_from(self, seq: int) -> Block | None:
        """The stored block that holds *seq*, or the first one after it if that is lost; None past the end."""
        at = max(0, bisect_right(self._firsts, seq) - 1)
        for segment in self._segments[at:]:
            if segment.next <= seq:
                continue
            for page in range(segment.page_of(seq), segment.pages):
                for block in self._page(segment, page):
                    if block.next > seq:
                        return block
        return None

    def _page(self, segment: Segment, page: int) -> list[Block]:
        # The last page of the newest segment grows, so its size is part of what it is known by.
        key = (segment.first, page, segment.page_size(page))
        blocks = self._cache.get(key)
        if blocks is not None:
            self._cache.move_to_end(key)
            return blocks
        try:
            blocks, damaged = segment.read_page(page)
        except (OSError, ValueError) as error:
            self._warn(f"cannot read {segment.data_path}: {error}")
            return []
        for entry in damaged:
            self._warn(
                f"{segment.data_path}: checksum mismatch at {entry.start}, "
                f"{entry.next - entry.first} messages from {entry.first:x} are lost"
            )
        self._cache[key] = blocks
        while len(self._cache) > _CACHED_PAGES:
            self._cache.popitem(last=False)
        return blocks

    # --- starting ---

    def recover(self) -> tuple[list[Entry], bool]:
        """Find the segments that are on disk. Returns the deferred entries and whether anything was cut off.

        Raises OSError when the folder cannot be read.
        """
        deferred: list[Entry] = []
        cut = False
        for segment in self._on_disk():
            due, torn = recover(segment)
            if torn:
                cut = True
                self._warn(
                    f"{segment.data_path}: the end was not written completely, kept {segment.size} bytes"
                )
            if segment.size == 0:
                segment.remove(self._disk)
                continue
            deferred.extend(due)
            self._segments.append(segment)
            self._firsts.append(segment.first)
        return deferred, cut

    def _on_disk(self) -> list[Segment]:
        """The segments there are files of, oldest first; of several generations the newest finished one."""
        newest: dict[int, Segment] = {}
        found = [match for path in self.folder.glob("*.log") if (match := _DATA_NAME.fullmatch(path.name))]
        for match in sorted(found, key=lambda match: int(match[2] or 0)):
            segment = Segment(self.folder, int(match[1], 16), int(match[2] or 0))
            if segment.generation and not segment.index_path.exists():
                # The process died before that compaction was done.
                segment.remove(self._disk)
                continue
            if (older := newest.get(segment.first)) is not None:
                older.remove(self._disk)
            newest[segment.first] = segment
        return [newest[first] for first in sorted(newest)]

    def node_ids(self) -> set[int]:
        """Of the nodes that wrote the segments. Raises OSError."""
        found = (segment.node_id() for segment in self._segments)
        return {node_id for node_id in found if node_id is not None}

    @property
    def next_seq(self) -> int:
        """The sequence after the last message on disk; 0 when there is none."""
        return self._segments[-1].next if self._segments else 0
