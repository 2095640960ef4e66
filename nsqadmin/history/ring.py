"""The file of the history: an hour at five seconds and a day at a minute, always in 64 MiB.

It holds a header page, a table of names (a name has a place while it is among the busiest), a ring of
events, and two rings of rows. A row is one moment: its number, and a point for every place. So a moment is
written in one part, and the number of a row tells whether it was written.
"""

import fcntl
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, Self

from nsqadmin.stats.points import SIZE, UNKNOWN, Point, average

FILE_SIZE: Final = 64 * 1024 * 1024
_MAGIC: Final = b"NSQADMIN HISTORY 1\n"
_PAGE: Final = 4096

SLOTS: Final = 2256
# Room for a topic and a channel with the longest names, including ``#ephemeral``.
_NAME: Final = struct.Struct("<QH166s")
EVENTS: Final = 1024
_EVENT: Final = struct.Struct("<dH246s")
_NUMBER: Final = struct.Struct("<Q")
_ROW: Final = _NUMBER.size + SLOTS * SIZE

# A row in which nothing is known of any place.
_BLANK: Final = b"\xff" * _ROW

_NAMES_AT: Final = _PAGE
_EVENTS_AT: Final = _NAMES_AT + SLOTS * _NAME.size
_ROWS_AT: Final = _EVENTS_AT + EVENTS * _EVENT.size

# A kind, and the names of the object.
Name = tuple[str, ...]
TOTALS: Final[Name] = ("totals",)


@dataclass(frozen=True, slots=True)
class Ring:
    """One of the two rings of rows: a row stands for ``every_s`` seconds."""

    every_s: int
    rows: int
    at: int

    def slot_offset(self, number: int) -> int:
        return self.at + number % self.rows * _ROW


HOUR: Final = Ring(5, 720, _ROWS_AT)
DAY: Final = Ring(60, 1440, _ROWS_AT + HOUR.rows * _ROW)
_PER_DAY_ROW: Final = DAY.every_s // HOUR.every_s


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """An event that a chart marks: *kind* is a word, *name* is the object of the event."""

    at_s: float
    kind: str
    text: str
    name: Name = ()


class HistoryFileError(Exception):
    """Why a file cannot be used; the text is a sentence."""


