"""What is missing in compacted files: for who is owed what there is, and is to know how much that is.

Such a file speaks for all from its first message to its end, and has what was wanted of that. The rest was
finished by everybody, or are numbers that no message ever had: a restart goes on far above the last, and when
what lies before and behind it comes into one file, what it skipped lies in that.
"""

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.gaps import Gap, Why
from nsqd.log.pages import read_page
from nsqd.log.ranges import Ranges, merged, without
from nsqd.log.segment import Segment

# Of more than so many the largest are told: who has them writes them down.
MOST: Final = 10_000


def holes_in(disk: Disk, segment: Segment) -> Ranges:
    """What is missing in a compacted segment; for any thread. Nothing when it cannot be read just now.

    What is damaged is not missing: whoever is owed that finds out.
    """
    try:
        kept = segment_index.kept_of(disk, segment)
        if kept is not None:
            return without([(segment.first, segment.next)], kept)
        # Its index was lost, or an earlier version wrote it.
        return [
            (found.start, found.end)
            for page in range(segment.pages)
            for found in read_page(disk, segment, page)
            if isinstance(found, Gap) and found.why is Why.COMPACTED
        ]
    except OSError:
        return []


def largest(holes: Iterable[tuple[int, int]]) -> Ranges:
    """The largest of them, sorted and merged."""
    return merged(nlargest(MOST, holes, key=lambda hole: hole[1] - hole[0]))
