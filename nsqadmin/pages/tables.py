"""Long lists: the rows and columns that a reader wants, their order, and the same as CSV; PURE."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from nsqadmin.stats.filters import FilterError, RowFilter, Value, parse_filter

Row = TypeVar("Row")

# Spreadsheets treat a cell that begins with one of these as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: *kind* says how its values are shown: text, count, rate, seconds and others."""

    key: str
    label: str
    value: Callable[[Row], Value]
    kind: str = "count"
    hint: str = ""
    # Also shown on a narrow screen.
    keep: bool = False
    # Shown until a reader chooses columns.
    usual: bool = True

    @property
    def is_number(self) -> bool:
        return self.kind != "text"


class Table(Generic[Row]):
    """The reader's choices for one list, as given by the arguments of the address."""

    def __init__(
        self,
        every: Sequence[Column[Row]],
        query: Mapping[str, str],
        names: Callable[[Row], Sequence[str]],
        *,
        prefix: str = "",
        sort: str = "name",
        descending: bool = False,
    ) -> None:
        """*prefix* distinguishes the arguments of several lists on one page; *sort* is the usual order."""
        self.prefix = prefix
        self.every = every
        self.filter = query.get(f"{prefix}q", "").strip()
        keys = {column.key: column for column in every}
        asked = query.get(f"{prefix}sort", "")
        self.sort = asked if asked in keys else sort
        given = query.get(f"{prefix}dir")
        self.descending = given == "desc" if given or asked in keys else descending
        self.columns = [column for column in every if column.usual or column.key == "name"]
        chosen = _chosen(query, prefix, keys)
        if chosen is not None:
            self.columns = [column for column in every if column.key in chosen or column.key == "name"]
        self.problem = ""
        self._filter: RowFilter[Row] = RowFilter(())
        try:
            self._filter = parse_filter(self.filter, {column.key: column.value for column in every}, names)
        except FilterError as problem:
            self.problem = str(problem)
        self._key = keys.get(self.sort)

    @property
    def page_key(self) -> str:
        """The argument that chooses the page of this list; other rows or another order begin on the first."""
        return self.prefix.removesuffix("-") or "page"

    def apply(self, rows: Sequence[Row]) -> list[Row]:
        """Return the wanted rows in the wanted order; rows that compare equal keep their order."""
        if self.problem:
            return []
        found = [row for row in rows if self._filter.matches(row)] if self.filter else list(rows)
        column = self._key
        if column is None:
            return found
        value = column.value
        if column.is_number:
            # Unknown values come last in both directions.
            worst = float("-inf") if self.descending else float("inf")
            return sorted(
                found,
                key=lambda row: one if isinstance(one := value(row), (int, float)) else worst,
                reverse=self.descending,
            )
        return sorted(found, key=lambda row: _text(value(row)).lower(), reverse=self.descending)

    def csv(self, rows: Iterable[Row]) -> str:
        """Write *rows* with the columns that are shown."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(column.key for column in self.columns)
        for row in rows:
            writer.writerow(_cell(column.value(row)) for column in self.columns)
        return out.getvalue()


def _chosen(query: Mapping[str, str], prefix: str, keys: Mapping[str, object]) -> set[str] | None:
    """Return the columns that were ticked, or named in one argument; None without a choice."""
    named = query.get(f"{prefix}cols", "")
    if not named:
        return None
    if named == "ticked":
        return {key for key in keys if f"{prefix}col.{key}" in query}
    return set(named.split(","))


def _text(value: Value) -> str:
    if value is None:
        return ""
    return (
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, (int, float))
        else " ".join(value)
    )


def _cell(value: Value) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.10g}"
    text = _text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
