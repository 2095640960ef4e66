"""Reading the parts of a command that may not have arrived yet: sizes, bodies, parameters."""

import struct
from typing import Final

from nsqclient.wire.errors import E_BAD_BODY, E_BAD_MESSAGE, ProtocolError

_INT32: Final = struct.Struct(">i")
_UINT64: Final = (1 << 64) - 1
_DIGITS: Final = 1000


class Incomplete(Exception):
    """The command needs all bytes up to position *end*; *cut* is the error if they never come."""

    def __init__(self, end: int, cut: ProtocolError | None) -> None:
        super().__init__(end)
        self.end = end
        self.cut = cut


class Suspended(Exception):
    """The server must first get a result; then the session continues at *start*."""

    def __init__(self, start: int | None) -> None:
        """With *start* None the command is applied again from its beginning."""
        super().__init__(start)
        self.start = start


def read_size(data: bytes, pos: int, cut: ProtocolError) -> int:
    """The signed size at *pos*. Raises Incomplete."""
    if pos + 4 > len(data):
        raise Incomplete(pos + 4, cut)
    return int(_INT32.unpack_from(data, pos)[0])


def read_body(word: str, data: bytes, pos: int, limit: int) -> tuple[bytes, int]:
    """The body of IDENTIFY or AUTH and where it ends. Raises ProtocolError and Incomplete."""
    size = read_size(data, pos, ProtocolError(E_BAD_BODY, f"{word} failed to read body size"))
    if size > limit:
        raise ProtocolError(E_BAD_BODY, f"{word} body too big {size} > {limit}")
    if size <= 0:
        raise ProtocolError(E_BAD_BODY, f"{word} invalid body size {size}")
    end = pos + 4 + size
    if end > len(data):
        raise Incomplete(end, ProtocolError(E_BAD_BODY, f"{word} failed to read body"))
    return data[pos + 4 : end], end


def message_end(word: str, data: bytes, pos: int, limit: int) -> int:
    """Where the message ends that has its size at *pos*. Raises ProtocolError and Incomplete."""
    size = read_size(data, pos, ProtocolError(E_BAD_MESSAGE, f"{word} failed to read message body size"))
    if size <= 0:
        raise ProtocolError(E_BAD_MESSAGE, f"{word} invalid message body size {size}")
    if size > limit:
        raise ProtocolError(E_BAD_MESSAGE, f"{word} message too big {size} > {limit}")
    end = pos + 4 + size
    if end > len(data):
        raise Incomplete(end, ProtocolError(E_BAD_MESSAGE, f"{word} failed to read message body"))
    return end


def text(raw: bytes) -> str:
    """Bytes of a peer as text for errors; every byte survives."""
    return raw.decode("utf-8", "surrogateescape")


def number(raw: bytes) -> int | None:
    """A decimal parameter: digits only; empty is 0; one that is too large wraps around as in the original."""
    if not raw:
        return 0
    if not raw.isdigit():
        return None
    value = 0
    # In chunks, because Python refuses to convert very long numbers and a line may have 16 KiB.
    for i in range(0, len(raw), _DIGITS):
        piece = raw[i : i + _DIGITS]
        value = (value * 10 ** len(piece) + int(piece)) & _UINT64
    return value
