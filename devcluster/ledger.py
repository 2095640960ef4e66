"""Which sample messages were published and not read yet, so that a loss would show. Pure."""

from collections.abc import Iterable


class Ledger:
    """Keeps the time of every published message until each channel has read it."""

    def __init__(self, channels: Iterable[str]) -> None:
        # channel -> message -> when it was published; in the order of publishing
        self._unread: dict[str, dict[str, float]] = {channel: {} for channel in channels}
        self.again = 0  # reads of a message that the channel had read before

    def sending(self, message: str, due: float) -> None:
        """Note a message that is due then. Call it before the message is sent: it may be read at once."""
        for unread in self._unread.values():
            unread[message] = due

    def not_published(self, message: str) -> None:
        """Its publish failed: nobody is owed it."""
        for unread in self._unread.values():
            unread.pop(message, None)

    def read(self, channel: str, message: str) -> None:
        if self._unread[channel].pop(message, None) is None:
            self.again += 1

    def unread(self) -> int:
        return max(map(len, self._unread.values()))

    def oldest_seconds(self, now: float) -> float:
        """How long the message that waits longest has been due."""
        return max((now - due for unread in self._unread.values() for due in unread.values()), default=0.0)
