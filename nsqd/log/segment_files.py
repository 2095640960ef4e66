"""Finding the segments of a topic at start; leftovers are removed, and a torn end is cut off."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.log.layout import NotALog
from nsqd.log.ranges import Ranges
from nsqd.log.recovery import open_segment, recover
from nsqd.log.segment import Segment
from nsqd.log.tail_records import CheckpointPosition, RecoveredMessages, RecoveredNote

_LOG_NAME: Final = re.compile(r"(\d{8,})(?:\.(\d+))?\.log")
# Unfinished files, and files that did not replace another.
_LEFTOVER: Final = (".tmp", ".new")
UNREADABLE: Final = ".unreadable"
NO_LIMIT: Final = 1 << 63
# The end of the warning about damaged places. `nsqd-data` names each place instead.
PLACES_DAMAGED: Final = "places are damaged"
_MISPLACED: Final = "it is not from this place of the log"


@dataclass(slots=True)
class FoundSegments:
    """The segments, oldest first, and the records after the checkpoint, in order."""

    segments: list[Segment] = field(default_factory=list)
    tail_records: list[RecoveredMessages | RecoveredNote] = field(default_factory=list)
    next_number: int = 1
    # Messages that are known to be damaged; a reader may find others.
    damaged: Ranges = field(default_factory=list)
    # The names in the folder when it was listed, other files included.
    names: list[str] = field(default_factory=list)


def find_segments(
    disk: Disk, folder: Path, mark: CheckpointPosition | None, warn: Callable[[str], None]
) -> FoundSegments:
    """Find the segments in *folder*; *mark* is None when the checkpoint that was there cannot be used.

    Each file is used whatever happened to the others: NSQ promises no order, so messages missing between two
    files are only a gap. Raises OSError when something cannot be read or mended, and NewerVersion.
    """
    known, mark = mark is not None, mark or CheckpointPosition()
    names = disk.names(folder)
    for name in names:
        if name.endswith(_LEFTOVER):
            disk.remove(folder / name)
    found = FoundSegments(names=names)
    segments = _newest_generations(disk, folder, names, warn)
    to_sync = False
    if segments:
        found.next_number = segments[-1].number + 1
        if known and not mark.next and segments[0].header.follows:
            # Files are removed only when checkpoints know that. How much the missing files held is not
            # known.
            warn(f"{segments[0].path}: what was stored before it is lost, and no checkpoint tells of it")
    for place, empty in enumerate(segments):
        if found.segments and empty.first < found.segments[-1].next:
            # The previous segment has messages beyond the start of this one.
            _rename_aside(disk, empty.path, names, warn, _MISPLACED)
            continue
        recovered = recover(disk, empty, mark, _limit(segments[place + 1 :]))
        segment = recovered.segment
        if recovered.torn:
            warn(f"{segment.path}: the end was not written completely, cut {recovered.torn} bytes")
            disk.truncate(segment.path, segment.size)
        if recovered.damages:
            warn(f"{segment.path}: {recovered.damages} {PLACES_DAMAGED}")
            found.damaged += recovered.damaged
        if segment.pages or segment.header.ends:
            found.tail_records += _missing(found.segments, segment, mark)
            found.segments.append(segment)
            found.tail_records += recovered.tail_records
        else:
            segment.remove(disk)
        if segment.next > mark.synced or segment.last_note > mark.synced_notes:
            _sync(disk, segment)
            to_sync = True
        segment.end_synced()
    if to_sync:
        disk.sync_folder(folder)
        disk.sync_folder(folder.parent)
    return found


def _missing(before: list[Segment], segment: Segment, mark: CheckpointPosition) -> list[RecoveredMessages]:
    """Messages that were stored after the checkpoint and whose file before *segment* is missing.

    They are pending, so that readers find the gap and count the loss.
    """
    follows = segment.header.follows
    # Before the first file, only messages that a checkpoint covers may have been removed.
    first = max(before[-1].next if before else 0, mark.next) or follows
    return [RecoveredMessages(first, follows)] if first < follows else []


def _limit(behind: list[Segment]) -> int:
    """Where the log ended when the next segment was begun, if that segment says so; else where it begins."""
    return (behind[0].header.follows or behind[0].first) if behind else NO_LIMIT


def _newest_generations(
    disk: Disk, folder: Path, names: list[str], warn: Callable[[str], None]
) -> list[Segment]:
    """The segment of each file, without its extent; of several generations only the newest."""
    newest: dict[int, Segment] = {}
    replaced: list[Segment] = []
    matches = [match for name in names if (match := _LOG_NAME.fullmatch(name))]
    for match in sorted(matches, key=lambda match: (int(match[1]), int(match[2] or 0))):
        number, generation = int(match[1]), int(match[2] or 0)
        path = folder / match[0]
        try:
            segment = open_segment(disk, path, number, generation)
        except NotALog as error:
            _rename_aside(disk, path, names, warn, str(error))
            continue
        if segment is None:
            disk.remove(path)
            continue
        if (older := newest.get(number)) is not None:
            replaced.append(older)
        newest[number] = segment
    found: list[Segment] = []
    spoken_for = 0
    segments = [newest[number] for number in sorted(newest)]
    in_order = _in_order(segments)
    for place, segment in enumerate(segments):
        if place not in in_order:
            _rename_aside(disk, segment.path, names, warn, _MISPLACED)
            continue
        if segment.first < spoken_for:
            # Compaction merged it into the segment before it.
            replaced.append(segment)
            continue
        spoken_for = max(spoken_for, segment.header.ends)
        found.append(segment)
    _remove_replaced(disk, folder, replaced)
    return found


def _in_order(segments: list[Segment]) -> set[int]:
    """The indexes of the longest series of segments in the order of writing.

    The others are out of order: an operator may have replaced a file.
    """
    # For each length, the series whose last segment begins first: `last` has the index of that segment,
    # `begins` its start. `before` has for each index its predecessor in the series.
    last: list[int] = []
    begins: list[int] = []
    before: list[int] = []
    salts: set[int] = set()
    for place, segment in enumerate(segments):
        # A file may hold only notes, and then the next one begins at the same sequence. Two files that have
        # one salt are the same file.
        behind = bisect_left if segment.header.salt in salts else bisect_right
        salts.add(segment.header.salt)
        length = behind(begins, segment.first)
        before.append(last[length - 1] if length else -1)
        begins[length : length + 1] = [segment.first]
        last[length : length + 1] = [place]
    row: set[int] = set()
    place = last[-1] if last else -1
    while place >= 0:
        row.add(place)
        place = before[place]
    return row


def _rename_aside(disk: Disk, path: Path, names: list[str], warn: Callable[[str], None], reason: str) -> None:
    """Rename a file so that it is not read. The next segment shows that its messages are missing."""
    warn(f"{path} is put aside: {reason}")
    disk.rename(path, path.with_name(path.name + UNREADABLE))
    names.append(path.name + UNREADABLE)


def _remove_replaced(disk: Disk, folder: Path, replaced: list[Segment]) -> None:
    """Remove files that a compacted file replaced, after a crash before their removal.

    The crash may have come before the name of the compacted file was durable. A power cut may then take that
    name, and the replaced files are needed again. So the folder is synced first.
    """
    if replaced:
        disk.sync_folder(folder)
    for segment in replaced:
        segment.remove(disk)


def _sync(disk: Disk, segment: Segment) -> None:
    if not segment.pages:
        return
    fd = disk.open_read(segment.path)
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)
