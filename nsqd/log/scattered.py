"""Reading messages that are scattered over a page: all that are wanted of it at once.

Messages that fell due, timed out or were requeued one by one are scattered like this. For each there is one
small read; messages that lie near one another share a read.
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

# Reading so many bytes that nobody wants takes less time than another read.
_NEAR_BYTES: Final = 4 << 10


def frames(
    disk: Disk, cache: Cache, segment: Segment, page: int, seqs: list[int], room: int, *, extended: bool
) -> list[Piece]:
    """The frames of *seqs*, which are sorted and lie in one page, in order until *room* bytes are full.

    They are the frames for an *extended* or a plain subscriber. They end before a message that cannot be had
    in this way: reading that message by itself tells why. Raises OSError.
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
    # The rest: the page is in memory, its appends have several messages, or a message is of the other kind.
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
    """Frames of a page whose appends have one message each, up to one with other *flags*. Raises OSError."""
    first, salt = starts.first, segment.header.salt
    found: list[Piece] = []
    at, count = 0, len(seqs)
    while at < count and room > 0:
        begin = starts.offset(seqs[at] - first)
        end = starts.offset(seqs[at] - first + 1)
        # The start and end of each append that is read in the same call.
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
