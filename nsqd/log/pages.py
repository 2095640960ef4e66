"""Reading the messages of a segment: a whole page, or only the bytes of some messages.

Both give the same answer for a message. After an unexpected result of a short read, the whole page is read.
It shows which messages are missing, and why.

Messages that fell due, timed out or were requeued one by one are scattered over a page. For each there is one
small read; messages that lie near one another share a read.
"""

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from nsqd.log.cache import Cache, CachedRange
from nsqd.log.disk import Disk
from nsqd.log.frames import Block, Buffer, parse_block
from nsqd.log.gaps import Gap, Why
from nsqd.log.headers import frames_for
from nsqd.log.layout import (
    APPEND_HEADER_BYTES,
    MESSAGE_HEADERS,
    Append,
    decode_append,
    find_starts,
    only_frame,
)
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts
from nsqd.log.walk import Window, walk

# A page is read as a whole when at least one in so many of its messages is wanted.
_WHOLE_PAGE_SHARE: Final = 4
# A message read directly after its predecessor counts this often in the decision to cache the page.
_IN_A_ROW: Final = 8
# An append of at least this many bytes is cached like a page.
_LONG_BYTES: Final = 8 << 10
# One read covers at most this many bytes of consecutive appends.
_MAX_READ_BYTES: Final = 64 << 10


def read_page(disk: Disk, segment: Segment, page: int) -> list[Block | Gap]:
    """Blocks and gaps of a page, which together cover all its sequences, in order.

    Raises OSError when the file cannot be read just now.
    """
    first, last = segment.page_firsts[page], segment.page_end(page)
    offset, size = segment.page_offsets[page], segment.page_size(page)
    try:
        data = read_bytes(disk, segment, size, offset)
    except FileNotFoundError:
        return [Gap(first, last, Why.REMOVED)]
    return blocks_in(segment, data, offset, size, first, last)


def appends_in(disk: Disk, segment: Segment, page: int) -> Iterator[tuple[Append, bytes]]:
    """The whole appends of a page and their data, notes included. Raises OSError."""
    salt, offset = segment.header.salt, segment.page_offsets[page]
    window = Window(read_bytes(disk, segment, segment.page_size(page), offset), offset)
    for place in walk(window, offset, salt, segment.page_firsts[page]):
        append = place.append
        if append is not None:
            data = window.cut(append.start, append.end)
            if append.matches(data, salt):
                yield append, data


def read(disk: Disk, cache: Cache, segment: Segment, page: int, seq: int, end: int) -> Block | Gap | None:
    """The block or gap of a page that holds *seq*; nothing from *end* on is wanted. Raises OSError."""
    first, last = segment.page_firsts[page], segment.page_end(page)
    offset = segment.page_offsets[page]
    stop = offset + segment.page_size(page)
    stretch = cache.stretches.get(segment, offset, stop)
    if stretch is None and (min(end, last) - seq) * _WHOLE_PAGE_SHARE < last - first:
        starts = _starts_of(disk, cache, segment, page)
        if starts is not None:
            block = _read_few(disk, cache, segment, starts, seq, min(end, last), last)
            if block is not None:
                return block
    if stretch is None:
        cache.reads += 1
        stretch = CachedRange(read_page(disk, segment, page), stop)
        cache.stretches.put(segment, offset, stretch)
    return stretch.at(seq)


def _starts_of(disk: Disk, cache: Cache, segment: Segment, page: int) -> Starts | None:
    """Where appends start in a page; None if that is not clear. Raises OSError."""
    offset = segment.page_offsets[page]
    stop = offset + segment.page_size(page)
    starts = cache.starts.get(segment, offset, stop)
    if starts is None:
        cache.reads += 1
        try:
            data = read_bytes(disk, segment, stop - offset, offset)
        except FileNotFoundError:
            return None
        starts = find_starts(data, offset, segment.page_firsts[page])
        if starts is None or starts.end != stop:
            return None
        cache.starts.put(segment, offset, starts)
    return starts


def _read_few(
    disk: Disk, cache: Cache, segment: Segment, starts: Starts, seq: int, end: int, last: int
) -> Block | None:
    """A block with *seq* and perhaps some messages behind it; None when the page up to *last* is to be read.

    Raises OSError.
    """
    place = starts.place(seq)
    start, until = starts.offset(place), starts.offset(place + 1)
    long = until - start >= _LONG_BYTES
    if long:
        stretch = cache.stretches.get(segment, start, until)
        if stretch is not None:
            found = stretch.at(seq)
            return found if isinstance(found, Block) else None
    else:
        # A reader that takes one message after the other will want the rest of the page.
        starts.reads += _IN_A_ROW if seq == starts.next else 1
        starts.next = end
        if starts.worth_the_page(last):
            # From now on the cache has the whole page.
            starts.reads = 0
            return None
        if end - seq > 1:
            until = max(until, min(starts.offset(starts.place(end - 1) + 1), start + _MAX_READ_BYTES))
    cache.reads += 1
    try:
        data = read_bytes(disk, segment, until - start, start)
    except FileNotFoundError:
        return None
    block = _block_at(data, start, segment.header.salt, seq, end)
    if long and block is not None:
        cache.stretches.put(segment, start, CachedRange([block], until))
    return block


