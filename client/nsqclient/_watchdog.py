"""Ends a connection whose peer is silent, owes an answer for too long, or does not read."""

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

from nsqclient._errors import ConnectionLostError
from nsqclient._running_time import RunningTimer


class Watched(Protocol):
    """What the watchdog looks at; times are those of the event loop."""

    @property
    def address(self) -> str: ...

    @property
    def silent_for(self) -> float:
        """The seconds since something, such as a heartbeat, was last received."""

    @property
    def owed_for(self) -> float:
        """The seconds for which an answer has been owed; 0 when none is."""

    @property
    def answered_at(self) -> float: ...

    @property
    def unsent(self) -> int:
        """The bytes that were written and have not reached the other machine."""


class Watchdog:
    """Looks at one connection; *abort* ends it with a reason."""

    def __init__(
        self,
        watched: Watched,
        abort: Callable[[ConnectionError], None],
        *,
        read_timeout: float,
        write_timeout: float,
        hears_heartbeats: bool,
    ) -> None:
        self._watched = watched
        self._abort = abort
        # Without heartbeats a peer that has nothing to say is silent.
        self._most_silence = read_timeout if hears_heartbeats else math.inf
        self._write_timeout = write_timeout
        self.answer_timeout = read_timeout  # a command without an answer for so long ends the connection
        self._listening: RunningTimer | None = None
        self._stalled: RunningTimer | None = None

    def watch(self) -> None:
        """Check the connection now, and again whenever a limit may be reached."""
        watched = self._watched
        silence, owing = watched.silent_for, watched.owed_for
        if silence >= self._most_silence:
            self._abort(ConnectionLostError(f"{watched.address} was silent for {silence:.1f} s"))
        elif owing >= self.answer_timeout:
            self._abort(ConnectionLostError(f"{watched.address} did not answer a command for {owing:.1f} s"))
        else:
            wait = min(self._most_silence - silence, self.answer_timeout - owing)
            self._listening = RunningTimer(wait, self.watch)

    def expect_progress(self) -> None:
        """The write buffer is full: from now on the peer has to make progress."""
        watched = self._watched
        check = partial(self._check_progress, watched.unsent, watched.answered_at)
        self._stalled = RunningTimer(self._write_timeout, check)

    def progressed(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()

    def stop(self) -> None:
        for timer in (self._listening, self._stalled):
            if timer is not None:
                timer.cancel()

    def _check_progress(self, unsent_before: int, answered_before: float) -> None:
        """End the connection when the peer has neither read nor answered anything meanwhile."""
        watched = self._watched
        unsent = watched.unsent
        if unsent >= unsent_before and watched.answered_at == answered_before:
            self._abort(
                ConnectionLostError(
                    f"{watched.address} took none of {unsent} bytes in {self._write_timeout:g} s"
                )
            )
            return
        self.expect_progress()
