"""The filter language of the lists, ``state:stuck depth:>1000 pay*``: words that all have to hold; PURE.

A bare word is looked for in the names of a row; ``*`` stands for anything, and then a whole name has to fit.
``key:word`` looks into a column, ``key:>n`` compares a figure (``1k``, ``2m``, ``5min``); ``-`` before a word
means that it must not hold.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")

# What a column holds for a row: a figure, a text, several texts, or nothing that is known.
Value = float | str | Sequence[str] | None

_FIGURE: Final = re.compile(r"(>=|<=|>|<|=)?\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
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
# More is no filter any more.
_MOST_WORDS: Final = 20


class FilterProblem(ValueError):
    """A filter that cannot be understood; the text is a sentence for its reader."""


@dataclass(frozen=True, slots=True)
class RowFilter(Generic[Row]):
    """Tells which rows are wanted."""

    tests: tuple[Callable[[Row], bool], ...]

    def matches(self, row: Row) -> bool:
        return all(test(row) for test in self.tests)


def parse_filter(
    text: str, columns: Mapping[str, Callable[[Row], Value]], names: Callable[[Row], Sequence[str]]
) -> RowFilter[Row]:
    """Read *text*; *columns* can be asked for by key, *names* are what a bare word is looked for in."""
    words = text.split()
    if len(words) > _MOST_WORDS:
        raise FilterProblem(f"A filter has at most {_MOST_WORDS} words.")
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
        raise FilterProblem(f"What is {key}: to be? Write for example {key}:>10 or {key}:word.")
    value = columns.get(key.lower())
    if value is None:
        raise FilterProblem(f"There is no column {key}. There are {', '.join(sorted(columns))}.")
    figure = _FIGURE.fullmatch(wanted.lower())
    fits = _fits(wanted)
    if figure is None and wanted[0] in "<>=":
        raise FilterProblem(f"{wanted} is no figure to compare with.")
    compare, limit = _COMPARE["="], 0.0
    if figure is not None:
        sign, number, unit = figure.groups()
        if unit not in _UNITS:
            raise FilterProblem(f"{unit} is no unit. There are {', '.join(filter(None, _UNITS))}.")
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
    # A mark of two words is written as one in a filter: no-answer.
    return text.lower().replace(" ", "-")
