"""The states of a connection at its keeper, and what may be said in each. Pure."""

from enum import IntEnum
from typing import Final

from nsqd.replication.frames import (
    AnyFrame,
    Appends,
    Begin,
    CopiedTopic,
    CopyState,
    Deleted,
    FellowCopy,
    FellowHello,
    Fellows,
    FilePart,
    Finished,
    Had,
    HandOver,
    Hello,
    Offer,
    Remove,
    Rename,
    Seal,
    StillHere,
    SyncCopy,
    Told,
)


class KeeperState(IntEnum):
    """The state of a connection."""

    NEW = 0
    # The driver finds out who the home is.
    ASKING = 1
    # The home names its topics.
    MEETING = 2
    COPYING = 3
    CLOSED = 4
    # Another keeper of a home that is gone says what it has.
    FELLOW = 5


# Frames of a home that was asked what it has.
_KNOWN: Final = (Had, Finished, Told)
# Frames of a home that leaves permanently.
_LEAVES: Final = (Offer, HandOver)
_WRITES: Final = (
    *_KNOWN,
    *_LEAVES,
    Fellows,
    CopiedTopic,
    CopyState,
    Appends,
    FilePart,
    Rename,
    Remove,
    Seal,
    Deleted,
    SyncCopy,
    StillHere,
)
# What the peer may say in each state.
ALLOWED: Final[dict[KeeperState, tuple[type[AnyFrame], ...]]] = {
    KeeperState.NEW: (Hello, FellowHello),
    KeeperState.FELLOW: (FellowCopy, CopiedTopic, Had, Finished, Told),
    KeeperState.ASKING: (),
    KeeperState.MEETING: (CopiedTopic, Deleted, Begin, StillHere, Fellows, *_KNOWN, *_LEAVES),
    KeeperState.COPYING: _WRITES,
    KeeperState.CLOSED: (),
}
