"""One file of a copy, as it is known in memory."""

from nsqd.log.segment import Segment
from nsqd.replication.frames import CopiedFile


class CopyFile:
    """One file of a copy. *segment* has the extent of a log file whose appends are all known and sound."""

    __slots__ = (
        "bounds",
        "fd",
        "is_final",
        "is_named",
        "name",
        "problem",
        "salt",
        "sealed",
        "segment",
        "size",
        "synced",
    )

    def __init__(self, name: str, size: int = 0, salt: int = 0, segment: Segment | None = None) -> None:
        self.name = name
        # Up to the first damage.
        self.size = size
        # So much of it is certainly on the disk.
        self.synced = 0
        # Its name is certainly on the disk.
        self.is_named = False
        self.salt = salt
        self.segment = segment
        # With sound appends behind damage: first position, next position and newest note of the whole file.
        self.bounds: tuple[int, int, int] | None = None
        # Its format is not known to this version, which keeps the file as it is: a sentence; else empty.
        self.problem = ""
        self.sealed = False
        # This stream has sealed it. One that was found sealed may be longer at the primary.
        self.is_final = False
        # The descriptor for appending; -1 when it is not open.
        self.fd = -1

    @property
    def is_log(self) -> bool:
        return not self.name.startswith("checkpoint")

    def report(self) -> CopiedFile:
        """The file as it is reported to the primary."""
        bounds, segment = self.bounds, self.segment
        if bounds is None and segment is not None:
            bounds = (segment.first, segment.next, segment.last_note)
        return CopiedFile(self.name, self.salt, self.size, *(bounds or (0, 0, 0)))
