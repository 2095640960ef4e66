"""The frames a server sends that are not messages."""

import struct
from typing import Final

FRAME_RESPONSE: Final = 0
FRAME_ERROR: Final = 1
_HEAD: Final = struct.Struct(">II")


def frame(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) + 4, kind) + payload


OK: Final = frame(FRAME_RESPONSE, b"OK")
HEARTBEAT: Final = frame(FRAME_RESPONSE, b"_heartbeat_")
CLOSE_WAIT: Final = frame(FRAME_RESPONSE, b"CLOSE_WAIT")
