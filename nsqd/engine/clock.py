"""Two clocks: deadlines are kept on one that only goes forward, dates on the one on the wall.

The ``now_ns`` that the engine is given never steps. Where a time leaves the process, as the timestamp of a
message or the due time on disk, the offset to the wall clock is added; where it comes in, subtracted.
"""

from nsqd.log.frames import WallNs


class Wall:
    """How far the clock on the wall is from the engine's, in ns; the server keeps it true."""

    __slots__ = ("offset_ns",)

    def __init__(self) -> None:
        self.offset_ns = 0

    def at(self, now_ns: int) -> WallNs:
        """What the clock on the wall shows when the engine's shows *now_ns*."""
        return now_ns + self.offset_ns  # type: ignore[return-value] # WallNs() would be a call

    def engine_ns(self, wall_ns: WallNs) -> int:
        """What the engine's clock shows then; at least 1, because 0 is no time."""
        return max(1, wall_ns - self.offset_ns)
