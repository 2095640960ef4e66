"""Log cleaning: removes whole segments, and parts of others by compaction.

A message is removed when no channel and no policy needs it. Readers of the log no longer see it. A thread
removes the files later. `retention` decides which messages are needed.
"""

from collections.abc import Callable, Iterator
from typing import Final

from nsqd.log.appender import Appender
from nsqd.log.compaction import Compaction
from nsqd.log.layout import FILE_HEADER_BYTES
from nsqd.log.ranges import Ranges, within
from nsqd.log.retention import WantedPositions, is_enough, knows_notes
from nsqd.log.segment import Segment, SegmentState
from nsqd.log.segments import Segments

# The active segment stays below this size, even when no channel needs its messages.
_DROP_OPEN_BYTES: Final = 1 << 20


class Cleaner:
    """See the module. Not thread-safe, except for :meth:`remove_files` and the compactions it hands out."""

    __slots__ = (
        "_appender",
        "_compaction",
        "_max_segment_bytes",
        "_segments",
        "_spoiled",
    )

    def __init__(
        self,
        segments: Segments,
        appender: Appender,
        max_segment_bytes: int,
    ) -> None:
        """Sizes are in bytes."""
        self._segments = segments
        self._appender = appender
        self._max_segment_bytes = max_segment_bytes
        # Segments that cannot be compacted, because some of their pending messages cannot be read.
        self._spoiled: set[Segment] = set()
        # The compaction that was begun last, until its result is used.
        self._compaction: Compaction | None = None

    # --- whole segments ---

    def log_start_after_drop(self, seq: int, notes: int) -> int | None:
        """The sequence below which :meth:`drop_below` removes messages; 0 when it removes none.

        None if that would find nothing to remove.
        """
        droppable = list(self._droppable(seq, notes))
        ends = [one.next for one in droppable if one.messages or one.header.ends]
        return max(ends, default=0) if droppable else None

    def _droppable(self, seq: int, notes: int) -> Iterator[Segment]:
        """Segments to remove, oldest first. A segment retained for its notes does not block later ones."""
        for segment in self._segments:
            if segment.next > seq:
                return
            small = segment.state is SegmentState.OPEN and segment.size < _DROP_OPEN_BYTES
            if knows_notes(segment.last_note, notes) and not small:
                yield segment

    def drop_below(self, seq: int, notes: int) -> int:
        """Drop segments without a message at or after *seq* or a note after *notes*; returns the number.

        Every checkpoint knows the notes up to *notes*. :meth:`remove_files` removes the files.
        """
        segments = self._segments
        dropped = list(self._droppable(seq, notes))
        segments.removable += dropped
        if segments.tap is not None:
            segments.tap.segments_removed(dropped)
        self._appender.remove(dropped)
        self._spoiled.difference_update(dropped)
        return len(dropped)

    @property
    def has_removable(self) -> bool:
        """Whether there are files for :meth:`remove_files`."""
        return bool(self._segments.removable)

    def remove_files(self) -> None:
        """Remove the files of removed segments. It is slow. Any thread may call it, one at a time.

        Raises OSError for the first failure, after trying all files. The next call retries the failed ones.
        """
        failed: list[Segment] = []
        first: OSError | None = None
        removable = self._segments.removable
        for _ in range(len(removable)):
            segment = removable.popleft()
            try:
                # The index is removed first. A file without an index is walked. An index without its file
                # could be mistaken for the index of another file.
                segment.remove(self._segments.disk)
            except OSError as error:
                first = first or error
                failed.append(segment)
        removable += failed
        if first is not None:
            raise first

    # --- compaction ---

    def begin_compaction(
        self,
        wanted: WantedPositions,
        covered_notes: int,
        low_water: int = 0,
        *,
        resting: bool = True,
        spend: Callable[[int], None] = lambda _size: None,
    ) -> Compaction:
        """A compaction that makes the log smaller when it is run, if that is possible.

        *wanted* has the messages that a channel must deliver or a policy retains now. Only segments that are
        closed now count, so they hold no later messages.
        Every checkpoint knows the notes up to *covered_notes*. Segments that end at or before *low_water* are
        left out: they are soon removed whole. See `retention` for *resting*, `Compaction` for *spend*.
        """
        closed = self._compactable(covered_notes, low_water)
        segments = self._segments
        self._compaction = Compaction(
            segments.disk,
            closed,
            wanted,
            segments.warn,
            self._max_segment_bytes,
            resting=resting,
            spend=spend,
        )
        return self._compaction

    def needs_compaction(self, covered_notes: int, low_water: int = 0, *, resting: bool = True) -> bool:
        """Whether closed segments hold enough data to check how much of it is pending."""
        closed = self._compactable(covered_notes, low_water).values()
        # A file of which only the header is left cannot be made smaller.
        size = sum(one.size - FILE_HEADER_BYTES for one in closed)
        return is_enough(size, self._max_segment_bytes, resting=resting)

    def _compactable(self, covered_notes: int, low_water: int) -> dict[int, Segment]:
        """The segments that are closed and may be copied, by their index."""
        return {
            index: one
            for index, one in enumerate(self._segments)
            if one.closed
            and one.next > low_water
            and one not in self._spoiled
            and knows_notes(one.last_note, covered_notes)
        }

    def waits_for_notes(self, covered_notes: int, low_water: int) -> bool:
        """Whether a segment cannot be compacted because a checkpoint does not know its notes."""
        return any(
            low_water < one.next and not knows_notes(one.last_note, covered_notes)
            for one in self._segments
            if one.state is not SegmentState.OPEN
        )

    def waits_for_sync(self, low_water: int) -> bool:
        """Whether a segment cannot be compacted until a sync has made all of it durable."""
        return not self._appender.failed and any(
            one.next > low_water and one.state is SegmentState.SEALED for one in self._segments
        )

    def claim(self) -> Ranges:
        """Like `Segments.extents`, for a channel that must deliver all of it from now on.

        No compaction that began earlier removes any of these messages.
        """
        extents, compaction = self._segments.extents(), self._compaction
        if compaction is None or compaction.cancel() or not set(compaction.old) <= set(self._segments):
            return extents
        first, end = compaction.old[0].first, compaction.old[-1].next
        return within(extents, 0, first) + compaction.copied + within(extents, end, self._segments.end)

    def end_compaction(self, compaction: Compaction) -> int:
        """Use the result of a compaction; returns how many bytes that saved. Raises OSError.

        :meth:`remove_files` removes the files that it replaces.
        """
        self._compaction = None
        segments = self._segments
        for segment in compaction.spoiled:
            if segment in segments:
                segments.warn(f"{segment.path} is not compacted: messages that are pending cannot be read")
                self._spoiled.add(segment)
        old, new = compaction.old, compaction.new
        if new is None or segments.deleted:
            return 0
        here = [one for one in old if one in segments]
        if not here:
            # All old segments were removed during the compaction, so the copy is not needed either.
            segments.removable.append(new)
            return 0
        segments.replace(here, new)
        if segments.tap is not None:
            segments.tap.segments_removed(here)
        segments.removable += [one for one in here if one in compaction.replaced]
        return sum(one.size for one in here) - new.size