class HistoryFile:
    """The mapped file. The caller must not let reads and writes overlap."""

    def __init__(self, path: str = "") -> None:
        """Without *path* the file is temporary and has no name. Raises HistoryFileError or OSError."""
        self._file: Any = tempfile.TemporaryFile() if not path else _opened(path)  # noqa: SIM115 - it lives as long as we do
        self.was_damaged = _prepare(self._file, path)
        self._map = mmap.mmap(self._file.fileno(), FILE_SIZE)
        # A chart reads a few bytes of each row, so reading ahead is of no use.
        with suppress(ValueError, OSError, AttributeError):
            self._map.madvise(mmap.MADV_RANDOM)
        # The places of names, and since which row each place belongs to its name.
        self._slots: dict[Name, int] = {}
        self._since: list[int] = [0] * SLOTS
        for place in range(SLOTS):
            since, length, text = _NAME.unpack_from(self._map, _NAMES_AT + place * _NAME.size)
            self._since[place] = since
            if 0 < length <= len(text):
                self._slots[tuple(text[:length].decode("utf-8", "replace").split("\0"))] = place
        numbers = [_NUMBER.unpack_from(self._map, HOUR.at + row * _ROW)[0] for row in range(HOUR.rows)]
        # The row that was written last.
        self._last = max(numbers)

    def close(self) -> None:
        self._map.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def written_s(self) -> float:
        """The time of the row that was written last."""
        return float(self._last * HOUR.every_s)

    # -- writing --------------------------------------------------------------------

    @property
    def names(self) -> Mapping[Name, int]:
        """The names that have a place."""
        return self._slots

    def allocate(self, names: Iterable[Name], now_s: float) -> None:
        """Give free places to *names* as long as there are any; earlier rows of a place belong to others."""
        taken = set(self._slots.values())
        free = iter([number for number in range(SLOTS) if number not in taken])
        # The row of this moment may be there already, and later ones if the clock was set back.
        since = max(int(now_s // HOUR.every_s), self._last + 1)
        for name in names:
            text = "\0".join(name).encode()
            if name in self._slots or len(text) > 166:
                continue
            place = next(free, None)
            if place is None:
                break
            _NAME.pack_into(self._map, _NAMES_AT + place * _NAME.size, since, len(text), text)
            self._slots[name] = place
            self._since[place] = since

    def release(self, name: Name) -> None:
        """Take the place of *name* away."""
        place = self._slots.pop(name, None)
        if place is not None:
            _NAME.pack_into(self._map, _NAMES_AT + place * _NAME.size, 0, 0, b"")

    def write(self, now_s: float, points: Mapping[Name, Point]) -> bool:
        """Write the row of this moment; tell whether it was time for one.

        If the clock was set back, nothing is written until it has caught up. If that takes more than an hour,
        the history starts again.
        """
        number = int(now_s // HOUR.every_s)
        if number <= self._last and self._last - number < HOUR.rows:
            return False
        if number < self._last:
            self._clear()
        row = bytearray(_BLANK)
        for name, point in points.items():
            place = self._slots.get(name)
            if place is not None:
                at = _NUMBER.size + place * SIZE
                row[at : at + SIZE] = point.pack()
        _NUMBER.pack_into(row, 0, number)
        at = HOUR.slot_offset(number)
        self._map[at : at + _ROW] = row
        minute = self._last // _PER_DAY_ROW
        if self._last and number // _PER_DAY_ROW > minute:
            self._write_minute(minute)
            # Mapped pages need not stay in our memory; the system keeps those that it has room for.
            with suppress(ValueError, OSError, AttributeError):
                self._map.madvise(mmap.MADV_DONTNEED)
        self._last = number
        return True

    def _write_minute(self, minute: int) -> None:
        row = bytearray(_BLANK)
        _NUMBER.pack_into(row, 0, minute)
        numbers = range(minute * _PER_DAY_ROW, (minute + 1) * _PER_DAY_ROW)
        for place in self._slots.values():
            points = [point for _, point in self._of(place, HOUR, numbers)]
            if points:
                at = _NUMBER.size + place * SIZE
                row[at : at + SIZE] = average(points).pack()
        at = DAY.slot_offset(minute)
        self._map[at : at + _ROW] = row

    def _clear(self) -> None:
        """Forget all rows; names keep their places."""
        for ring in (HOUR, DAY):
            for row in range(ring.rows):
                _NUMBER.pack_into(self._map, ring.at + row * _ROW, 0)
        for place in range(SLOTS):
            self._since[place] = 0
            _NUMBER.pack_into(self._map, _NAMES_AT + place * _NAME.size, 0)
        self._last = 0

    def note(self, event: HistoryEvent) -> None:
        """Write an event in place of the oldest one."""
        text = "\0".join((event.kind, event.text, *event.name)).encode("utf-8", "replace")[:246]
        oldest = min(
            range(EVENTS),
            key=lambda number: _EVENT.unpack_from(self._map, _EVENTS_AT + number * _EVENT.size)[0],
        )
        _EVENT.pack_into(self._map, _EVENTS_AT + oldest * _EVENT.size, event.at_s, len(text), text)

    # -- reading --------------------------------------------------------------------

    def read(self, name: Name, ring: Ring, now_s: float) -> list[tuple[float, Point]]:
        """Return the known moments of *name*, oldest first, each with its time."""
        place = self._slots.get(name)
        if place is None:
            return []
        newest = int(now_s // ring.every_s)
        numbers = range(newest - ring.rows + 1, newest + 1)
        return [
            (number * float(ring.every_s), point)
            for number, point in self._of(place, ring, numbers)
            if point != UNKNOWN
        ]

    def _of(self, place: int, ring: Ring, numbers: Iterable[int]) -> Iterator[tuple[int, Point]]:
        since = self._since[place] * HOUR.every_s / ring.every_s
        within = _NUMBER.size + place * SIZE
        for number in numbers:
            at = ring.slot_offset(number)
            if number < since or _NUMBER.unpack_from(self._map, at)[0] != number:
                continue
            body = self._map[at + within : at + within + SIZE]
            yield number, Point.unpack(body)

    def events(self, since_s: float, until_s: float = inf) -> list[HistoryEvent]:
        """Return the events from *since_s* to *until_s*, oldest first."""
        found = []
        for number in range(EVENTS):
            at_s, length, text = _EVENT.unpack_from(self._map, _EVENTS_AT + number * _EVENT.size)
            if since_s <= at_s <= until_s and 0 < length <= len(text):
                kind, sentence, *name = (text[:length].decode("utf-8", "replace") + "\0").split("\0")[:-1]
                found.append(HistoryEvent(at_s, kind, sentence, tuple(name)))
        return sorted(found, key=lambda event: event.at_s)


def _opened(path: str) -> Any:
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640), "r+b")
    except OSError as error:
        raise HistoryFileError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise HistoryFileError(f"{path} is in use by another nsqadmin") from error
    return file


def _prepare(file: Any, path: str) -> bool:
    """Make *file* an empty history if it is none; return whether it saved other content aside."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    found = file.read(len(_MAGIC)) if size else b""
    damaged = bool(size) and (size != FILE_SIZE or found != _MAGIC)
    if damaged:
        file.seek(0)
        aside = Path(f"{path}.unreadable")
        with aside.open("wb") as kept:
            while piece := file.read(1 << 20):
                kept.write(piece)
        file.truncate(0)
    if damaged or not size:
        file.truncate(FILE_SIZE)
        file.seek(0)
        file.write(_MAGIC)
        file.flush()
    return damaged
