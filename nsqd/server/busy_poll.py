"""After an answer to a client that waits for it, its next request is looked for instead of slept for.

Such a client sends its next request some 20 us after the answer. To put the process to sleep and to wake it
takes longer than that, and at least as much processor time as to look. Where clients do not come back so
soon, looking is in vain: then it is tried ever more rarely, until it pays again. Where another process wants
the same processor, which may be the client's own, it gets it at once. One that keeps it for longer than a
client would has work of its own: on such a machine looking is dear, and as rare as where it is in vain.
"""

import os
from collections.abc import Callable
from typing import Final

# After so many times in vain in a row, one answer in 256 is followed by a look.
_RAREST: Final = 8
# To give way takes a microsecond when nobody else wants the processor.
_ALONE_NS: Final = 5_000
# A client that runs on the same processor gives it back sooner than this; others take a turn of milliseconds.
_DEAR_NS: Final = 500_000


class BusyPoll:
    """Keeps the event loop going for a moment after each answer; see the module."""

    __slots__ = (
        "_answered_ns",
        "_call_soon",
        "_clock",
        "_dear",
        "_for_ns",
        "_give_way",
        "_in_vain",
        "_looking",
        "_rest",
        "_skip",
    )

    def __init__(
        self,
        for_ns: int,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], int],
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        """Look for *for_ns* nanoseconds of *clock*, 0 for never; *call_soon* is the event loop's.

        *give_way* lets another process have the processor, if one waits for it.
        """
        self._for_ns = for_ns
        self._call_soon = call_soon
        self._clock = clock
        self._give_way = give_way
        self._answered_ns = -for_ns
        self._looking = False
        self._in_vain = 0
        # So many answers are not followed by a look.
        self._skip = 0
        # How often in a row the processor did not come back soon, and the answers without a look for that.
        self._dear = 0
        self._rest = 0

    def answered(self, now_ns: int) -> None:
        """A client has its answer, and may come back at once."""
        self._answered_ns = now_ns
        if self._looking or not self._for_ns:
            return
        if self._rest:
            self._rest -= 1
            return
        if self._skip:
            self._skip -= 1
            return
        self._looking = True
        self._call_soon(self._look)

    def heard(self, now_ns: int) -> None:
        """Somebody came who waits for an answer."""
        if now_ns - self._answered_ns < self._for_ns:
            self._in_vain = self._skip = 0
            if self._looking:
                # All of this look was ours.
                self._dear = 0

    def _look(self) -> None:
        # While something is to be called soon the loop reads from its sockets without sleeping.
        now_ns = self._clock()
        if now_ns - self._answered_ns < self._for_ns:
            self._give_way()
            away_ns = self._clock() - now_ns
            if away_ns < _ALONE_NS:
                self._call_soon(self._look)
                return
            # Somebody else had work for this processor, and may have more.
            self._looking = False
            if away_ns >= _DEAR_NS:
                self._dear = min(self._dear + 1, _RAREST)
                self._rest = (1 << self._dear) - 1
            return
        self._looking = False
        self._dear = 0
        self._in_vain = min(self._in_vain + 1, _RAREST)
        self._skip = (1 << self._in_vain) - 1
