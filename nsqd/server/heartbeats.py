"""The heartbeats of one client, and the end of a connection that was silent for two of them."""

import asyncio
from typing import Final, Protocol

# What waits in a socket is read within this time: a client is not taken for silent before that.
LAST_LOOK_S: Final = 0.05
# A heartbeat this late was held up on our side.
LATE_S: Final = 0.5


class Beating(Protocol):
    """A connection whose client is to show that it is there."""

    @property
    def deaf(self) -> bool:
        """Whether its client is not heard just now, and so is not silent."""

    def beat(self) -> bool:
        """Send a heartbeat; False when the connection is at its end."""

    def cut_off(self, silent_s: float) -> None:
        """The client was silent for so long, or does not read what it is sent."""


class _Nobody:
    """There is no connection any more."""

    deaf = True

    def beat(self) -> bool:
        return False

    def cut_off(self, silent_s: float) -> None:
        pass


_NOBODY: Final = _Nobody()


class Heartbeats:
    """See the module."""

    __slots__ = ("_connection", "_deadline", "_heartbeat", "_loop", "heard")

    def __init__(self, connection: Beating) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._heartbeat: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        # When the client last sent anything, on the loop's clock.
        self.heard = self._loop.time()

    def start(self, interval: float) -> None:
        """Begin anew, with so many seconds between two; 0 for none."""
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
        """The connection is gone, and not held any more."""
        self.stop()
        self._connection = _NOBODY

    def _beat(self, interval: float) -> None:
        if self._heartbeat is None:
            return
        now = self._loop.time()
        if now - self._heartbeat.when() > LATE_S:
            # This process was stopped or busy. A client that only answers heartbeats had none to answer:
            # it has an interval from here on.
            self.heard = max(self.heard, now - interval)
        if self._connection.beat():
            self._heartbeat = self._loop.call_later(interval, self._beat, interval)

    def _check_deadline(self, limit: float) -> None:
        silent = self._silent_s()
        if silent < limit:
            self._deadline = self._loop.call_later(limit - silent, self._check_deadline, limit)
        else:
            # Timers are looked at before sockets: what the client sent while this process was stopped or
            # busy may not be read yet.
            self._deadline = self._loop.call_later(LAST_LOOK_S, self._end_if_silent, limit)

    def _end_if_silent(self, limit: float) -> None:
        silent = self._silent_s()
        if silent < limit:
            self._check_deadline(limit)
        else:
            self._connection.cut_off(silent)

    def _silent_s(self) -> float:
        return 0.0 if self._connection.deaf else self._loop.time() - self.heard
