"""At most so many messages a second. Pure: the caller tells the time and does the waiting."""


class Throttle:
    """A bucket that fills at *rate* a second, holds at most a second's worth and has one to start with."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._at = now

    def take(self, now: float) -> float:
        """Take one message's turn; return the seconds to wait before sending it."""
        self._tokens = min(self._tokens + (now - self._at) * self._rate, float(self._rate)) - 1
        self._at = now
        return max(-self._tokens / self._rate, 0.0)
