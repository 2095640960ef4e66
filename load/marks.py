"""The mark in each message: its run, its publisher, its number there, and when it was due. Pure."""

from dataclasses import dataclass
from struct import Struct
from typing import Final

_MARK: Final = Struct(">8s8sQq")

MARK_BYTES: Final = _MARK.size
RUN_BYTES: Final = 8
PUBLISHER_BYTES: Final = 8
# The first bytes of a publisher id are the worker's, drawn at random; the others count its publishers.
_WORKER_BYTES: Final = 5


def publisher_id(worker: bytes, number: int) -> bytes:
    """Return the id of a publisher, unique over all workers and hosts."""
    return worker[:_WORKER_BYTES] + number.to_bytes(PUBLISHER_BYTES - _WORKER_BYTES)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a message comes from; *due_ns* is when it should have been published, and visible if deferred."""

    publisher: str
    number: int
    due_ns: int


class Marker:
    """Writes and reads the marks of one run; messages of other runs are ignored."""

    def __init__(self, run: bytes) -> None:
        self._run = run

    def body(self, publisher: bytes, number: int, due_ns: int, size: int) -> bytes:
        """Return a marked body of *size* bytes, or of the mark's length if that is more."""
        return _MARK.pack(self._run, publisher, number, due_ns).ljust(size, b".")

    def read(self, body: bytes) -> Stamp | None:
        if len(body) < MARK_BYTES:
            return None
        run, publisher, number, due_ns = _MARK.unpack_from(body)
        return Stamp(publisher.hex(), number, due_ns) if run == self._run else None
