"""What a log tells of the time after a checkpoint: how far that reached, what happened since. Pure."""

from dataclasses import dataclass

from nsqd.log.frames import NOT_DEFERRED, WallNs


@dataclass(frozen=True, slots=True)
class Mark:
    """What the checkpoint knows: it covers messages below *next* and notes up to *notes*.

    What was appended below the sequence *synced* was durable, and so were notes up to *synced_notes*: that it
    knows more of them says nothing of the log's file, and it may itself not have reached the disk. Messages
    were stored up to *end*.
    """

    next: int = 0
    notes: int = 0
    synced: int = 0
    end: int = 0
    synced_notes: int = 0


@dataclass(slots=True)
class Stored:
    """Messages ``first <= seq < next`` of one or more appends, or of one when they are deferred."""

    first: int
    next: int
    due_ns: WallNs = NOT_DEFERRED


@dataclass(slots=True)
class Noted:
    """A note and its number."""

    number: int
    content: bytes
