"""The publishes of a producer that wait for a connection, in order. Pure: time is an argument."""

from collections import deque
from collections.abc import Iterator

from nsqclient._errors import ConnectionLostError
from nsqclient._requests import Publish


class Backlog:
    """A queue that knows how many messages and bytes are in it."""

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._publishes: deque[Publish] = deque()
        self.messages = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._publishes)

    def __iter__(self) -> Iterator[Publish]:
        return iter(self._publishes)

    @property
    def room(self) -> tuple[int, int]:
        """How many messages and bytes it takes."""
        return max(0, self._most_messages - self.messages), max(0, self._most_bytes - self.bytes)

    @property
    def has_room(self) -> bool:
        """Whether a new publish may be added; publishes lost on a connection are added in any case."""
        return self.messages < self._most_messages and self.bytes < self._most_bytes

    def append(self, publish: Publish) -> None:
        self._publishes.append(publish)
        self.messages += publish.count
        self.bytes += publish.size

    def popleft(self) -> Publish:
        publish = self._publishes.popleft()
        self.messages -= publish.count
        self.bytes -= publish.size
        return publish

    def tried(self, error: Exception) -> None:
        """Note for every publish that it could not be sent because of *error*."""
        for publish in self._publishes:
            publish.tries += 1
            publish.error = error

    def fail(self, error: Exception) -> None:
        while self._publishes:
            self.popleft().fail(error)

    def give_up(self, most_tries: int, later: float) -> bool:
        """Fail the publishes tried often enough that have no time left; returns whether others must wait."""
        publishes, self._publishes = self._publishes, deque()
        self.messages = self.bytes = 0
        exhausted = False
        for publish in publishes:
            if publish.is_settled:
                continue
            if publish.tries >= most_tries:
                if publish.give_up_at is None or later > publish.give_up_at:
                    publish.fail(publish.error or ConnectionLostError("no nsqd is known"))
                    continue
                publish.tries = 0
                exhausted = True
            self.append(publish)
        return exhausted
