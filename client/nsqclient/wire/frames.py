"""The frames that nsqd sends: ``uint32 size | uint32 type | data``; size counts type and data."""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from nsqclient.wire.errors import E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED, ProtocolError
from nsqclient.wire.message import FRAME_OVERHEAD, MESSAGE_HEADER

FRAME_RESPONSE: Final = 0
FRAME_ERROR: Final = 1
FRAME_MESSAGE: Final = 2

HEARTBEAT: Final = b"_heartbeat_"
OK: Final = b"OK"
CLOSE_WAIT: Final = b"CLOSE_WAIT"

# The first bytes of a peer that is no nsqd can be any size; waiting for gigabytes would look like a hang.
# This limit is far above every max-msg-size in use (the default is 1 MiB).
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024

_HEADER: Final = Struct(">II")
_HEADER_SIZE: Final = 8
_SMALLEST_MESSAGE: Final = FRAME_OVERHEAD - 4  # in the size field

# The three errors after which nsqd keeps the connection.
_NON_FATAL: Final = frozenset({E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED})


class FrameError(ValueError):
    """The bytes received cannot be frames of nsqd."""


def encode_frame(frame_type: int, data: bytes) -> bytes:
    """One frame as bytes."""
    return _HEADER.pack(len(data) + 4, frame_type) + data


OK_FRAME: Final = encode_frame(FRAME_RESPONSE, OK)


def decode_error(data: bytes) -> ProtocolError:
    """The error in the data of an error frame."""
    code, _, text = data.decode("utf-8", "surrogateescape").partition(" ")
    return ProtocolError(code, text, fatal=code not in _NON_FATAL)


class FrameParser:
    """Turns the received bytes of one connection into frames, for reads of any size.

    *message* makes a message of its time, attempts, id, body, *source* and the time of the read. Without it
    a message frame is returned like any other. A read holds thousands of messages or OKs, so no other objects
    are made for them.
    """

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        message: Callable[[int, int, bytes, bytes, Any, float], object] | None = None,
        source: object = None,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._message = message
        self._source = source
        self._pieces: list[bytes] = []  # of an incomplete frame
        self._buffered = 0  # bytes in chunks
        self._wanted = _HEADER_SIZE  # bytes needed before parsing can continue

    def feed(self, data: bytes, *, single: bool = False) -> list[tuple[int, bytes]]:
        """Take received bytes and return the frames that they complete, as type and data, in order.

        With *single* only the first is returned. The bytes behind it are not parsed before the next call,
        because those behind an answer may be compressed.
        """
        frames: list[tuple[int, bytes]] = []
        if (joined := self._join(data)) is not None:
            self._parse(joined, 0, 0, [], frames, single=single)
        return frames

    def feed_run(self, data: bytes, now: float, messages: list[Any], others: list[tuple[int, bytes]]) -> int:
        """Append the frames that *data* completes to *messages* and *others*; return how many OKs precede.

        Raises FrameError when the bytes cannot be frames; the frames before them have been appended.
        """
        if self._buffered:
            joined = self._join(data)
            if joined is None:
                return 0
            data = joined
        oks = 0
        if data.startswith(OK_FRAME):
            oks = _leading_oks(data)
            if oks * len(OK_FRAME) == len(data):
                return oks
        self._parse(data, oks * len(OK_FRAME), now, messages, others)
        return oks

    def add(self, data: bytes) -> None:
        """Store *data* for the next call."""
        if data:
            self._pieces.append(data)
            self._buffered += len(data)

    def rest(self) -> bytes:
        """Remove and return the received bytes that were not parsed."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        self._wanted = _HEADER_SIZE
        return rest

    def _join(self, data: bytes) -> bytes | None:
        """The bytes to parse; None while a frame is not whole."""
        if not self._buffered:
            return data
        # A large frame arrives in many chunks; joining at each of them would copy it repeatedly.
        self.add(data)
        return self.rest() if self._buffered >= self._wanted else None

    def _parse(
        self,
        data: bytes,
        at: int,
        now: float,
        messages: list[Any],
        others: list[tuple[int, bytes]],
        *,
        single: bool = False,
    ) -> None:
        end = len(data)
        header, message_header = _HEADER.unpack_from, MESSAGE_HEADER.unpack_from
        limit, source = self._max_frame_bytes, self._source
        make: Any = self._message
        made = FRAME_MESSAGE if make is not None else None  # the type of the frames that become messages
        while end - at >= _HEADER_SIZE:
            size, frame_type = header(data, at)
            if not 4 <= size <= limit:
                raise FrameError(f"frame of {size} bytes is out of range 4-{limit}")
            following = at + 4 + size
            if following > end:
                self._wanted = 4 + size
                break
            if frame_type == made:
                if size < _SMALLEST_MESSAGE:
                    raise FrameError(f"message frame of {size} bytes is shorter than its header")
                timestamp_ns, attempts, message_id = message_header(data, at + 8)
                body = data[at + FRAME_OVERHEAD : following]
                messages.append(make(timestamp_ns, attempts, message_id, body, source, now))
                at = following
            else:
                others.append((frame_type, data[at + 8 : following]))
                at = following
                if single:
                    break
        self.add(data[at:])


def _leading_oks(data: bytes) -> int:
    """How many OK frames *data* begins with."""
    whole = len(data) // len(OK_FRAME)
    if data.startswith(OK_FRAME * whole):
        return whole
    count = 1
    while data.startswith(OK_FRAME, count * len(OK_FRAME)):
        count += 1
    return count
