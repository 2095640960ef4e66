"""Parses one read from nsqd in one loop: messages, runs of OK, and the few other frames. Pure.

A consumer gets thousands of messages in a read and a producer thousands of OKs. So no intermediate objects
are made: a message becomes a :class:`Message` at once, and OKs are counted.
"""

from struct import Struct
from typing import Any, Final

from nsqclient._message import Message, Source
from nsqclient.wire.frames import FRAME_MESSAGE, FRAME_RESPONSE, MAX_FRAME_BYTES, OK, FrameError, encode_frame
from nsqclient.wire.headers import parse_extended
from nsqclient.wire.message import FRAME_OVERHEAD

_HEADER: Final = Struct(">II")
_MESSAGE: Final = Struct(">qH16s")
_HEADER_SIZE: Final = 8
_BODY_AT: Final = FRAME_OVERHEAD
_SMALLEST_MESSAGE: Final = FRAME_OVERHEAD - 4  # in the size field

OK_FRAME: Final = encode_frame(FRAME_RESPONSE, OK)
_OK_SIZE: Final = len(OK_FRAME)


class Incoming:
    """Takes the bytes of one connection, however they are cut, and sorts its frames."""

    def __init__(
        self, source: Source, max_frame_bytes: int = MAX_FRAME_BYTES, *, extended: bool = False
    ) -> None:
        """*extended* messages may have headers between their id and their body."""
        self._source = source
        self._extended = extended
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []  # of a frame that is not whole yet
        self._held = 0
        self._wanted = _HEADER_SIZE  # bytes needed before parsing can go on

    def hold(self, data: bytes) -> None:
        """Keep *data* for later."""
        if data:
            self._pieces.append(data)
            self._held += len(data)

    def frame(self, data: bytes) -> tuple[int, bytes] | None:
        """Take *data*, return one frame if it is complete, and keep the rest.

        For the handshake: bytes after an answer may be compressed, so they must not be parsed.
        """
        self.hold(data)
        received = self.rest()
        end = self._end_of_frame(received)
        if end is None or end > len(received):
            self.hold(received)
            return None
        self.hold(received[end:])
        return int.from_bytes(received[4:8]), received[8:end]

    def rest(self) -> bytes:
        """Return the bytes that were received and not parsed, and forget them."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        self._wanted = _HEADER_SIZE
        return rest

    def feed(
        self, data: bytes, now: float, messages: list[Message[Any]], others: list[tuple[int, bytes]]
    ) -> int:
        """Append frames that *data* completes to *messages* and *others*; return how many OKs it starts with.

        Raises FrameError when the bytes cannot be frames; the frames before them have been appended.
        """
        if self._held:
            # A large frame arrives in many pieces; joining at each of them would copy it over and over.
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return 0
            data = self.rest()
        at = 0
        end = len(data)
        oks = 0
        if data.startswith(OK_FRAME):
            oks = _leading_oks(data)
            at = oks * _OK_SIZE
        header, message = _HEADER.unpack_from, _MESSAGE.unpack_from
        source, limit, extended = self._source, self._max_frame_bytes, self._extended
        while end - at >= _HEADER_SIZE:
            size, frame_type = header(data, at)
            if not 4 <= size <= limit:
                raise FrameError(f"frame of {size} bytes is out of range 4-{limit}")
            following = at + 4 + size
            if following > end:
                self._wanted = 4 + size
                break
            if frame_type == FRAME_MESSAGE:
                if size < _SMALLEST_MESSAGE:
                    raise FrameError(f"message frame of {size} bytes is shorter than its header")
                timestamp_ns, attempts, message_id = message(data, at + 8)
                messages.append(
                    Message(timestamp_ns, attempts, message_id, data[at + _BODY_AT : following], source, now)
                )
                if extended:
                    _take_headers(messages[-1])
            else:
                others.append((frame_type, data[at + 8 : following]))
            at = following
        if at < end:
            self._pieces.append(data[at:])
            self._held = end - at
        return oks

    def _end_of_frame(self, received: bytes) -> int | None:
        if len(received) < _HEADER_SIZE:
            return None
        size, _ = _HEADER.unpack_from(received)
        if not 4 <= size <= self._max_frame_bytes:
            raise FrameError(f"frame of {size} bytes is out of range 4-{self._max_frame_bytes}")
        return 4 + int(size)


def _take_headers(message: Message[Any]) -> None:
    """Separate the headers of an extended message from its body; FrameError when they are malformed."""
    headers, body = parse_extended(message.body)
    message.body = body
    if headers:
        message._headers = headers


def _leading_oks(data: bytes) -> int:
    """How many OK frames *data* begins with."""
    whole = len(data) // _OK_SIZE
    if data.startswith(OK_FRAME * whole):
        return whole
    count = 1
    while data.startswith(OK_FRAME, count * _OK_SIZE):
        count += 1
    return count
