"""The audit: one JSON object per line in a file of bounded size, and the latest entries in memory."""

import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import TopicStats
from nsqcore.process.logs import Log

# At this size the file is renamed to FILE.1, which replaces the previous FILE.1.
MAX_BYTES: Final = 16 * 1024 * 1024
# Only the latest so many entries are shown.
MAX_SHOWN: Final = 2000

# The outcome on a node, in an entry's results: one of these words, alone or with a colon and details.
DONE: Final = "done"
UNKNOWN: Final = "unknown"


def is_done(word: str) -> bool:
    """Tell whether *word* says that a node did the change."""
    return word == DONE or word.startswith(f"{DONE}: ")


def outcome(error: NodeError) -> str:
    """Describe in an entry's results why a node did not confirm a change."""
    if error.may_happen:
        return f"{UNKNOWN}: {error.reason}, it may still happen"
    return error.reason if error.unreachable else error.code or error.reason


def unknown_in(results: Mapping[str, str]) -> list[str]:
    """Return the nodes in *results* that may still carry out the change."""
    return sorted(node for node, word in results.items() if word.startswith(f"{UNKNOWN}: "))


class AuditEntry(msgspec.Struct, frozen=True, rename={"at_s": "at", "origin": "from"}):
    """One change: its person, client address, action, and outcome on each node."""

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
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    results: dict[str, str] = {}
    silent: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[float, str, str, str, str, str]:
        """Two records with one key describe one entry; the later record completes it."""
        return round(self.at_s, 3), self.user, self.action, self.topic, self.channel, self.node

    @property
    def unknown(self) -> list[str]:
        return unknown_in(self.results)

    @property
    def subject(self) -> str:
        place = f"{self.topic}/{self.channel}" if self.channel else self.topic
        policy = str(self.after.get("policy") or self.before.get("policy") or "")
        return f"{place} on {self.node}" if place and self.node else place or self.node or policy

    @property
    def action_text(self) -> str:
        """The action in plain words."""
        return self.action.replace("_", " ").capitalize()

    @property
    def is_partial(self) -> bool:
        """Whether the change failed, or may have failed, on some nodes."""
        return bool(self.silent) or not all(map(is_done, self.results.values()))

    @property
    def result(self) -> str:
        """Describe the outcome in a few words."""
        if not self.ok and not self.unknown:
            return f"failed: {self.problem}"
        done = sum(1 for word in self.results.values() if is_done(word))
        details = [f"{node}: {word}" for node, word in self.results.items() if word != DONE]
        parts = [f"{done} of {len(self.results)} nodes" if self.results else DONE, *details]
        if self.silent:
            parts.append(f"not reached: {', '.join(self.silent)}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "unknown": self.unknown}


def later_outcome(entry: AuditEntry, topic: TopicStats | None) -> str:
    """Derive from a node's present statistics of *topic* (None without) whether *entry* was carried out."""
    channels = {one.channel_name: one for one in topic.channels} if topic is not None else {}
    target = channels.get(entry.channel) if entry.channel else topic
    action = entry.action.rpartition(" and ")[2].partition("_")[0]
    seen: bool | None = None
    if action in {"pause", "unpause"}:
        seen = target is not None and target.paused is (action == "pause")
    elif action in {"delete", "tombstone", "create"}:
        seen = (target is not None) is (action == "create")
    elif action == "empty":
        seen = True if target is None or not target.depth else None
    when = "when the node answered again"
    return (
        f"not known to be done {when}"
        if seen is None
        else f"{DONE}: seen {when}"
        if seen
        else f"not done {when}"
    )


class Audit:
    """Appends entries to the file and returns the latest."""

    def __init__(self, path: str, log: Log, most_bytes: int = MAX_BYTES) -> None:
        """Open the file. Raises OSError if it cannot be written."""
        self._path = Path(path) if path else None
        self._log = log
        self._most_bytes = most_bytes
        self._entries: deque[AuditEntry] = deque(maxlen=MAX_SHOWN)
        # Lines that are not in the file yet.
        self._unwritten: list[bytes] = []
        # Why, in words; empty if there are none.
        self.problem = ""
        if self._path is not None:
            with self._path.open("ab"):
                pass
            self._read()

    def note(self, entry: AuditEntry) -> None:
        """Append *entry*, or complete the one with the same key.

        A line that cannot be written is logged, and written by a later :meth:`write`.
        """
        self._remember(entry)
        if self._path is None:
            return
        # JSON escapes line ends, so any name fits into one line.
        line = json.dumps(entry.to_json(), separators=(",", ":")).encode()
        self._unwritten.append(line + b"\n")
        if not self.write():
            self._log.error(
                "audit: a line is not in %s yet (%s): %s", self._path, self.problem, line.decode()
            )

    def write(self) -> bool:
        """Write the lines that could not be written before. Return whether all lines are in the file."""
        if self._path is None or not self._unwritten:
            return True
        text = b"".join(self._unwritten)
        try:
            if self._path.exists() and self._path.stat().st_size + len(text) > self._most_bytes:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            _append(self._path, text)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return False
        if self.problem:
            self._log.info("audit: all lines are in %s", self._path)
        self.problem = ""
        self._unwritten.clear()
        return True

    def _remember(self, entry: AuditEntry) -> None:
        for place, known in enumerate(self._entries):
            if known.unknown and known.key == entry.key:
                self._entries[place] = entry
                return
        self._entries.append(entry)

    def unknown(self) -> list[AuditEntry]:
        """Return the entries whose outcome on a node is unknown."""
        return [entry for entry in self._entries if entry.unknown]

    def paused_by(self, topic: str, channel: str) -> AuditEntry | None:
        """Return the last change that paused a topic, or its *channel*."""
        action = "pause_channel" if channel else "pause_topic"
        for entry in reversed(self._entries):
            if (entry.action, entry.topic, entry.channel) == (action, topic, channel) and entry.ok:
                return entry
        return None

    def latest(self) -> list[AuditEntry]:
        """Return the last entries, the newest first."""
        return list(reversed(self._entries))

    def _read(self) -> None:
        """Load the entries of earlier runs; unreadable lines are left out."""
        if self._path is None:
            return
        for path in (self._path.with_name(self._path.name + ".1"), self._path):
            if not path.exists():
                continue
            with path.open("rb") as file:
                for line in file:
                    try:
                        self._remember(msgspec.convert(json.loads(line), AuditEntry))
                    except (msgspec.MsgspecError, ValueError):
                        self._log.warning("audit: a line of %s cannot be read", path)


def _append(path: Path, text: bytes) -> None:
    """Append *text* to the file, all of it or nothing. Raises OSError."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[file.write(rest) or 0 :]
        except OSError:
            file.truncate(end)
            raise
