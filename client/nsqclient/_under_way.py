"""The requests that one connection has sent or is about to send, and nsqd has not answered yet. Pure."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from nsqclient._requests import Answer, PendingCommand, Publish

# A connection is full from so many bytes under way: enough to keep it busy in bounded memory.
MOST_BYTES: Final = 4 * 1024 * 1024


class UnderWay:
    """Requests in the order of their answers, with the number of their messages and bytes."""

    def __init__(self) -> None:
        self._requests: deque[PendingCommand] = deque()
        self.most_messages = 10_000
        self.messages = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[PendingCommand]:
        return iter(self._requests)

    @property
    def is_full(self) -> bool:
        """Whether new messages should wait for answers first."""
        return self.messages >= self.most_messages or self.bytes >= MOST_BYTES

    @property
    def room(self) -> tuple[int, int]:
        """How many messages and bytes fit before it is full."""
        return max(0, self.most_messages - self.messages), max(0, MOST_BYTES - self.bytes)

    @property
    def answers(self) -> list[Answer]:
        """The answers that somebody still waits for."""
        return [answer for request in self._requests for answer in request.answers if not answer.done()]

    @property
    def first(self) -> PendingCommand:
        return self._requests[0]

    def add(self, request: PendingCommand) -> None:
        self._requests.append(request)
        self.messages += request.count
        self.bytes += request.size

    def joined(self, publish: Publish, body: bytes, answer: Answer) -> None:
        """Add a message to a publish that is under way."""
        publish.join(body, answer)
        self.messages += 1
        self.bytes += len(body)

    def answered(self) -> PendingCommand:
        """Remove and return the request to which the next answer belongs."""
        request = self._requests.popleft()
        self.messages -= request.count
        self.bytes -= request.size
        return request

    def give_up(self) -> list[PendingCommand]:
        """Remove and return all requests, because no answer will come."""
        requests = list(self._requests)
        self._requests.clear()
        self.messages = self.bytes = 0
        return requests
