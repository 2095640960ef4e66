"""Publishers that wait for the acknowledgements of replicas. Pure."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

# Called once: with "" for an OK, or with the reason for an error.
AckCallback: TypeAlias = Callable[[str], None]


class PendingAck:
    """An answer to publishers that waits until *need* of *possible* replicas have acknowledged.

    With a *reason* it is given to the publishers when fewer than *need* replicas are left. Without one, the
    publishers wait for those that are left.
    """

    __slots__ = ("_callbacks", "need", "possible", "reason", "result")

    def __init__(self, need: int, possible: int, reason: str) -> None:
        """*possible* is the number of replicas in sync that have not acknowledged yet."""
        self.need = need
        self.possible = possible
        self.reason = reason
        # None while it is open; then what the publishers got.
        self.result: str | None = None
        self._callbacks: list[AckCallback] = []
        self._check()

    @property
    def is_open(self) -> bool:
        return self.result is None

    def add(self, callback: AckCallback) -> None:
        """Call *callback* with the result; immediately if there is one."""
        if self.result is None:
            self._callbacks.append(callback)
        else:
            callback(self.result)

    def acknowledged(self) -> None:
        """One more replica has acknowledged."""
        self.need -= 1
        self.possible -= 1
        self._check()

    def lost(self) -> None:
        """A replica that had not acknowledged is not in sync any more."""
        self.possible -= 1
        self._check()

    def withdrawn(self) -> None:
        """A replica that had acknowledged is not in sync any more: only those in sync at the OK count."""
        self.need += 1
        self._check()

    def _check(self) -> None:
        if self.result is not None:
            return
        if self.need > self.possible:
            if self.reason:
                self._close(self.reason)
                return
            self.need = self.possible
        if self.need <= 0:
            self._close("")

    def _close(self, result: str) -> None:
        self.result = result
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(result)


class AckQueue:
    """What is pending at one replica, in the order of its stream."""

    __slots__ = ("_acknowledged", "_queue")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bool, PendingAck]] = deque()
        # Acknowledged by this replica and not by enough others yet.
        self._acknowledged: deque[PendingAck] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, position: int, pending: PendingAck, *, durable: bool) -> None:
        """*pending* needs everything before *position*, *durable* or written."""
        self._queue.append((position, durable, pending))

    def add_acknowledged(self, pending: PendingAck) -> None:
        """The replica has acknowledged all that *pending* needs."""
        while self._acknowledged and not self._acknowledged[0].is_open:
            self._acknowledged.popleft()
        if pending.is_open:
            self._acknowledged.append(pending)

    def reached(self, written: int, synced: int) -> None:
        """The replica has acknowledged so much."""
        queue = self._queue
        while queue:
            position, durable, pending = queue[0]
            if position > (synced if durable else written):
                return
            queue.popleft()
            if pending.is_open:
                pending.acknowledged()
                self.add_acknowledged(pending)

    def lose(self) -> None:
        """The replica is not in sync any more."""
        queue, self._queue = self._queue, deque()
        acknowledged, self._acknowledged = self._acknowledged, deque()
        for pending in acknowledged:
            if pending.is_open:
                pending.withdrawn()
        for _, _, pending in queue:
            if pending.is_open:
                pending.lost()
