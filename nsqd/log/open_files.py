"""The files of a node's logs that are open for appending: a limited number, and closed when not in use.

A log whose file was closed opens it again when something is appended. Each call takes the same time for any
number of logs, except `close_idle`.
"""

from typing import Final, Protocol

# How many logs have their file open when thousands of logs are written to in turn.
MAX_OPEN_FILES: Final = 1024
# How many logs try to close their file before one more is opened. Only logs in a running sync refuse.
_MAX_ASKED: Final = 16


class OpenLog(Protocol):
    """A log with an open file."""

    def close_file(self) -> bool:
        """Close the file that is appended to until the next append; False while it is being synced."""


class OpenFiles:
    """See the module. Not thread-safe."""

    def __init__(self, limit: int = MAX_OPEN_FILES) -> None:
        self._limit = limit
        # Logs with an open file and the period of their last use: those that were appended to since their
        # last sync, the least recently used one first, and the others in the order of their syncs.
        self._unsynced: dict[OpenLog, int] = {}
        self._synced: dict[OpenLog, int] = {}
        self._period = 0
        # The log that was used last, if it was used in this period.
        self._latest: OpenLog | None = None

    def __len__(self) -> int:
        return len(self._unsynced) + len(self._synced)

    def touch(self, log: OpenLog) -> None:
        """Something is about to be appended to the log's file."""
        if log is self._latest:
            return
        self.forget(log)
        self._unsynced[log] = self._period
        self._latest = log

    def synced(self, log: OpenLog) -> None:
        """Everything in the log's file is synced."""
        period = self._unsynced.pop(log, None)
        if period is not None:
            self._synced[log] = period
            self._latest = None

    def forget(self, log: OpenLog) -> None:
        """The log has no open file any more."""
        self._unsynced.pop(log, None)
        self._synced.pop(log, None)
        self._latest = None

    def evict(self) -> None:
        """Close a file if too many are open; called before one more is opened."""
        if len(self) < self._limit:
            return
        self._latest = None
        # The system reports a disk error only if the file is open when it is synced. So an unsynced file is
        # closed only when there is no other.
        for logs in (self._synced, self._unsynced):
            for _ in range(min(len(logs), _MAX_ASKED)):
                log = next(iter(logs))
                period = logs.pop(log)
                if log.close_file():
                    return
                logs[log] = period

    def close_idle(self) -> None:
        """Close the synced files that were not used since the last call but one.

        Takes time in proportion to the open files.
        """
        self._period += 1
        self._latest = None
        for log, period in list(self._synced.items()):
            if period < self._period - 1 and log.close_file():
                del self._synced[log]
