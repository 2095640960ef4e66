"""Messages of a channel that go to its dead letters, from the decision until the move is done.

They are pending, but neither wait nor are in flight. A message is finished only when its copy in the
dead-letter topic is durable. A move that a crash interrupts is made again, so a dead letter may be there
twice, but never be missing.
"""

from collections import deque
from typing import Final

from nsqclient.wire import names
from nsqd.engine.settings import Settings
from nsqd.log.ranges import Ranges, size_of, without

REQUEUED: Final = "requeued"
TIMED_OUT: Final = "timed-out"
# Its consumer left too often.
RETURNED: Final = "returned"
EXPIRED: Final = "expired"

# At most this many are written together: all of them or none.
TOGETHER: Final = 64


def dead_letter_topic(topic_name: str, channel_name: str, settings: Settings) -> str:
    """The topic for dead letters of the channel. The name that is made is durable even if theirs are not."""
    return settings.dead_letter_topic or names.dead_letter_topic(topic_name, channel_name)


class DeadLetterMove:
    """Messages ``start <= seq < end`` that are to be written to the dead letters, and why."""

    __slots__ = ("client", "end", "lost", "reason", "removed", "start")

    def __init__(self, start: int, end: int, reason: str, client: str) -> None:
        """*client* had them last."""
        self.start = start
        self.end = end
        self.reason = reason
        self.client = client
        # They are no longer pending.
        self.removed = False
        # How many of them are not in the log any more, so that they have no dead letter.
        self.lost = 0

    def __repr__(self) -> str:
        return f"<DeadLetterMove {self.start}..{self.end} {self.reason}>"


class DeadLetterQueue:
    """The messages of one channel that go to its dead letters."""

    __slots__ = ("_moving", "_waiting", "count")

    def __init__(self) -> None:
        self._waiting: deque[DeadLetterMove] = deque()
        # Those being written.
        self._moving: dict[DeadLetterMove, None] = {}
        self.count = 0

    def add(self, start: int, end: int, reason: str, client: str = "") -> None:
        self._waiting.append(DeadLetterMove(start, end, reason, client))
        self.count += end - start

    @property
    def has_pending(self) -> bool:
        """Whether there are some that are not being written yet."""
        return bool(self._waiting)

    def take(self, limit: int) -> list[DeadLetterMove]:
        """Up to *limit* messages to be written now; each is to be :meth:`done` or :meth:`failed`."""
        taken: list[DeadLetterMove] = []
        while self._waiting and limit > 0:
            move = self._waiting[0]
            most = min(limit, TOGETHER)
            if move.end - move.start <= most:
                self._waiting.popleft()
            else:
                move = DeadLetterMove(move.start, move.start + most, move.reason, move.client)
                self._waiting[0].start = move.end
            limit -= move.end - move.start
            self._moving[move] = None
            taken.append(move)
        return taken

    def written(self, move: DeadLetterMove) -> bool:
        """They are written; False if they were removed before."""
        if move.removed:
            return False
        del self._moving[move]
        self.count -= move.end - move.start
        return True

    def failed(self, move: DeadLetterMove) -> None:
        """They could not be written; the next attempt takes them again."""
        if not move.removed:
            del self._moving[move]
            self._waiting.appendleft(move)

    def ranges(self) -> Ranges:
        """The ranges of all these messages, in no order."""
        return [(move.start, move.end) for move in [*self._moving, *self._waiting]]

    def remove(self, ranges: Ranges) -> int:
        """Remove messages in *ranges*, sorted and merged, which are no longer pending; returns how many."""
        before = self.count
        kept: deque[DeadLetterMove] = deque()
        for move in [*self._moving, *self._waiting]:
            left = without([(move.start, move.end)], ranges)
            if left == [(move.start, move.end)]:
                if move not in self._moving:
                    kept.append(move)
                continue
            move.removed = True
            self._moving.pop(move, None)
            self.count -= move.end - move.start - size_of(left)
            kept += [DeadLetterMove(start, end, move.reason, move.client) for start, end in left]
        self._waiting = kept
        return before - self.count
