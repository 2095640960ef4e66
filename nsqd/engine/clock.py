"""Two clocks: deadlines are kept on one that only goes forward, dates on the one on the wall.

The ``now_ns`` that the engine is given never steps. Where a time leaves the process, as the timestamp of a
message or the due time on disk, the offset to the wall clock is added; where it comes in, subtracted.
"""


class Wall:
    """How far the clock on the wall is from the engine's, in ns; the server keeps it true."""

    __slots__ = ("offset_ns",)

    def __init__(self) -> None:
        self.offset_ns = 0
