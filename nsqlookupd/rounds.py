"""Long work in steps, so that readers are answered in between.

An nsqd with thousands of topics announces them in one go, and takes them all with it when it leaves.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

# Commands or registrations in one round of the event loop: one or two milliseconds, log lines included.
AT_MOST: Final = 64

# Does at most so much, and says how much it did: less means that nothing is left.
Step: TypeAlias = Callable[[int], int]


class Rounds:
    """In each round of the event loop a bounded piece of work, for all who have any in turn."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._scheduled = False

    def add(self, step: Step) -> None:
        """Have *step* called until it does less than it might."""
        self._steps.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        left = AT_MOST
        while self._steps and left > 0:
            step = self._steps.popleft()
            did = step(left)
            if did >= left:
                self._steps.append(step)
            # A step that finds nothing to do has cost something too.
            left -= max(1, did)
        if self._steps:
            self._schedule()
