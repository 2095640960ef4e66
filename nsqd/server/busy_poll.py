"""Polling for the next request of a client that waits for each answer, instead of sleeping.

Such a client sends its next request some 20 us after the answer. Putting the process to sleep and waking it
takes longer than that, and at least as much processor time as polling. Where clients do not come back so
soon, polling is in vain: it is then done more and more rarely, until a client comes back soon again. If
another process wants the same processor (possibly the client itself), it gets the processor. If that
process keeps the processor for longer than a client would, it has other work: polling is then expensive, and
is made as rare as where it is in vain.
"""

import os
from collections.abc import Callable
from typing import Final

# After so many polls in vain in a row, one answer in 256 is followed by a poll.
_RAREST: Final = 8
# If yielding takes less than this, no other process wanted the processor: it then takes about a microsecond.
_ALONE_NS: Final = 5_000
# A client on the same processor gives it back sooner than this; other processes keep it for milliseconds.
_DEAR_NS: Final = 500_000


class BusyPoll:
    """Keeps the event loop going for a moment after each answer; see the module."""

    __slots__ = (
        "_answered_ns",
        "_call_soon",
        "_clock",
        "_dear",
        "_for_ns",
        "_in_vain",
        "_looking",
        "_pause",
        "_skip",
        "_yield",
    )

    def __init__(
        self,
        for_ns: int,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], int],
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        """Poll for *for_ns* nanoseconds of *clock*, 0 for never; *call_soon* is the event loop's.

        *give_way* yields the processor to another process, if one waits for it.
        """
        self._for_ns = for_ns
        self._call_soon = call_soon
        self._clock = clock
        self._yield = give_way
        self._answered_ns = -for_ns
        self._looking = False
        self._in_vain = 0
        # How many of the next answers are not followed by a poll, because polls were in vain.
        self._skip = 0
        # How often in a row another process kept the processor, and how many answers are skipped for that.
        self._dear = 0
        self._pause = 0

    def answered(self) -> None:
        """Note that a client was answered, and may come back immediately."""
        if not self._for_ns:
            return
        self._answered_ns = self._clock()
        if self._looking:
            return
        if self._pause:
            self._pause -= 1
            return
        if self._skip:
            self._skip -= 1
            return
        self._looking = True
        self._call_soon(self._poll)

    def heard(self, now_ns: int) -> None:
        """Note that a client which waits for an answer sent a request."""
        if now_ns - self._answered_ns < self._for_ns:
            self._in_vain = self._skip = 0
            if self._looking:
                # No other process took the processor during this poll.
                self._dear = 0

    def _poll(self) -> None:
        # While a callback is scheduled, the loop reads from its sockets without sleeping.
        now_ns = self._clock()
        if now_ns - self._answered_ns < self._for_ns:
            self._yield()
            away_ns = self._clock() - now_ns
            if away_ns < _ALONE_NS:
                self._call_soon(self._poll)
                return
            # Another process used the processor, and may need it again.
            self._looking = False
            if away_ns >= _DEAR_NS:
                self._dear = min(self._dear + 1, _RAREST)
                self._pause = (1 << self._dear) - 1
            return
        self._looking = False
        self._dear = 0
        self._in_vain = min(self._in_vain + 1, _RAREST)
        self._skip = (1 << self._in_vain) - 1
