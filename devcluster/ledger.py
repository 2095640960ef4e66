"""Records which sample messages were published but not read yet, so that a loss would show. Pure."""

from collections.abc import Iterable


class Ledger:
    """Stores the time of every published message until each channel has read it."""

    def __init__(self, channels: Iterable[str]) -> None:
        # channel -> message -> when it was published; in the order of publishing
        self._unread: dict[str, dict[str, float]] = {channel: {} for channel in channels}
        self.redelivered = 0  # reads of a message that the channel had read before

    def sending(self, message: str, due: float) -> None:
        """Record a message due at *due*. Call it before sending: the message may be read immediately."""
        for unread in self._unread.values():
            unread[message] = due

    def not_published(self, message: str) -> None:
        """Forget a message whose publish failed."""
        for unread in self._unread.values():
            unread.pop(message, None)

    def read(self, channel: str, message: str) -> None:
        if self._unread[channel].pop(message, None) is None:
            self.redelivered += 1

    def unread(self) -> int:
        return max(map(len, self._unread.values()))

    def oldest_seconds(self, now: float) -> float:
        """How long the longest waiting message has been due, in seconds."""
        return max((now - due for unread in self._unread.values() for due in unread.values()), default=0.0)
