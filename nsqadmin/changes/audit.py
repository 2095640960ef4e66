"""The audit: one JSON object per line in a file of bounded size, and the latest deeds in memory."""

import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from nsqcore.process.logs import Log

# At this size the file is renamed to FILE.1, which replaces the previous FILE.1.
MOST_BYTES: Final = 16 * 1024 * 1024
# Only the latest so many deeds are shown.
MOST_SHOWN: Final = 2000

# The outcome on a node, in a deed's results: this word, or this word and a number.
DONE: Final = "done"


def is_done(word: str) -> bool:
    """Tell whether *word* says that a node did the change."""
    return word == DONE or word.startswith(f"{DONE}: ")


@dataclass(frozen=True, slots=True)
class Deed:
    """One change: who asked for it, from where, what it was, and the outcome on each node."""

    at_s: float
    user: str
    via: str
    origin: str
    action: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    ok: bool = True
    problem: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        place = f"{self.topic}/{self.channel}" if self.channel else self.topic
        return f"{place} on {self.node}" if place and self.node else place or self.node

    @property
    def result(self) -> str:
        """Describe the outcome in a few words."""
        if not self.ok:
            return f"failed: {self.problem}"
        done = sum(1 for word in self.results.values() if is_done(word))
        told = [f"{node}: {word}" for node, word in self.results.items() if word != DONE]
        parts = [f"{done} of {len(self.results)} nodes" if self.results else DONE, *told]
        if self.silent:
            parts.append(f"not reached: {', '.join(self.silent)}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "at": round(self.at_s, 3),
            "user": self.user,
            "via": self.via,
            "from": self.origin,
        }
        shown["action"] = self.action
        for key in ("topic", "channel", "node", "problem"):
            if getattr(self, key):
                shown[key] = getattr(self, key)
        return shown | {
            "ok": self.ok,
            "before": self.before,
            "after": self.after,
            "results": self.results,
            "silent": list(self.silent),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        return cls(
            float(record["at"]),
            str(record["user"]),
            str(record.get("via", "")),
            str(record.get("from", "")),
            str(record["action"]),
            str(record.get("topic", "")),
            str(record.get("channel", "")),
            str(record.get("node", "")),
            bool(record.get("ok", True)),
            str(record.get("problem", "")),
            dict(record.get("before") or {}),
            dict(record.get("after") or {}),
            dict(record.get("results") or {}),
            tuple(record.get("silent") or ()),
        )


class Audit:
    """Appends deeds to the file and returns the latest."""

    def __init__(self, path: str, log: Log, most_bytes: int = MOST_BYTES) -> None:
        """Open the file. Raises OSError if it cannot be written."""
        self._path = Path(path) if path else None
        self._log = log
        self._most_bytes = most_bytes
        self._deeds: deque[Deed] = deque(maxlen=MOST_SHOWN)
        if self._path is not None:
            with self._path.open("ab"):
                pass
            self._read()

    def note(self, deed: Deed) -> None:
        self._deeds.append(deed)
        if self._path is None:
            return
        # JSON escapes line ends, so any name fits into one line.
        line = json.dumps(deed.to_json(), separators=(",", ":")).encode() + b"\n"
        try:
            if self._path.exists() and self._path.stat().st_size + len(line) > self._most_bytes:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            with self._path.open("ab") as file:
                file.write(line)
        except OSError as error:
            self._log.error("audit: %s of %s is not in %s: %s", deed.action, deed.user, self._path, error)

    def latest(self) -> list[Deed]:
        """Return the last deeds, the newest first."""
        return list(reversed(self._deeds))

    def _read(self) -> None:
        """Load what earlier runs wrote; lines that cannot be read are left out."""
        if self._path is None:
            return
        for path in (self._path.with_name(self._path.name + ".1"), self._path):
            if not path.exists():
                continue
            with path.open("rb") as file:
                for line in file:
                    try:
                        self._deeds.append(Deed.from_json(json.loads(line)))
                    except (ValueError, TypeError, KeyError):
                        self._log.warning("audit: a line of %s cannot be read", path)
