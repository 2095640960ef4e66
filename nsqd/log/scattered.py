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
from nsqd.log.layout import APPEND_HEADER_BYTES, MESSAGE_HEADERS, only_frame
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts

# Reading so many bytes that nobody wants takes less time than another read.
_NEAR_BYTES: Final = 4 << 10


def frames(
    disk: Disk,
    cache: Cache,
    segment: Segment,
    page: int,
    seqs: list[int],
    room: int,
    reads: int,
    *,
    extended: bool,
) -> list[Piece]:
    """The frames of *seqs*, which are sorted and lie in one page, in order until *room* bytes are full.

    They are the frames for an *extended* or a plain subscriber. They end after *reads* reads of the disk, or
    a few more, and before a message that cannot be had in this way: reading that message by itself tells why.
    Raises OSError.
    """
    first, last = segment.page_firsts[page], segment.page_end(page)
    offset = segment.page_offsets[page]
    stop = offset + segment.page_size(page)
    found: list[Piece] = []
    end_reads = cache.reads + reads
    if cache.stretch(segment, offset, stop) is None:
        starts = pages.starts_of(cache, segment, offset, stop, first)
        if starts is not None and starts.one_each(last) and not starts.worth_the_page(last):
            flags = MESSAGE_HEADERS if extended else 0
            end_reads = cache.reads + reads
            found = _one_each(cache, segment, starts, seqs, room, reads, flags)
            starts.reads += len(found)
    room -= sum(map(len, found))
    block: Block | None = None
    # The rest: the page is in memory, its appends have several messages, or a message is of the other kind.
    for seq in seqs[len(found) :]:
        if room <= 0 or cache.reads >= end_reads:
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
    cache: Cache, segment: Segment, starts: Starts, seqs: list[int], room: int, reads: int, flags: int
) -> list[Piece]:
    """Frames of a page whose appends have one message each, up to one with other *flags*. Raises OSError."""
    salt = segment.header.salt
    parts = _parts(starts, seqs, room, reads)
    if len(parts) > 1:
        cache.read_ahead(segment, [(places[0][0], places[-1][1]) for places in parts])
    found: list[Piece] = []
    for places in parts:
        begin, end = places[0][0], places[-1][1]
        data = cache.read(segment, end - begin, begin)
        if len(data) < end - begin:
            break
        for start, behind in places:
            frame = only_frame(data, start - begin, behind - begin, seqs[len(found)], salt, flags)
            if frame is None:
                return found
            found.append(frame)
    return found


def _parts(starts: Starts, seqs: list[int], room: int, reads: int) -> list[list[tuple[int, int]]]:
    """The start and end of each append, in one list for each part of the file that is read together.

    There are at most *reads* parts, and they end when *room* bytes are full.
    """
    parts: list[list[tuple[int, int]]] = []
    last = 0
    for seq in seqs:
        place = seq - starts.first
        start, end = starts.offset(place), starts.offset(place + 1)
        if room <= 0:
            break
        if parts and start - last <= _NEAR_BYTES and start - parts[-1][0][0] < room:
            parts[-1].append((start, end))
        elif len(parts) < reads:
            parts.append([(start, end)])
        else:
            break
        room -= end - start - APPEND_HEADER_BYTES
        last = end
    return parts
