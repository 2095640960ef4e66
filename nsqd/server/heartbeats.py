"""The heartbeats of one client; a connection that is silent for two heartbeats is cut off."""

import asyncio
from typing import Final, Protocol

# Bytes that wait in a socket are read within this time, so a client counts as silent only after it.
READ_GRACE_S: Final = 0.05
# A heartbeat that is later than this was delayed by this process.
LATE_S: Final = 0.5


class Beating(Protocol):
    """A connection whose client must show that it is alive."""

    @property
    def deaf(self) -> bool:
        """Whether nsqd does not read from the client at the moment, so that its silence does not count."""

    def beat(self) -> bool:
        """Send a heartbeat; False if the connection is closing or closed."""

    def cut_off(self, silent_s: float) -> None:
        """End the connection of a client that was silent for *silent_s* seconds."""


class Heartbeats:
    """See the module."""

    __slots__ = ("_connection", "_deadline", "_heartbeat", "_loop", "heard")

    def __init__(self, connection: Beating) -> None:
        self._connection: Beating | None = connection
        self._loop = asyncio.get_running_loop()
        self._heartbeat: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        # When the client last sent anything, on the loop's clock.
        self.heard = self._loop.time()

    def start(self, interval: float) -> None:
        """Start again with *interval* seconds between heartbeats; 0 for none."""
        self.stop()
        if interval:
            self._heartbeat = self._loop.call_later(interval, self._beat, interval)
            self._deadline = self._loop.call_later(2 * interval, self._check_deadline, 2 * interval)

    def stop(self) -> None:
        for timer in (self._heartbeat, self._deadline):
            if timer is not None:
                timer.cancel()
        self._heartbeat = self._deadline = None

    def end(self) -> None:
        """Stop, and release the connection."""
        self.stop()
        self._connection = None

    def _beat(self, interval: float) -> None:
        if self._heartbeat is None:
            return
        now = self._loop.time()
        if now - self._heartbeat.when() > LATE_S:
            # This process was stopped or busy. A client that only answers heartbeats had none to answer, so
            # it gets a full interval from here on.
            self.heard = max(self.heard, now - interval)
        if self._connection is not None and self._connection.beat():
            self._heartbeat = self._loop.call_later(interval, self._beat, interval)

    def _check_deadline(self, limit: float) -> None:
        silent = self._silent_s()
        if silent < limit:
            self._deadline = self._loop.call_later(limit - silent, self._check_deadline, limit)
        else:
            # The loop runs timers before it reads sockets, so bytes that the client sent while this process
            # was stopped or busy may still be unread.
            self._deadline = self._loop.call_later(READ_GRACE_S, self._end_if_silent, limit)

    def _end_if_silent(self, limit: float) -> None:
        silent = self._silent_s()
        if silent < limit:
            self._check_deadline(limit)
        elif self._connection is not None:
            self._connection.cut_off(silent)

    def _silent_s(self) -> float:
        connection = self._connection
        return 0.0 if connection is None or connection.deaf else self._loop.time() - self.heard
