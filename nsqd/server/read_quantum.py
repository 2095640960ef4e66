"""How many of a client's bytes are processed before other clients are served. Pure.

A read brings up to 256 KiB, which may be ten thousand commands; applying them takes tens of milliseconds. The
first commands of a client show how long they take, and the rest is cut into portions that take at most
`LONG_NS`.
"""

from typing import Final

# How long a portion should take at most.
LONG_NS: Final = 2_000_000
MIN_BYTES: Final = 4 << 10
# The first portion of a client, in bytes, before anything is known of its commands.
FIRST: Final = 64 << 10
# From this size on, a portion is everything that was read.
MAX_BYTES: Final = 256 << 10


class ReadQuantum:
    """The bytes of one client that were read and not processed yet, and the size of the next portion."""

    __slots__ = ("_at", "_data", "_size", "watched", "whole")

    def __init__(self) -> None:
        # Empty once all of it was taken.
        self._data = b""
        self._at = 0
        self._size = FIRST
        # A portion took long by the steady clock, because of the client or because other processes had the
        # processor. To tell which, the next portions are measured in processor time, which costs 1 us to ask.
        self.watched = False
        # A smaller read is one portion, and `took` is only called for it if it took long.
        self.whole = FIRST

    def __bool__(self) -> bool:
        """Whether any bytes are left."""
        return bool(self._data)

    def add(self, data: bytes) -> None:
        """Add *data* behind the bytes that are left."""
        self._data = self._data[self._at :] + data if self._data else data
        self._at = 0

    def take(self) -> bytes:
        """The next portion."""
        data, start = self._data, self._at
        if not start and (len(data) <= self._size or self._size >= MAX_BYTES):
            # In compiled code a slice of the whole would be a copy.
            self._data = b""
            return data
        if self._size >= MAX_BYTES:
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
        """Choose the size of the next portion: one of *size* bytes took *ns* nanoseconds.

        *ns* is processor time while `watched`, otherwise time of the steady clock.
        """
        if ns > LONG_NS:
            if self.watched:
                self._size = max(MIN_BYTES, min(self._size, size * LONG_NS // ns))
            self.watched = True
        elif ns < LONG_NS // 2:
            self.watched = False
            if size >= self._size:
                self._size = min(MAX_BYTES, 2 * self._size)
        self.whole = 0 if self.watched else self._size
