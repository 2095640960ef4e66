"""Notes: what happens to a topic other than messages, written into its log between them.

A checkpoint has the pending messages of one moment. Later events are found in the log, in order: messages
and these notes. So a new channel, or the delay of a message, survives the death of the process as the message
itself does. Applying a note a second time changes nothing.
"""

import json
from typing import Any, Final

# With "pending", ranges of messages from before that a new channel is given: [[first, end], ...]; and
# "generation", which no other channel has.
CREATE: Final = "create"
DELETE: Final = "delete"
PAUSE: Final = "pause"
UNPAUSE: Final = "unpause"
# Of a topic with "sequence", the first message that waited: a power cut can lose an earlier note that gave
# older messages to the channels, and then these wait at the topic again and must stay.
EMPTY: Final = "empty"
# The topic holds its messages back until its channels elsewhere are known (HOLD), or does so no longer
# (FLOW).
HOLD: Final = "hold"
FLOW: Final = "flow"
# Messages came back with a delay, or were deferred by an operator: [[sequence, due time in
# ns since 1970, attempts, or 0 when it was not delivered yet], ...]
DEFER: Final = "defer"
# Messages "first" <= sequence < "end", which follow, are pending on this channel and by no other.
ONLY: Final = "only"
# Everything below "sequence" was acknowledged together.
COMMIT: Final = "commit"
# The channel must deliver the retained messages from a sequence on, none before: "sequence", "pending" and
# "generation" as with CREATE.
SEEK: Final = "seek"
# Messages were finished by an operator, or on another nsqd: "sequences", [[first, end],
# ...]
FINISH: Final = "finish"


class BadNote(Exception):
    """The note cannot be understood; the text is the reason."""


def encode(what: str, channel: str = "", **more: Any) -> bytes:
    """A note on the topic, or on the channel of that name."""
    note: dict[str, Any] = {"note": what}
    if channel:
        note["channel"] = channel
    return json.dumps(note | more, separators=(",", ":")).encode()


_DEFERS: Final = encode(DEFER).rstrip(b"}")


def defers(note: bytes) -> bool:
    """Whether the note says only that messages came back with a delay, or were deferred."""
    return note.startswith(_DEFERS)


_EXCLUSIVE: Final = encode(ONLY).rstrip(b"}")


def is_exclusive(note: bytes) -> bool:
    """Whether the note says which channel alone must deliver the messages that follow it."""
    return note.startswith(_EXCLUSIVE)
