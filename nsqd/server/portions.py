"""How much of what a client has sent is worked on before others have their turn. Pure.

A read brings up to 256 KiB, which may be ten thousand commands: to apply them takes tens of milliseconds. How
long a client's commands take shows when the first have been applied; what follows is cut so that a portion
takes no longer than it should.
"""

from typing import Final

# A portion is to take so long.
LONG_NS: Final = 2_000_000
LEAST: Final = 4 << 10
# The first of a client, of which nothing is known.
FIRST: Final = 64 << 10
# From here on a portion is all there is.
MOST: Final = 256 << 10


class Portions:
    """What was read of one client and is not worked on yet, and how much of it is next."""

    __slots__ = ("_at", "_data", "_size", "watched", "whole")

    def __init__(self) -> None:
        # Nothing of it stays when all of it was taken.
        self._data = b""
        self._at = 0
        self._size = FIRST
        # A portion was long by the steady clock. Whether that was the client's or other processes had the
        # processor shows with the next ones, whose own time is measured: to ask for that costs a microsecond.
        self.watched = False
        # A read of less is one portion, and only if it takes long is there anything to learn from it.
        self.whole = FIRST

    def __bool__(self) -> bool:
        """Whether something is left."""
        return bool(self._data)

    def put(self, data: bytes) -> None:
        """Work on *data* as well, behind what is left."""
        self._data = self._data[self._at :] + data if self._data else data
        self._at = 0

    def take(self) -> bytes:
        """The next portion."""
        data, start = self._data, self._at
        if not start and (len(data) <= self._size or self._size >= MOST):
            # A slice of all would be a copy where this is compiled.
            self._data = b""
            return data
        if self._size >= MOST:
            return self.take_all()
        self._at = min(len(data), start + self._size)
        portion = data[start : self._at]
        if self._at == len(data):
            self._data, self._at = b"", 0
        return portion

    def take_all(self) -> bytes:
        """All that is left."""
        rest = self._data[self._at :] if self._at else self._data
        self._data, self._at = b"", 0
        return rest

    def took(self, size: int, ns: int) -> None:
        """A portion of *size* bytes took so long; the next is to take as it should.

        Of the processor while it is `watched`, otherwise by the steady clock.
        """
        if ns > LONG_NS:
            if self.watched:
                self._size = max(LEAST, min(self._size, size * LONG_NS // ns))
            self.watched = True
        elif ns < LONG_NS // 2:
            self.watched = False
            if size >= self._size:
                self._size = min(MOST, 2 * self._size)
        self.whole = 0 if self.watched else self._size
