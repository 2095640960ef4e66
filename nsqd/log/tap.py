"""The seam at which a copy of a log is made: told of every write, in the order of the writes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqd.log.segment import Segment
    from nsqd.log.shrinking import ShrinkingLog


class Tap:
    """Hears what is written to logs, and copies nothing: what follows it does."""

    def appended(self, log: "ShrinkingLog", segment: "Segment", offset: int, pieces: list[bytes]) -> None:
        """These bytes are in a file at *offset*: whole appends, at 0 behind the file header."""

    def let_go(self, log: "ShrinkingLog", segments: "list[Segment]") -> None:
        """Segments go that nobody wants, or whose place a compacted one takes in this moment."""

    def lost(self, _log: "ShrinkingLog") -> None:
        """Somebody else has removed files of the log: what is copied of them is all there is."""

    def deleted(self, log: "ShrinkingLog") -> None:
        """The topic is gone, with all its files."""
