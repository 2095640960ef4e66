"""A long message received into its final place, so that its bytes are not copied before they are written."""

import struct
from io import BytesIO
from typing import Final

from nsqd.log.frames import FRAME_OVERHEAD

_INT32: Final = struct.Struct(">i")
# Shorter bodies are read together with other commands: that saves more than the copies cost.
MIN_BODY: Final = 32 << 10
# A body of which less is missing is not worth a change of how the connection is read.
_MIN_MISSING: Final = 8 << 10
# Memory is taken for a body of which at least this share has arrived: unknown clients must send the bytes
# they occupy.
_MIN_PART: Final = 8
# How the body of an MPUB of one message begins: the count, before the size of the message.
ONE: Final = b"\0\0\0\1"
# How many bytes of its body an MPUB of one message has before the message.
ONE_OVERHEAD: Final = 8


class LongBody:
    """The message of a PUB, or of an MPUB of one message, while it is received."""

    __slots__ = ("_at", "_frame", "_view", "command", "line")

    def __init__(self, line: bytes, command: bytes, size: int, begun: list[bytes]) -> None:
        """*command* is the command before its message of *size* bytes, which begins with *begun*."""
        self.line = line
        self.command = command
        # What BytesIO is given becomes its buffer, and in the end its value, without a copy.
        self._frame = BytesIO(bytes(FRAME_OVERHEAD + size))
        self._view = self._frame.getbuffer()
        self._at = FRAME_OVERHEAD
        for piece in begun:
            end = self._at + len(piece)
            self._view[self._at : end] = piece
            self._at = end

    def __repr__(self) -> str:
        return f"<LongBody {self.line!r} {self.missing} of {self.size} bytes missing>"

    @property
    def size(self) -> int:
        """The size of the message in bytes."""
        return len(self._view) - FRAME_OVERHEAD

    @property
    def missing(self) -> int:
        """How many bytes have not arrived."""
        return len(self._view) - self._at

    def room(self) -> memoryview:
        """Where the missing bytes belong."""
        return self._view[self._at :]

    def received(self, count: int) -> None:
        """Note that *count* bytes were put into :meth:`room`."""
        self._at += count

    def frame(self) -> BytesIO:
        """The message behind room for the head of its frame."""
        return self._frame

    def arrived(self) -> bytes:
        """The command as far as it has arrived."""
        return b"".join((self.command, self._view[FRAME_OVERHEAD : self._at]))


def begun_body(pieces: list[bytes], max_size: int, *, trusted: bool) -> LongBody | None:
    """The long message that an incomplete command in *pieces* publishes; None if it publishes none.

    *max_size* is the largest size of a message. The client of a *trusted* connection has sent such a message
    before.
    """
    data = pieces[0]
    newline = data.find(b"\n")
    start = _start(data, newline + 1)
    if not start:
        return None
    size = int(_INT32.unpack_from(data, start - 4)[0])
    have = sum(map(len, pieces)) - start
    if not MIN_BODY <= size <= max_size or size - have < _MIN_MISSING:
        return None
    if not trusted and have * _MIN_PART < size:
        return None
    return LongBody(data[:newline], data[:start], size, [data[start:], *pieces[1:]])


def _start(data: bytes, pos: int) -> int:
    """Where the one message of a command begins, whose line ends at *pos*; 0 if that is not known."""
    if data.startswith(b"PUB "):
        return pos + 4 if pos and len(data) >= pos + 4 else 0
    start = pos + 4 + ONE_OVERHEAD
    if not (pos and data.startswith(b"MPUB ") and data.startswith(ONE, pos + 4) and len(data) >= start):
        return 0
    length = int(_INT32.unpack_from(data, start - 4)[0])
    return start if _INT32.unpack_from(data, pos)[0] == length + ONE_OVERHEAD else 0
