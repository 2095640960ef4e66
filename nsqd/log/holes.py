"""Which sequences are missing in compacted files, so that a channel that must deliver all others can count
them.

A compacted file speaks for all sequences from its first to its end, and has the messages that were wanted.
The others were finished by everybody, or no message ever had that number: after a restart the numbers go on
far above the last one, and the skipped ones lie inside a file that joins what was stored before and after.
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

# If there are more holes, only so many are reported, the largest, because the channel stores them.
MOST: Final = 10_000


def holes_in(disk: Disk, segment: Segment) -> Ranges:
    """The sequences missing in a compacted segment; none when it cannot be read just now. For any thread.

    Damaged messages do not count as missing: the channel that must deliver them finds the damage.
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
    """The largest *holes*, sorted and merged."""
    return merged(nlargest(MOST, holes, key=lambda hole: hole[1] - hole[0]))
