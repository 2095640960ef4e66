"""The tally of a run in a file of bounded size, so that another process can judge the run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from load.book import Delta
from load.tally import Tally

# Deltas are appended until the file reaches this size; then it is rewritten as one tally.
LIMIT_BYTES: Final = 8 << 20


class TallyJournal:
    """One line with a tally, then one line for each later delta; only one process writes it."""

    def __init__(self, path: Path, channels: Iterable[str], limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = path
        self.tally = Tally(channels)
        self._limit = limit_bytes
        self._grown = 0
        self._rewrite()

    def add(self, delta: Delta) -> None:
        self.tally.add(delta)
        line = json.dumps(delta).encode() + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
        self._grown += len(line)
        if self._grown > self._limit:
            self._rewrite()

    def _rewrite(self) -> None:
        self._grown = 0
        new = self.path.with_suffix(".new")
        new.write_bytes(json.dumps(self.tally.to_json()).encode() + b"\n")
        new.replace(self.path)


def read_journal(path: Path) -> Tally:
    """Return the tally of a journal; an incomplete last line is ignored."""
    first, *deltas = path.read_bytes().split(b"\n")
    tally = Tally.from_json(json.loads(first))
    for line in deltas[:-1]:
        tally.add(json.loads(line))
    return tally
