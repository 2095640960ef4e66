"""The position of a checkpoint, and the log records after it. Pure."""

from dataclasses import dataclass

from nsqd.log.frames import NOT_DEFERRED, WallNs


@dataclass(frozen=True, slots=True)
class CheckpointPosition:
    """The position of a checkpoint: it covers messages below *next* and notes up to *notes*.

    Messages below the sequence *synced* and notes up to *synced_notes* were durable in the log. That the
    checkpoint covers more notes does not mean that these are durable in the log's file, and the checkpoint
    itself may not have reached the disk. Messages were stored up to *end*.
    """

    next: int = 0
    notes: int = 0
    synced: int = 0
    end: int = 0
    synced_notes: int = 0


@dataclass(slots=True)
class RecoveredMessages:
    """Messages ``first <= seq < next`` of one or more appends; if they are deferred, of exactly one.

    *body_bytes* is what their bodies and headers take, as far as that is known.
    """

    first: int
    next: int
    due_ns: WallNs = NOT_DEFERRED
    body_bytes: int = 0


@dataclass(slots=True)
class RecoveredNote:
    """A note and its number."""

    number: int
    content: bytes
