"""The files of a node's logs that are open for appending: a limited number, and closed when not in use.

A log whose file was closed opens it again when something is appended.
"""

from typing import Final, Protocol

# How many logs have their file open when thousands of logs are written to in turn.
MOST_OPEN: Final = 1024


class Rests(Protocol):
    """A log with an open file."""

    def rest(self, *, synced_only: bool) -> bool:
        """Close the file if possible; with *synced_only* only if nothing in it waits to be synced."""


class OpenFiles:
    """See the module. Not thread-safe."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        # Logs with an open file and the period of their last use, the least recently used one first.
        self._logs: dict[Rests, int] = {}
        self._period = 0
        # The log that was used last, if it was used in this period.
        self._latest: Rests | None = None

    def __len__(self) -> int:
        return len(self._logs)

    def used(self, log: Rests) -> None:
        """Something is about to be appended to the log's file."""
        if log is self._latest:
            return
        self._logs.pop(log, None)
        self._logs[log] = self._period
        self._latest = log

    def forget(self, log: Rests) -> None:
        """The log has no open file any more."""
        self._logs.pop(log, None)
        self._latest = None

    def make_room(self) -> None:
        """Before one more file is opened: close the least recently used one if too many are open."""
        if len(self._logs) < self._most:
            return
        # The system reports a disk error only to those who have the file open when it is synced. So a file
        # that is not synced is closed only when there is no other.
        for synced_only in (True, False):
            self._latest = None
            for log in self._logs:
                if log.rest(synced_only=synced_only):
                    del self._logs[log]
                    return

    def close_idle(self) -> None:
        """Close the files that were not used since the last call but one."""
        self._period += 1
        self._latest = None
        idle = []
        for log, period in self._logs.items():
            if period >= self._period - 1:
                break
            if log.rest(synced_only=True):
                idle.append(log)
        for log in idle:
            del self._logs[log]
