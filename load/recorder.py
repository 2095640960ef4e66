"""The master's records of a run: the tally in a journal, and statistics for each second."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from load.book import Delta
from load.journal import TallyJournal
from load.latency import Histogram

SAMPLE_SECONDS: Final = 1.0


class RunRecorder:
    """Writes a line of statistics a second to *curve*; the process that watches the run reads them there."""

    def __init__(self, journal: TallyJournal, curve: Path) -> None:
        self.journal = journal
        self._curve = curve
        self._recent: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._last = 0.0

    def take(self, delta: Delta) -> None:
        self.journal.add(delta)
        for name, buckets in delta["latency"].items():
            self._recent[name].merge(buckets)

    def begin(self, now: float) -> None:
        self._write({"event": "begins", "time": now})

    def load_ended(self, now: float) -> None:
        self._write({"event": "load ended", "time": now})

    def end(self, now: float) -> None:
        self._last = 0.0
        self.sample(now, 0)
        self._write({"event": "over", "time": now})

    def sample(self, now: float, users: int) -> None:
        """Write a line if a second has passed since the last one."""
        if now - self._last < SAMPLE_SECONDS:
            return
        self._last = now
        tally, recent = self.journal.tally, self._recent
        self._recent = defaultdict(Histogram)
        self._write(
            {
                "time": now,
                "users": users,
                "acked": tally.count("acked"),
                "received": sum(tally.received().values()),
                "again": tally.repeated(),
                "errors": tally.errors.total(),
                "latency": {
                    name: [round(histogram.percentile(percent), 3) for percent in (50, 99)]
                    for name, histogram in recent.items()
                    if len(histogram)
                },
            }
        )

    def _write(self, line: dict[str, Any]) -> None:
        with self._curve.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of the curve file; none if it does not exist yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
