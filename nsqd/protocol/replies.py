"""The frames a server sends that are not messages."""

from typing import Final

from nsqclient.wire import frames

OK: Final = frames.encode_frame(frames.FRAME_RESPONSE, frames.OK)
HEARTBEAT: Final = frames.encode_frame(frames.FRAME_RESPONSE, frames.HEARTBEAT)
CLOSE_WAIT: Final = frames.encode_frame(frames.FRAME_RESPONSE, frames.CLOSE_WAIT)
