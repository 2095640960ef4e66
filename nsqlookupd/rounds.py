"""Long work in steps, so that readers are answered in between.

An nsqd with thousands of topics announces all of them together, and its end removes all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

# Commands or registrations in one round of the event loop: they take 1 or 2 ms, log lines included.
COMMANDS_PER_TURN: Final = 64

# Does at most so many units of work and returns their number: a smaller number means that no work is left.
Step: TypeAlias = Callable[[int], int]


class Rounds:
    """Does a bounded amount of work in each round of the event loop, taking the steps in turn."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._scheduled = False

    def add(self, step: Step) -> None:
        """Call *step* in this and later rounds until it does less than it was allowed to."""
        self._steps.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        left = COMMANDS_PER_TURN
        while self._steps and left > 0:
            step = self._steps.popleft()
            did = step(left)
            if did >= left:
                self._steps.append(step)
            # An empty step costs time as well.
            left -= max(1, did)
        if self._steps:
            self._schedule()
