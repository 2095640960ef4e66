"""Messages of a channel that go to its dead letters, from the decision until the move is done.

They are owed, but neither wait nor are in flight. A message is finished only when its copy in the dead-letter
topic is durable. A move that a crash interrupts is made again, so a dead letter may be there twice, but never
be missing.
"""

from collections import deque
from typing import Final

from nsqclient.wire import names
from nsqd.engine.settings import Settings
from nsqd.log.ranges import Ranges, without

REQUEUED: Final = "requeued"
TIMED_OUT: Final = "timed-out"
# Its consumer left too often.
RETURNED: Final = "returned"
EXPIRED: Final = "expired"

# Up to so many are written together: all of them or none.
TOGETHER: Final = 64


def dead_letter_topic(topic_name: str, channel_name: str, settings: Settings) -> str:
    """The topic for dead letters of the channel. The name that is made is durable even if theirs are not."""
    return settings.dead_letter_topic or names.dead_letter_topic(topic_name, channel_name)


class Death:
    """Messages ``start <= seq < end`` that are to be written to the dead letters, and why."""

    __slots__ = ("client", "end", "gone", "lost", "reason", "start")

    def __init__(self, start: int, end: int, reason: str, client: str) -> None:
        """*client* had them last."""
        self.start = start
        self.end = end
        self.reason = reason
        self.client = client
        # They are owed no longer.
        self.gone = False
        # How many of them are not in the log any more, so that they have no dead letter.
        self.lost = 0

    def __repr__(self) -> str:
        return f"<Death {self.start}..{self.end} {self.reason}>"


class Dying:
    """The messages of one channel that go to its dead letters."""

    __slots__ = ("_moving", "_waiting", "count")

    def __init__(self) -> None:
        self._waiting: deque[Death] = deque()
        # Those being written.
        self._moving: dict[Death, None] = {}
        self.count = 0

    def add(self, start: int, end: int, reason: str, client: str = "") -> None:
        self._waiting.append(Death(start, end, reason, client))
        self.count += end - start

    @property
    def waits(self) -> bool:
        """Whether there are some that are not being written yet."""
        return bool(self._waiting)

    def take(self, limit: int) -> list[Death]:
        """Up to *limit* messages to be written now; each is to be :meth:`done` or :meth:`failed`."""
        taken: list[Death] = []
        while self._waiting and limit > 0:
            death = self._waiting[0]
            most = min(limit, TOGETHER)
            if death.end - death.start <= most:
                self._waiting.popleft()
            else:
                death = Death(death.start, death.start + most, death.reason, death.client)
                self._waiting[0].start = death.end
            limit -= death.end - death.start
            self._moving[death] = None
            taken.append(death)
        return taken

    def done(self, death: Death) -> bool:
        """They are written; False if they are owed no longer because somebody has emptied the channel."""
        if death.gone:
            return False
        del self._moving[death]
        self.count -= death.end - death.start
        return True

    def failed(self, death: Death) -> None:
        """They could not be written and will be taken again."""
        if not death.gone:
            del self._moving[death]
            self._waiting.appendleft(death)

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of all these messages, in no order."""
        return [(death.start, death.end) for death in [*self._moving, *self._waiting] if not death.gone]

    def drop_below(self, seq: int) -> None:
        """Drop messages below *seq*, which are owed no longer."""
        kept: deque[Death] = deque()
        for death in [*self._moving, *self._waiting]:
            if death.start >= seq:
                if death not in self._moving:
                    kept.append(death)
                continue
            self._give_up(death)
            if death.end > seq:
                kept.append(Death(seq, death.end, death.reason, death.client))
                self.count += death.end - seq
        self._waiting = kept

    def take_out(self, ranges: Ranges) -> None:
        """Drop messages in *ranges*, sorted and merged, which are owed no longer."""
        for death in [*self._moving, *self._waiting]:
            left = without([(death.start, death.end)], ranges)
            if left == [(death.start, death.end)]:
                continue
            if death not in self._moving:
                self._waiting.remove(death)
            self._give_up(death)
            for start, end in left:
                self.add(start, end, death.reason, death.client)

    def clear(self) -> None:
        """Drop all of them, which are owed no longer."""
        for death in [*self._moving, *self._waiting]:
            self._give_up(death)
        self._waiting.clear()

    def _give_up(self, death: Death) -> None:
        death.gone = True
        self._moving.pop(death, None)
        self.count -= death.end - death.start
