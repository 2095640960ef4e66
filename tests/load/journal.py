"""Which messages were acknowledged and which came back, written down by id and compared afterwards.

Each user writes files of its own, a line per id: ``acked`` when nsqd has said OK, ``unsure`` when the
connection broke before it said anything, ``received`` before the message is finished.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

Kind = Literal["acked", "unsure", "received"]


class Journal:
    """One file of ids, complete on disk after every call."""

    def __init__(self, folder: Path, kind: Kind, writer: str) -> None:
        self._file = (folder / f"{kind}-{writer}").open("ab", buffering=0)

    def note(self, ids: Iterable[bytes]) -> None:
        self._file.write(b"".join([one + b"\n" for one in ids]))

    def close(self) -> None:
        self._file.close()


def read(folder: Path, kind: Kind) -> Counter[bytes]:
    """Return how often each id was noted, over all writers."""
    ids: Counter[bytes] = Counter()
    for path in sorted(folder.glob(f"{kind}-*")):
        ids.update(path.read_bytes().splitlines())
    return ids


@dataclass(frozen=True)
class Comparison:
    """What became of the messages of one run."""

    acked: int
    unsure: int
    received: int
    """Different messages received."""
    duplicates: int
    """Deliveries beyond the first of each message."""
    missing: frozenset[bytes]
    """Acknowledged and never received."""
    unknown: frozenset[bytes]
    """Received and never sent."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        acked, unsure, received = read(folder, "acked"), read(folder, "unsure"), read(folder, "received")
        return cls(
            acked=len(acked),
            unsure=len(unsure),
            received=len(received),
            duplicates=received.total() - len(received),
            missing=frozenset(acked.keys() - received.keys()),
            unknown=frozenset(received.keys() - acked.keys() - unsure.keys()),
        )

    def fault(self, *, duplicates_allowed: bool) -> str | None:
        """Return one sentence when acknowledged and received messages differ, with an id to look for."""
        for ids, what in (
            (self.missing, "were acknowledged and not received"),
            (self.unknown, "were received and never sent"),
        ):
            if ids:
                return f"{len(ids)} messages {what}, for example {min(ids).decode()}"
        if self.duplicates and not duplicates_allowed:
            return f"{self.duplicates} messages were delivered more than once though nothing had failed"
        return None
