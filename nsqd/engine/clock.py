"""Two clocks: deadlines use a clock that only goes forward, dates use the wall clock.

The ``now_ns`` that the engine is given never steps. When a time leaves the process, as the timestamp of a
message or the due time on disk, the offset to the wall clock is added; when a time comes in, the offset is
subtracted.
"""

from nsqd.log.frames import WallNs


class Wall:
    """The offset of the wall clock from the engine's clock, in ns; the server updates it."""

    __slots__ = ("offset_ns",)

    def __init__(self) -> None:
        self.offset_ns = 0

    def time_at(self, now_ns: int) -> WallNs:
        """The time of the wall clock when the engine's clock shows *now_ns*."""
        return now_ns + self.offset_ns  # type: ignore[return-value] # WallNs() would be a call

    def engine_ns(self, wall_ns: WallNs) -> int:
        """The time of the engine's clock at *wall_ns*; at least 1, because 0 stands for no time."""
        return max(1, wall_ns - self.offset_ns)
