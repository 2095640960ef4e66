"""Ranges of positions: ``start <= position < end``. Pure."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

Ranges = list[tuple[int, int]]


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


def within(ranges: Ranges, first: int, end: int) -> Ranges:
    """The parts of sorted *ranges* that lie in ``first <= seq < end``."""
    at = max(0, bisect_right(ranges, (first, first)) - 1)
    found: Ranges = []
    while at < len(ranges) and ranges[at][0] < end:
        low, high = max(ranges[at][0], first), min(ranges[at][1], end)
        if low < high:
            found.append((low, high))
        at += 1
    return found


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """The parts of sorted *ranges* that lie in none of *others*, which are sorted and merged."""
    found: Ranges = []
    for start, end in ranges:
        for low, high in within(others, start, end):
            if start < low:
                found.append((start, low))
            start = high
        if start < end:
            found.append((start, end))
    return found


def size_of(ranges: Ranges) -> int:
    """How many positions lie in ranges."""
    return sum(end - start for start, end in ranges)


def size_of_range(start: int, end: int) -> int:
    """How many positions lie in ``start <= position < end``."""
    return end - start


def ranges_of(positions: Sequence[int]) -> Ranges:
    """Sorted *positions* as ranges."""
    found: Ranges = []
    for position in positions:
        if found and found[-1][1] == position:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
    return found


# Positions that share a page of a set: a byte each in memory while it is added to, a bit each on disk.
PAGE: Final = 1 << 13
_SHIFT: Final = 13
_LOW: Final = PAGE - 1
PAGE_BYTES: Final = PAGE // 8
_FULL: Final = b"\1" * PAGE
_EMPTY: Final = bytes(PAGE)
# A call that adds at least this many positions stores them as a run of pages.
_RUN: Final = 16 * PAGE
# A page with more missing ranges stays as it is: packed it would take more than half the memory.
_MAX_PACKED_RANGES: Final = PAGE // 8
# A packed page without missing positions.
_PACKED_FULL: Final = b""
_BEHIND_ALL: Final = 1 << 64
_ABSENT: Final = re.compile(rb"\0+")
_TO_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")
_FROM_DIGITS: Final = bytes.maketrans(b"01", b"\0\1")


class RangeSet:
    """A set of positions that grows from below: everything under ``floor``, and pages above it.

    Adding positions directly above the floor takes constant time. A position that is added above that, in
    any order, takes a byte. A page that nothing was added to between two calls of `take_changed` is packed:
    it takes four bytes for each range of missing positions. Many whole pages of one call are stored as a run:
    after a restart the numbers continue far above the last one, and all numbers in between are added.
    """

    __slots__ = ("_changed", "_pages", "_unpacked", "floor", "runs")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        # A byte for each position, 1 if it is in the set; or the missing positions, see `_pack`.
        self._pages: dict[int, bytearray | bytes] = {}
        # Whole pages ``first <= number < end`` that are not in `_pages`.
        self.runs: Ranges = []
        # Pages that something was added to since `take_changed`.
        self._changed: set[int] = set()
        # Pages that something was added to before the last call, and that are not packed.
        self._unpacked: set[int] = set()

    def __repr__(self) -> str:
        return f"<RangeSet below {self.floor} and {len(self._pages)} pages>"

    def __contains__(self, position: int) -> bool:
        if position < self.floor:
            return True
        number = position >> _SHIFT
        page = self._pages.get(number)
        if page is None:
            return self._end_of_run(number) > 0
        low = position & _LOW
        if isinstance(page, bytearray):
            return bool(page[low])
        return not within(_missing_of(page), low, low + 1)

    def add(self, start: int, end: int) -> None:
        """Add ``start <= position < end``."""
        if start <= self.floor:
            if end > self.floor:
                if self._pages or self.runs:
                    self._raise(end)
                else:
                    self.floor = end
            return
        if end - start >= _RUN:
            first, last = -(-start >> _SHIFT), end >> _SHIFT
            self.add_run(first, last)
            self.add(last << _SHIFT, end)
            end = first << _SHIFT
        while start < end:
            number = start >> _SHIFT
            low = start & _LOW
            high = min(end - (number << _SHIFT), PAGE)
            self._fill(number, low, high)
            start = (number << _SHIFT) + high

    def add_one(self, position: int) -> None:
        """Add a single position."""
        floor = self.floor
        if position <= floor:
            if position == floor:
                self._raise(position + 1)
            return
        number = position >> _SHIFT
        page = self._pages.get(number)
        if page is None:
            if self._end_of_run(number):
                return
            page = self._pages[number] = bytearray(PAGE)
        elif not isinstance(page, bytearray):
            if page == _PACKED_FULL:
                return
            page = self._pages[number] = _unpack(page)
        page[position & _LOW] = 1
        self._changed.add(number)

    def add_all(self, positions: Sequence[int]) -> None:
        """Add each of the *positions*, which lie near one another, in any order."""
        floor = self.floor
        last = -1
        page: bytearray | bytes | None = None
        for position in positions:
            if position < floor:
                continue
            number = position >> _SHIFT
            if number != last:
                last = number
                self._changed.add(number)
                page = self._pages.get(number)
                if page is None and not self._end_of_run(number):
                    page = self._pages[number] = bytearray(PAGE)
                elif page:
                    page = self._pages[number] = _unpack(page)
            if isinstance(page, bytearray):
                page[position & _LOW] = 1
        self._raise(floor)

    def missing(self, start: int, end: int) -> Ranges:
        """The parts of ``start <= position < end`` that are not in the set, in order."""
        start = max(start, self.floor)
        found: Ranges = []
        if not (self._pages or self.runs):
            return [(start, end)] if start < end else found
        while start < end:
            number = start >> _SHIFT
            base = number << _SHIFT
            stop = min(end, base + PAGE)
            page = self._pages.get(number)
            if page is None and (behind := self._end_of_run(number)):
                stop = behind << _SHIFT
            elif page is None:
                join(found, start, stop)
            elif isinstance(page, bytearray):
                for absent in _ABSENT.finditer(page, start - base, stop - base):
                    join(found, base + absent.start(), base + absent.end())
            else:
                for low, high in within(_missing_of(page), start - base, stop - base):
                    join(found, base + low, base + high)
            start = stop
        return found

    def count_missing(self, start: int, end: int) -> int:
        """How many of ``start <= position < end`` are not in the set; faster than :meth:`missing`."""
        start = max(start, self.floor)
        if not (self._pages or self.runs):
            return max(0, end - start)
        count = 0
        while start < end:
            number = start >> _SHIFT
            base = number << _SHIFT
            stop = min(end, base + PAGE)
            page = self._pages.get(number)
            if page is None and (behind := self._end_of_run(number)):
                stop = behind << _SHIFT
            elif page is None:
                count += stop - start
            elif isinstance(page, bytearray):
                count += page.count(0, start - base, stop - base)
            elif stop - start == PAGE:
                numbers = array("H", page)
                count += sum(numbers[1::2]) - sum(numbers[0::2])
            else:
                count += size_of(within(_missing_of(page), start - base, stop - base))
            start = stop
        return count

    def solid(self, position: int) -> int:
        """The first position from *position* on that a quick check does not find in the set."""
        if position < self.floor:
            return self.floor
        behind = self._end_of_run(position >> _SHIFT)
        return behind << _SHIFT if behind else position

    def column(self, start: int, end: int) -> bytes:
        """A byte for each of ``start <= position < end``, which lie in one page: 1 if it is in the set."""
        number = start >> _SHIFT
        base = number << _SHIFT
        page = self._pages.get(number)
        if page is None:
            page = _FULL if self._end_of_run(number) else _EMPTY
        elif not isinstance(page, bytearray):
            page = _unpack(page)
        low = min(max(start, self.floor), end)
        return _FULL[: low - start] + bytes(page[low - base : end - base])

    def copy(self) -> "RangeSet":
        other = RangeSet(self.floor)
        other._pages = {
            number: page if isinstance(page, bytes) else page[:] for number, page in self._pages.items()
        }
        other.runs = self.runs.copy()
        return other

    # --- as it is stored in a file ---

    def take_changed(self) -> set[int]:
        """The pages that something was added to since the last call."""
        changed, self._changed = self._changed, set()
        pages = self._pages
        for number in changed:
            if pages.get(number) == _FULL:
                pages[number] = _PACKED_FULL
        for number in self._unpacked - changed:
            pages[number] = _pack(pages[number])
        self._unpacked = {number for number in changed if isinstance(pages.get(number), bytearray)}
        return changed

    def pages(self) -> set[int]:
        """The numbers of all pages above the floor."""
        return set(self._pages)

    def page(self, number: int) -> bytes:
        """The bits of one of :meth:`pages`, the lowest position first; empty when all are set."""
        page = self._pages[number]
        if page == _PACKED_FULL:
            return b""
        return int(_unpack(page).translate(_TO_DIGITS), 2).to_bytes(PAGE_BYTES, "big")

    def set_page(self, number: int, bits: bytes) -> None:
        """Set a page to the result of :meth:`page`."""
        if len(bits) not in (0, PAGE_BYTES):
            raise ValueError(f"a page of {len(bits)} bytes")
        digits = f"{int.from_bytes(bits, 'big'):0{PAGE}b}".encode()
        self._pages[number] = _pack(bytearray(digits.translate(_FROM_DIGITS))) if bits else _PACKED_FULL

    def add_run(self, first: int, end: int) -> None:
        """Add the whole pages ``first <= number < end``."""
        for number in [one for one in self._pages if first <= one < end]:
            self._drop(number)
        self.runs = merged([*self.runs, (first, end)])

    def raise_floor(self, floor: int) -> None:
        """Raise the floor to *floor*, and further over the pages above it up to the first hole."""
        self._raise(max(floor, self.floor))

    # --- inside ---

    def _fill(self, number: int, low: int, high: int) -> None:
        page = self._pages.get(number)
        if not isinstance(page, bytearray):
            if page == _PACKED_FULL or (page is None and self._end_of_run(number)):
                return
            page = self._pages[number] = bytearray(PAGE) if page is None else _unpack(page)
        self._changed.add(number)
        page[low:high] = _FULL[: high - low]
        if high == PAGE and page == _FULL:
            self._pages[number] = _PACKED_FULL

    def _raise(self, floor: int) -> None:
        pages = self._pages
        if pages or self.runs:
            number = floor >> _SHIFT
            if number != self.floor >> _SHIFT:
                for passed in [one for one in pages if one < number]:
                    self._drop(passed)
            while True:
                page = pages.get(number)
                if page and not isinstance(page, bytearray):
                    # The floor goes through it, position by position.
                    page = pages[number] = _unpack(page)
                    self._unpacked.add(number)
                if page is None:
                    behind = self._end_of_run(number)
                    if not behind:
                        break
                    number, floor = behind, behind << _SHIFT
                    continue
                if isinstance(page, bytearray):
                    absent = page.find(0, floor & _LOW)
                    floor = (number << _SHIFT) + (PAGE if absent < 0 else absent)
                else:
                    floor = (number + 1) << _SHIFT
                if floor >> _SHIFT == number:
                    break
                self._drop(number)
                number = floor >> _SHIFT
            self.runs = [run for run in self.runs if run[1] > number]
        self.floor = floor

    def _end_of_run(self, number: int) -> int:
        """The page behind the run in which this one lies; 0 when it lies in none."""
        if not self.runs:
            return 0
        at = bisect_right(self.runs, (number, _BEHIND_ALL)) - 1
        return self.runs[at][1] if at >= 0 and self.runs[at][1] > number else 0

    def _drop(self, number: int) -> None:
        del self._pages[number]
        self._changed.discard(number)
        self._unpacked.discard(number)


def _pack(page: bytearray | bytes) -> bytearray | bytes:
    """A page as the start and end of each range of missing positions, in 16 bits each; not of very many."""
    if not isinstance(page, bytearray):
        return page
    missing = array("H")
    for absent in _ABSENT.finditer(page):
        missing.extend(absent.span())
        if len(missing) > 2 * _MAX_PACKED_RANGES:
            return page
    return missing.tobytes()


def _missing_of(packed: bytes) -> Ranges:
    """The ranges of positions that a packed page lacks."""
    numbers = array("H", packed)
    return list(zip(numbers[0::2], numbers[1::2], strict=True))


def _unpack(page: bytearray | bytes) -> bytearray:
    """A page with a byte for each position."""
    if isinstance(page, bytearray):
        return page
    unpacked = bytearray(_FULL)
    for start, end in _missing_of(page):
        if end - start == 1:
            unpacked[start] = 0
        else:
            unpacked[start:end] = _EMPTY[: end - start]
    return unpacked


def join(ranges: Ranges, start: int, end: int) -> None:
    """Append a range to sorted *ranges*, joined with the last one if they touch."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((start, end))
