"""The frames that nsqd sends: ``uint32 size | uint32 type | data``; size counts type and data."""

from struct import Struct
from typing import Final

from nsqclient.wire.errors import E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED, ProtocolError

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

# The three errors after which nsqd keeps the connection.
_NON_FATAL: Final = frozenset({E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED})


class FrameError(ValueError):
    """The bytes received cannot be frames of nsqd."""


def encode_frame(frame_type: int, data: bytes) -> bytes:
    """One frame as bytes."""
    return _HEADER.pack(len(data) + 4, frame_type) + data


def decode_error(data: bytes) -> ProtocolError:
    """The error in the data of an error frame."""
    code, _, text = data.decode("utf-8", "surrogateescape").partition(" ")
    return ProtocolError(code, text, fatal=code not in _NON_FATAL)


class FrameParser:
    """Turns received bytes into ``(frame type, data)``, however the stream was cut into pieces."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []  # received, not yet returned; joined once the frame is whole
        self._held = 0  # bytes in pieces
        self._wanted = _HEADER.size  # bytes needed before parsing can go on

    @property
    def unfinished(self) -> int:
        """The number of bytes received of a frame that is not complete yet."""
        return self._held

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take received bytes and return the frames that they complete, in order."""
        if self._held:
            # A large frame arrives in many pieces; joining at each of them would copy it over and over.
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        frames: list[tuple[int, bytes]] = []
        position = 0
        end = len(data)
        unpack = _HEADER.unpack_from
        self._wanted = _HEADER.size
        while end - position >= _HEADER.size:
            size, frame_type = unpack(data, position)
            if not 4 <= size <= self._max_frame_bytes:
                raise FrameError(f"frame of {size} bytes is out of range 4-{self._max_frame_bytes}")
            next_position = position + 4 + size
            if next_position > end:
                self._wanted = 4 + size
                break
            frames.append((frame_type, data[position + 8 : next_position]))
            position = next_position
        self._held = end - position
        if self._held:
            self._pieces.append(data[position:])
        return frames
