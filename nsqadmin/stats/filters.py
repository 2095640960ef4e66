"""The filter language of the lists, ``state:stuck depth:>1000 pay*``: all words must match; PURE.

A bare word is searched in the names of a row; with ``*``, which stands for anything, it must match a whole
name. ``key:word`` searches a column, ``key:>n`` compares a number (``1k``, ``2m``, ``5min``); a word after
``-`` must not match.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")

# The value of a column in a row: a number, a text, several texts, or None if unknown.
Value = float | str | Sequence[str] | None

_NUMBER: Final = re.compile(r"(>=|<=|>|<|=)?\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
_UNITS: Final = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": lambda have, want: have > want,
    ">=": lambda have, want: have >= want,
    "<": lambda have, want: have < want,
    "<=": lambda have, want: have <= want,
    "=": lambda have, want: have == want,
}
# A filter has at most so many words.
_MAX_WORDS: Final = 20


class FilterError(ValueError):
    """A filter that cannot be understood; the text is a sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class RowFilter(Generic[Row]):
    """Tells which rows match."""

    tests: tuple[Callable[[Row], bool], ...]

    def matches(self, row: Row) -> bool:
        return all(test(row) for test in self.tests)


def parse_filter(
    text: str, columns: Mapping[str, Callable[[Row], Value]], names: Callable[[Row], Sequence[str]]
) -> RowFilter[Row]:
    """Parse *text*; *columns* are found by key, *names* give texts for bare words. Raises FilterError."""
    words = text.split()
    if len(words) > _MAX_WORDS:
        raise FilterError(f"A filter has at most {_MAX_WORDS} words.")
    return RowFilter(tuple(_test(word, columns, names) for word in words))


def _test(
    word: str, columns: Mapping[str, Callable[[Row], Value]], names: Callable[[Row], Sequence[str]]
) -> Callable[[Row], bool]:
    if word.startswith("-") and len(word) > 1:
        inner = _test(word[1:], columns, names)
        return lambda row: not inner(row)
    key, colon, wanted = word.partition(":")
    if not colon:
        fits = _fits(word)
        return lambda row: any(fits(name) for name in names(row))
    if not wanted:
        raise FilterError(f"What is {key}: to be? Write for example {key}:>10 or {key}:word.")
    value = columns.get(key.lower())
    if value is None:
        raise FilterError(f"There is no column {key}. There are {', '.join(sorted(columns))}.")
    figure = _NUMBER.fullmatch(wanted.lower())
    fits = _fits(wanted)
    if figure is None and wanted[0] in "<>=":
        raise FilterError(f"{wanted} is no figure to compare with.")
    compare, limit = _COMPARE["="], 0.0
    if figure is not None:
        sign, number, unit = figure.groups()
        if unit not in _UNITS:
            raise FilterError(f"{unit} is no unit. There are {', '.join(filter(None, _UNITS))}.")
        compare, limit = _COMPARE[sign or "="], float(number) * _UNITS[unit]

    def holds(row: Row) -> bool:
        have = value(row)
        if have is None:
            return False
        if isinstance(have, str):
            return fits(have)
        if isinstance(have, (int, float)):
            return figure is not None and compare(have, limit)
        return any(fits(one) for one in have)

    return holds


def _fits(wanted: str) -> Callable[[str], bool]:
    small = wanted.lower()
    if "*" in small or "?" in small:
        return lambda name: fnmatchcase(name.lower(), small) or fnmatchcase(_joined(name), small)
    return lambda name: small in name.lower() or small in _joined(name)


def _joined(text: str) -> str:
    # In a filter a badge of two words has a hyphen: no-consumers.
    return text.lower().replace(" ", "-")
