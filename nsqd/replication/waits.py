"""Publishers that wait until keepers have what they published. Pure."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

# Called with "" when it is settled, or with the reason why it is not.
TellCopied: TypeAlias = Callable[[str], None]


class Wait:
    """Something that *need* of several keepers must have; those who wait for it are told once."""

    __slots__ = ("may", "need", "tells", "unsettled")

    def __init__(self, need: int, may: int, unsettled: str) -> None:
        """*may* is how many keepers could have it; *unsettled* is told when too few of these are left.

        If *unsettled* is empty, those that are left are enough.
        """
        self.need = need
        self.may = may
        self.unsettled = unsettled
        self.tells: list[TellCopied] = []

    @property
    def open(self) -> bool:
        return self.need > 0 and self.may >= self.need

    def had(self) -> list[TellCopied]:
        """One more keeper has it; returns whom to tell that all is well."""
        if not self.open:
            return []
        self.need -= 1
        self.may -= 1
        return [] if self.need else self._take()

    def lost(self) -> list[TellCopied]:
        """One of the keepers that could have it no longer can; returns whom to tell `unsettled`."""
        if not self.open:
            return []
        self.may -= 1
        if not self.unsettled:
            self.need = min(self.need, self.may)
            return [] if self.need else self._take()
        return [] if self.may >= self.need else self._take()

    def _take(self) -> list[TellCopied]:
        tells, self.tells = self.tells, []
        return tells


class Waits:
    """What is waited for at one keeper, in the order of its stream."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bool, Wait]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, position: int, wait: Wait, *, durable: bool) -> None:
        """*wait* until the keeper has all before *position*, *durable* or written."""
        self._queue.append((position, durable, wait))

    def reached(self, written: int, synced: int) -> None:
        """The keeper has so much: tell those who waited for it."""
        queue = self._queue
        while queue:
            position, durable, wait = queue[0]
            if position > (synced if durable else written):
                return
            queue.popleft()
            for tell in wait.had():
                tell("")

    def lose(self) -> None:
        """Wait for this keeper no more."""
        queue, self._queue = self._queue, deque()
        for _, _, wait in queue:
            for tell in wait.lost():
                tell(wait.unsettled)