def _block_at(data: bytes, base: int, salt: int, seq: int, end: int) -> Block | None:
    """The messages of the append with *seq*, and those before *end* of the appends that follow it in *data*.

    None unless *data*, which lies at *base*, begins with that append and the append is whole.
    """
    pieces: list[bytes] = []
    first = following = -1
    has_headers = False
    at = 0
    while at < len(data):
        append = decode_append(data, at, base, salt)
        if append is None or append.is_note:
            break
        if pieces and (append.first != following or append.has_headers != has_headers):
            break
        piece = data[append.start - base : append.end - base]
        if not append.matches(piece, salt):
            break
        if not pieces:
            if not append.first <= seq < append.next:
                return None
            first, has_headers = append.first, append.has_headers
        pieces.append(piece)
        following = append.next
        if following >= end:
            break
        at = append.end - base
    if not pieces:
        return None
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return parse_block(first, joined, has_headers=has_headers)


def read_bytes(disk: Disk, segment: Segment, size: int, offset: int) -> bytes:
    """These bytes of the file, fewer where it ends. Raises OSError, also when a read gives too few bytes."""
    path = segment.path
    fd = disk.open_read(path)
    try:
        data = disk.read(fd, size, offset)
        if len(data) < size and disk.size(fd) >= offset + size:
            raise OSError(errno.EIO, "short read", str(path))
        return data
    finally:
        disk.close(fd)


def blocks_in(
    segment: Segment, data: bytes, base: int, size: int, first: int, last: int
) -> list[Block | Gap]:
    """The messages ``first <= seq < last`` in *data*, which is at *base* and should have *size* bytes."""
    reader = _Reader(segment, first)
    salt = segment.header.salt
    view = memoryview(data)
    at = base
    damaged = False
    for place in walk(Window(data, base), base, salt, first):
        append = place.append
        if append is None:
            damaged = True
            continue
        if damaged:
            reader.missing(append.first, Why.DAMAGED)
            damaged = False
        at = append.end
        if not append.is_note:
            reader.take(append, view[append.start - base : append.end - base])
    # The rest up to the next page is missing: it is damaged, or this is the end of a compacted file.
    reader.missing(last, reader.between if at == base + size else Why.DAMAGED)
    return reader.found


class _Reader:
    """Turns appends into blocks, and missing messages into gaps."""

    def __init__(self, segment: Segment, first: int) -> None:
        self.found: list[Block | Gap] = []
        # Messages missing between two appends of a compacted file were finished on all channels.
        self.between = Why.COMPACTED if segment.header.ends else Why.UNUSED
        self._salt = segment.header.salt
        self._next = first
        # Appends that follow one another and are of one kind make one block.
        self._run: list[memoryview] = []
        self._run_first = first
        self._run_has_headers = False

    def take(self, append: Append, data: memoryview) -> None:
        if append.first > self._next:
            self.missing(append.first, self.between)
        if not append.matches(data, self._salt):
            self.missing(append.next, Why.DAMAGED)
            return
        if self._run and append.has_headers != self._run_has_headers:
            self._end_run()
        if not self._run:
            self._run_first = append.first
            self._run_has_headers = append.has_headers
        self._run.append(data)
        self._next = append.next

    def missing(self, end: int, why: Why) -> None:
        """Nothing can be read up to the sequence *end*."""
        self._end_run()
        if end > self._next:
            self.found.append(Gap(self._next, end, why))
            self._next = end

    def _end_run(self) -> None:
        if self._run:
            data = b"".join(self._run)
            self.found.append(parse_block(self._run_first, data, has_headers=self._run_has_headers))
            self._run = []


# Reading so many unwanted bytes takes less time than another read.
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
) -> list[Buffer]:
    """The frames of *seqs*, which are sorted and lie in one page, in order until *room* bytes are full.

    They are the frames for an *extended* or a plain subscriber. They end after *reads* reads of the disk, or
    a few more, and before a message that these reads cannot return. A read of that message gives the reason.
    Raises OSError.
    """
    last, offset = segment.page_end(page), segment.page_offsets[page]
    found: list[Buffer] = []
    end_reads = cache.reads + reads
    if cache.stretches.get(segment, offset, offset + segment.page_size(page)) is None:
        starts = _starts_of(disk, cache, segment, page)
        if starts is not None and starts.one_each(last) and not starts.worth_the_page(last):
            flags = MESSAGE_HEADERS if extended else 0
            end_reads = cache.reads + reads
            found = _one_each(disk, cache, segment, starts, seqs, room, reads, flags)
            starts.reads += len(found)
    room -= sum(map(len, found))
    block: Block | None = None
    # The rest: the page is in memory, its appends have several messages, or a message is of the other kind.
    for seq in seqs[len(found) :]:
        if room <= 0 or cache.reads >= end_reads:
            break
        if block is None or not block.first <= seq < block.next:
            piece_of_page = read(disk, cache, segment, page, seq, seq + 1)
            if not isinstance(piece_of_page, Block):
                break
            block = piece_of_page
        piece = frames_for(block, seq, seq + 1, extended=extended)
        found.append(piece)
        room -= len(piece)
    return found


def _one_each(
    disk: Disk,
    cache: Cache,
    segment: Segment,
    starts: Starts,
    seqs: list[int],
    room: int,
    reads: int,
    flags: int,
) -> list[Buffer]:
    """Frames of a page whose appends have one message each, up to one with other *flags*. Raises OSError."""
    salt = segment.header.salt
    parts = _parts(starts, seqs, room, reads)
    found: list[Buffer] = []
    fd = disk.open_read(segment.path)
    try:
        # It only saves time, and not every file system does it.
        with suppress(OSError):
            for places in parts[1:]:
                disk.read_ahead(fd, places[-1][1] - places[0][0], places[0][0])
        for places in parts:
            cache.reads += 1
            begin, end = places[0][0], places[-1][1]
            data = disk.read(fd, end - begin, begin)
            for start, behind in places:
                frame = only_frame(data, start - begin, behind - begin, seqs[len(found)], salt, flags)
                if frame is None:
                    return found
                found.append(frame)
    finally:
        disk.close(fd)
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
