"""Timeouts that count only the running time of this process, and the watchdog of a connection."""

import asyncio
import math
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from nsqclient._errors import ConnectionLostError

if TYPE_CHECKING:
    from nsqclient._connection import Connection

if sys.platform != "win32":
    import fcntl
    import termios


def unsent_bytes(transport: asyncio.Transport) -> int:
    """The number of bytes that the transport and the kernel hold.

    The kernel takes megabytes and then nothing for a while, so on a slow line the transport alone
    would seem to stall. Where the kernel reports no number, only the transport counts.
    """
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    if sys.platform == "win32" or connection is None:
        return 0
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:  # it is closed, or this system does not know the request
        return 0
    return int(struct.unpack("i", answer)[0])


# More steps measure a pause more exactly, but each step is one timer.
_STEPS: Final = 8
# At most so many steps are not counted, so that a timeout ends even if all its steps end late.
_MAX_LATE: Final = 8


class RunningTimer:
    """Calls *callback* after *seconds* in which the event loop ran.

    An event loop runs its timers before it reads its sockets. After the process was stopped for a while (by a
    busy machine, by a suspended laptop), every timeout looks overdue, although the answer may have arrived
    already. Therefore the time is counted in several steps, and one that ends much too late is not counted.
    """

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._step = seconds / _STEPS
        self._callback = callback
        self._left = _STEPS
        self._max_late = _MAX_LATE
        self._loop = asyncio.get_running_loop()
        self._start_step()

    def cancel(self) -> None:
        self._handle.cancel()

    def _start_step(self) -> None:
        self._late_at = self._loop.time() + 2 * self._step
        self._handle = self._loop.call_later(self._step, self._end_step)

    def _end_step(self) -> None:
        if self._max_late and self._loop.time() > self._late_at:
            self._max_late -= 1
        else:
            self._left -= 1
        if self._left:
            self._start_step()
        else:
            self._callback()


@asynccontextmanager
async def running_timeout(seconds: float) -> AsyncIterator[None]:
    """Like ``asyncio.timeout``, but counts only time in which the event loop ran; 0 means without limit."""
    async with asyncio.timeout(None) as limit:
        if not seconds:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = RunningTimer(seconds, lambda: limit.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


class Watchdog:
    """Checks one connection; *abort* ends it with a reason."""

    def __init__(
        self,
        watched: "Connection",
        abort: Callable[[ConnectionError], None],
        *,
        read_timeout: float,
        write_timeout: float,
        hears_heartbeats: bool,
    ) -> None:
        self._watched = watched
        self._abort = abort
        # Without heartbeats an idle peer is silent.
        self._max_silence = read_timeout if hears_heartbeats else math.inf
        self._write_timeout = write_timeout
        self.answer_timeout = read_timeout  # a command without an answer for so long ends the connection
        self._listening: RunningTimer | None = None
        self._stalled: RunningTimer | None = None

    def watch(self) -> None:
        """Check the connection now, and again whenever a limit may be reached."""
        watched = self._watched
        silence, unanswered = watched.silent_for, watched.unanswered_for
        if silence >= self._max_silence:
            self._abort(ConnectionLostError(f"{watched.address} was silent for {silence:.1f} s"))
        elif unanswered >= self.answer_timeout:
            self._abort(
                ConnectionLostError(f"{watched.address} did not answer a command for {unanswered:.1f} s")
            )
        else:
            wait = min(self._max_silence - silence, self.answer_timeout - unanswered)
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
        """End the connection when the peer has neither read nor answered anything."""
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
