"""A moment on two clocks: one is never set and measures spans, the other shows the time of day; PURE."""

from typing import Final, NamedTuple

from nsqclient.wire.durations import SECOND

# Two clocks are never read at quite the same moment, and a displayed time must not flicker.
_NEAR_S: Final = 1.0


class Instant(NamedTuple):
    """``at_ns`` only means something compared with that of another instant; ``at_s`` is only shown."""

    at_ns: int
    at_s: float

    def since(self, other: "Instant") -> float:
        """Return the seconds from *other* to this instant."""
        return (self.at_ns - other.at_ns) / SECOND

    def after(self, seconds: float) -> "Instant":
        return Instant(self.at_ns + round(seconds * SECOND), self.at_s + seconds)

    def reading(self, other: "Instant") -> "Instant":
        """Return *other* with the time of day as the clock shows it now: it may have been set in between."""
        at_s = self.at_s - self.since(other)
        return other if abs(at_s - other.at_s) < _NEAR_S else Instant(other.at_ns, at_s)
