"""Reading messages that lie here and there in a page: all that are wanted of it at once.

What fell due, timed out or was requeued one by one lies so. For each there is one small read and nothing
besides; those that lie near one another share one.
"""

from typing import Final

from nsqd.log import pages
from nsqd.log.cache import Cache
from nsqd.log.disk import Disk
from nsqd.log.frames import Block, Piece
from nsqd.log.headers import frames_for
from nsqd.log.layout import MESSAGE_HEADERS, only_frame
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts

# To read so many bytes that nobody wants takes less time than another read.
_NEAR_BYTES: Final = 4 << 10


def frames(
    disk: Disk, cache: Cache, segment: Segment, page: int, seqs: list[int], room: int, *, extended: bool
) -> list[Piece]:
    """The frames of the first of *seqs*, which are sorted and lie in one page, until *room* bytes are full.

    They are those of an *extended* subscriber or of a plain one, and end before one that cannot be had:
    whoever reads that by itself learns why. Raises OSError.
    """
    first, last = segment.page_firsts[page], segment.page_end(page)
    offset = segment.page_offsets[page]
    stop = offset + segment.page_size(page)
    found: list[Piece] = []
    if cache.stretch(segment, offset, stop) is None:
        starts = pages.starts_of(cache, segment, offset, stop, first)
        if starts is not None and starts.one_each(last) and not starts.worth_the_page(last):
            starts.reads += len(seqs)
            found = _one_each(cache, segment, starts, seqs, room, MESSAGE_HEADERS if extended else 0)
    room -= sum(map(len, found))
    block: Block | None = None
    # Of a page that is in memory, or whose appends have several messages; and what is of the other kind.
    for seq in seqs[len(found) :]:
        if room <= 0:
            break
        if block is None or not block.first <= seq < block.next:
            read = pages.read(disk, cache, segment, page, seq, seq + 1)
            if not isinstance(read, Block):
                break
            block = read
        piece = frames_for(block, seq, seq + 1, extended=extended)
        found.append(piece)
        room -= len(piece)
    return found


def _one_each(
    cache: Cache, segment: Segment, starts: Starts, seqs: list[int], room: int, flags: int
) -> list[Piece]:
    """Those of a page whose appends have one message each, up to one of other *flags*. Raises OSError."""
    first, salt = starts.first, segment.header.salt
    found: list[Piece] = []
    at, count = 0, len(seqs)
    while at < count and room > 0:
        begin = starts.offset(seqs[at] - first)
        end = starts.offset(seqs[at] - first + 1)
        # Where each of those lies that are read together.
        places = [(begin, end)]
        while at + len(places) < count and end - begin < room:
            place = seqs[at + len(places)] - first
            start = starts.offset(place)
            if start - end > _NEAR_BYTES:
                break
            end = starts.offset(place + 1)
            places.append((start, end))
        data = cache.read(segment, end - begin, begin)
        if len(data) < end - begin:
            break
        for start, behind in places:
            frame = only_frame(data, start - begin, behind - begin, seqs[at], salt, flags)
            if frame is None:
                return found
            found.append(frame)
            room -= len(frame)
            at += 1
    return found
