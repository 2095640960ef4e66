"""A page of a long list, and its place in the list; PURE."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# About what a reader takes in. A page of this size is made and changed in a few milliseconds.
PAGE_SIZE: Final = 50


@dataclass(frozen=True, slots=True)
class PageWindow(Generic[T]):
    """``items`` are those from number ``first`` to ``last`` of ``total``; page numbers begin at 1."""

    items: Sequence[T]
    total: int
    number: int = 1

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE_SIZE))

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.total, self.number * PAGE_SIZE)


def window(rows: Sequence[T], wanted: str) -> PageWindow[T]:
    """Return the *wanted* page of *rows*: the first if the number is invalid, the last if it is too large."""
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 9 else 1
    number = max(1, min(number, -(-len(rows) // PAGE_SIZE)))
    return PageWindow(rows[(number - 1) * PAGE_SIZE : number * PAGE_SIZE], len(rows), number)
