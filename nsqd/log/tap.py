"""The seam at which a copy of a log is made: a tap is told of every write, in the order of the writes."""

from nsqd.log.segment import Segment


class Tap:
    """Hears what is written to one log, but copies nothing; subclasses do that."""

    def appended(self, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        """*pieces* were written to a file at *offset*: whole appends, at 0 after the file header."""

    def segments_removed(self, segments: list[Segment]) -> None:
        """*segments* are removed, because nobody wants them or a compacted one now takes their place."""

    def lost(self) -> None:
        """Somebody else has removed files of the log: only what was copied of them is left."""

    def deleted(self) -> None:
        """The topic was deleted, with all its files."""
