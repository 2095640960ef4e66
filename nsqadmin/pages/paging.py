"""A page of a long list, and its place in the list; PURE."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, overload

T = TypeVar("T")

# About what a reader takes in. A page of this size is made and changed in a few milliseconds.
PAGE_SIZE: Final = 50


class Made(Sequence[T]):
    """A sequence whose items are made from other items when they are accessed."""

    def __init__(self, of: Sequence[Any], make: Callable[[Any], T]) -> None:
        self._of = of
        self._make = make

    def __len__(self) -> int:
        return len(self._of)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self._make(one) for one in self._of[at]]
        return self._make(self._of[at])


@dataclass(frozen=True, slots=True)
class PageWindow(Generic[T]):
    """``items`` are those from number ``first`` to ``last`` of ``total``; page numbers begin at 1."""

    items: Sequence[T]
    total: int
    number: int = 1
    size: int = PAGE_SIZE

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.total, self.number * self.size)


def page_number(wanted: str, total: int, size: int = PAGE_SIZE) -> int:
    """Read a page number; an invalid one gives the first page, one that is too large the last."""
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 9 else 1
    return max(1, min(number, -(-total // size)))


def window(rows: Sequence[T], wanted: str, size: int = PAGE_SIZE) -> PageWindow[T]:
    """Return the *wanted* page of *rows*."""
    number = page_number(wanted, len(rows), size)
    return PageWindow(rows[(number - 1) * size : number * size], len(rows), number, size)
