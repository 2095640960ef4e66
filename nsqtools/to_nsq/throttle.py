"""Limits the messages per second. Pure: the caller passes the time and waits."""


class Throttle:
    """A bucket that gains *rate* messages a second, holds those of a second at most, and begins with one."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._at = now

    def take(self, now: float) -> float:
        """Take one message from the bucket; return the seconds to wait before sending it."""
        self._tokens = min(self._tokens + (now - self._at) * self._rate, float(self._rate)) - 1
        self._at = now
        return max(-self._tokens / self._rate, 0.0)
