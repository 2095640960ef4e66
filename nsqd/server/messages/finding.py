"""Finding messages: pages in order, those in a state, those that a filter selects. In steps of bounded size.

Reading and decoding in the event loop is done in slices of a millisecond or two. A filter is applied by a
thread, whose bytes per second are limited so that others get their share.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from nsqcore.http.api import ApiError
from nsqcore.http.pace import Pace
from nsqd.engine.backlog import MessageState
from nsqd.engine.channel import Channel
from nsqd.engine.message_status import StateFilter
from nsqd.engine.topic import Topic
from nsqd.log.cursor import Cursor, LogPosition, PositionKind
from nsqd.log.disk import Disk, error_text
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead, Gap, Why
from nsqd.log.ids import SEQUENCE_MASK
from nsqd.log.ranges import Ranges, within
from nsqd.log.search import All, Breaks, Matches, Search, SearchRange, parts_in_memory, parts_on_disk
from nsqd.server.messages.query import MessageQuery
from nsqd.server.messages.shown import headers_and_body
from nsqd.storage.data_path import extents_of
from nsqd.storage.topic_log import store_of

_T = TypeVar("_T")
# The most bytes of frames in one answer, unless a single message is larger.
ANSWER_BYTES: Final = 4 << 20
# An answer names at most so many gaps, and ends with the last of them.
_MAX_GAPS: Final = 256
# How many bytes a filter searches for one answer, and in one step.
SCAN_BYTES: Final = 64 << 20
_STEP_BYTES: Final = 8 << 20
_SCAN_BYTES_PER_SECOND: Final = 400 << 20
# How many steps are taken for one answer, at most.
_MAX_STEPS: Final = 64
# How many messages are picked in one go, a millisecond's work; reading a page counts as so many messages.
_MESSAGES_PER_STEP: Final = 1000
_PAGE_COST: Final = 500
# How many deferred messages a filter checks for one answer, unless the limit is larger.
_MAX_DEFERRED: Final = 1000


@dataclass(slots=True)
class Picked:
    """Messages with the blocks that contain them, in the requested order, and where to continue.

    The next answer begins at *position*, or, in the order of due times, *behind* a due time and a sequence.
    """

    position: int
    messages: list[tuple[int, Block]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    scanned: int = 0
    next_from: tuple[int, int] | None = None
    room: int = ANSWER_BYTES
    full: bool = False

    def take(self, block: Block, low: int, high: int, query: MessageQuery) -> None:
        """Add messages of a block, as far as there is room."""
        for seq in range(low, high) if query.forward else range(high - 1, low - 1, -1):
            size = block.offset(seq + 1) - block.offset(seq)
            if self.messages and (len(self.messages) >= query.limit or size > self.room):
                self.full = True
                return
            self.messages.append((seq, block))
            self.room -= size
            self.position = seq + 1 if query.forward else seq - 1

    def skip(self, gap: Gap, *, forward: bool) -> None:
        """Go past *gap*, and name it unless its numbers were never used."""
        self.position = gap.end if forward else gap.start - 1
        if gap.why is not Why.UNUSED:
            self.gaps.append(gap)
            self.full = len(self.gaps) >= _MAX_GAPS


class Finder:
    """Searches the logs of one node."""

    def __init__(self, disk: Disk, thread: Executor, bytes_per_second: int = _SCAN_BYTES_PER_SECOND) -> None:
        """*thread* is one thread, so that the processor time that it takes from others is bounded."""
        self._disk = disk
        self._breaks = Breaks(bytes_per_second)
        self._thread = thread

    def close(self) -> None:
        """End searches after their present step."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def aside(self, work: Callable[[], _T]) -> _T:
        """Run *work* in the search thread while the event loop continues; returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- for one answer ---

    async def pick(self, topic: Topic, channel: Channel | None, query: MessageQuery) -> Picked:
        """The messages that *query* selects, as many as fit into an answer. Raises ApiError."""
        if channel is not None and query.by_due_time:
            return await self._pick_deferred(topic, channel, query)
        first, end = topic.log.log_start, topic.log.next_seq
        position = sequence_of(topic, query.position, forward=query.forward)
        start, stop = (max(first, position), end) if query.forward else (first, min(position + 1, end))
        picked = Picked(position=start if query.forward else stop - 1)
        if position < first and query.position.kind is PositionKind.SEQUENCE:
            picked.gaps.append(Gap(position, first, Why.COMPACTED))
        sorting = StateFilter(channel, topic.backlog, query.state) if channel and query.state else None
        searched_to = stop if query.forward else start - 1
        if query.filter is not None:
            found = await self.find(
                topic, sorting, query.filter, start, stop, forward=query.forward, limit=query.limit
            )
            picked.scanned, searched_to = found.scanned, found.position
            ranges = _together(found.matches)
        elif sorting is not None:
            ranges = await self.aside(partial(sorting.ranges, start, stop))
            ranges = ranges if query.forward else ranges[::-1]
        else:
            ranges = [(start, stop)]
        await self._read(topic, ranges, query, picked)
        if query.filters and not picked.full:
            picked.position = searched_to
        return picked

    async def _read(self, topic: Topic, ranges: Ranges, query: MessageQuery, picked: Picked) -> None:
        """Read the messages of *ranges*, in the given order, until the answer is full."""
        cursor, pace = Cursor(topic.log), Pace(_MESSAGES_PER_STEP)
        try:
            for start, end in ranges:
                scan = (
                    cursor.scan(start, end, few=query.limit)
                    if query.forward
                    else cursor.backwards(start, end)
                )
                for low, high, found in scan:
                    if isinstance(found, Gap):
                        picked.skip(Gap(low, high, found.why), forward=query.forward)
                    else:
                        picked.take(found, low, high, query)
                    if picked.full:
                        return
                    await pace.done(_PAGE_COST + high - low if isinstance(found, Block) else 1)
        except CannotRead as error:
            if not (picked.messages or picked.gaps):
                raise cannot_read(error) from error
            picked.full = True

    async def _pick_deferred(self, topic: Topic, channel: Channel, query: MessageQuery) -> Picked:
        """The deferred messages that fall due next, in that order; a filter checks a bounded number."""
        behind = query.next_from or (0, 0)
        if query.next_from is None and query.position.kind is PositionKind.TIME:
            behind = (max(0, query.position.number - topic.wall.offset_ns) - 1, SEQUENCE_MASK)
        sorting = StateFilter(channel, topic.backlog, MessageState.DEFERRED)
        most = query.limit if query.filter is None else max(query.limit, _MAX_DEFERRED)
        listed = await self.aside(partial(sorting.by_due_time, behind, most))
        picked = Picked(position=0, next_from=behind)
        for due_ns, seq in listed:
            before = len(picked.messages)
            await self._read(topic, [(seq, seq + 1)], query, picked)
            if picked.full and len(picked.messages) == before:
                return picked
            picked.next_from = (due_ns, seq)
            if query.filter is not None and len(picked.messages) > before:
                _, block = picked.messages[-1]
                picked.scanned += len(block.frames(seq, seq + 1))
                if not query.filter.matches(headers_and_body(block, seq)[1]):
                    picked.messages.pop()
        picked.full = len(listed) == most
        return picked

    # --- searching for matches ---

    async def find(
        self,
        topic: Topic,
        sorting: StateFilter | None,
        wanted: All | None,
        start: int,
        end: int,
        *,
        forward: bool = True,
        limit: int,
    ) -> Matches:
        """Up to *limit* messages of ``start <= seq < end`` in the state of *sorting* that match *wanted*.

        Without *wanted* the log is not read. The work is bounded, so a search may end with fewer messages.
        Raises ApiError.
        """
        found = Matches(start if forward else end - 1)
        if wanted is None:
            ranges = [(start, end)]
            if sorting is not None:
                ranges = await self.aside(partial(sorting.ranges, start, end))
            found.matches = _first_of(ranges, limit, forward=forward)
            if len(found.matches) == limit:
                found.position = found.matches[-1] + (1 if forward else -1)
            else:
                found.position = end if forward else start - 1
            return found
        for _ in range(_MAX_STEPS):
            low, high = (found.position, end) if forward else (start, found.position + 1)
            there = within(extents_of(topic), low, high)
            if not there:
                found.position = end if forward else start - 1
            left = limit - len(found.matches)
            if not there or left <= 0 or found.scanned >= SCAN_BYTES:
                break
            await self._search(topic, sorting, wanted, there, found, forward=forward, limit=limit)
        return found

    async def _search(
        self,
        topic: Topic,
        sorting: StateFilter | None,
        wanted: All,
        there: Ranges,
        found: Matches,
        *,
        forward: bool,
        limit: int,
    ) -> None:
        """Search the next parts of the log."""
        store = store_of(topic)
        if store is None:
            parts: list[SearchRange] = list(parts_in_memory(Cursor(topic.log), there, forward=forward))
        else:
            parts = list(parts_on_disk(self._disk, store.segments, there, _STEP_BYTES, forward=forward))
        if not parts:
            # The files were compacted until nothing was left.
            found.position = there[-1][1] if forward else there[0][0] - 1
            return
        only = there
        if sorting is not None:
            low, high = min(part.first for part in parts), max(part.end for part in parts)
            sorted_out = await self.aside(partial(sorting.ranges, low, high))
            only = [both for one in there for both in within(sorted_out, *one)]
        search = Search(parts, wanted, only, forward=forward, limit=limit, pause=self._breaks.pause)
        try:
            await self.aside(partial(search.run, found))
        except FileNotFoundError:
            part = search.current
            if store is not None and part is not None and part.segment in store.segments:
                # The file was removed: its messages are counted as lost when they are to be delivered.
                found.position = part.end if forward else part.first - 1
        except OSError as error:
            if not found.matches:
                raise cannot_read(CannotRead(error_text(error))) from error


def sequence_of(topic: Topic, position: LogPosition, name: str = "from", *, forward: bool = True) -> int:
    """The sequence of the position that the argument *name* has given. Raises ApiError."""
    first, end = topic.log.log_start, topic.log.next_seq
    try:
        sequence = (position.position if forward else position.last)(topic.log, first, end)
    except CannotRead as error:
        raise cannot_read(error) from error
    if sequence > end:
        raise ApiError(416, f"INVALID_ARG_{name.upper()}: the log ends with {end - 1}, before {sequence}")
    return sequence


def cannot_read(error: CannotRead) -> ApiError:
    """The answer when the messages cannot be read at the moment."""
    return ApiError(503, f"CANNOT_READ: {error}; try again later")


def _first_of(ranges: Ranges, limit: int, *, forward: bool) -> list[int]:
    """The first *limit* sequences of sorted *ranges*, or the last ones, last one first."""
    found: list[int] = []
    for start, end in ranges if forward else reversed(ranges):
        found += (range(start, end) if forward else range(end - 1, start - 1, -1))[: limit - len(found)]
        if len(found) == limit:
            break
    return found


def _together(seqs: list[int]) -> Ranges:
    """The sequences as ranges, in the same order, up or down."""
    ranges: Ranges = []
    for seq in seqs:
        if ranges and seq == ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], seq + 1)
        elif ranges and seq == ranges[-1][0] - 1:
            ranges[-1] = (seq, ranges[-1][1])
        else:
            ranges.append((seq, seq + 1))
    return ranges
