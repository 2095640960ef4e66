"""Finding the segments of a topic at start: leftovers removed, version 1 rewritten, a torn end cut off."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqd.storage import version1
from nsqd.storage.disk import Disk
from nsqd.storage.layout import NotALog
from nsqd.storage.recovery import Mark, Noted, Stored, open_segment, recover
from nsqd.storage.segment import Segment

_LOG_NAME: Final = re.compile(r"(\d{8,})(?:\.(\d+))?\.log")
# Files that were not finished, or whose place was taken.
_LEFTOVER: Final = (".tmp", ".new")
UNREADABLE: Final = ".unreadable"
NO_LIMIT: Final = 1 << 63
# What the warning of damaged places ends with; `nsqd-data` names each of them instead.
PLACES_DAMAGED: Final = "places are damaged"


@dataclass(slots=True)
class Found:
    """The segments, oldest first, and what happened after the checkpoint, in order."""

    segments: list[Segment] = field(default_factory=list)
    happenings: list[Stored | Noted] = field(default_factory=list)
    next_number: int = 1
    # What the folder held when it was looked at, other files included.
    names: list[str] = field(default_factory=list)


def find_segments(
    disk: Disk, folder: Path, mark: Mark | None, low_water: int, warn: Callable[[str], None]
) -> Found:
    """What is in the folder; *mark* is None when the checkpoint that was there cannot be used.

    Segments below *low_water* may have been let go of. Raises OSError when something cannot be read or
    mended, and NewerVersion.
    """
    # Without the checkpoint nobody knows what was let go of, so nothing that is there is taken for a remnant.
    synced = None if mark is None else mark.synced
    mark = mark or Mark()
    names = disk.names(folder)
    for name in names:
        if name.endswith(_LEFTOVER):
            disk.remove(folder / name)
    if version1.convert(disk, folder, names, warn):
        names = disk.names(folder)
    found = Found(names=names)
    segments = _newest_generations(disk, folder, names, warn)
    to_sync = False
    if segments:
        found.next_number = segments[-1].number + 1
    if any(name.endswith(UNREADABLE) for name in names):
        # What was in that file did reach the disk.
        synced = None
    place = 0
    before = _Before(low_water, mark.notes)
    while place < len(segments):
        if synced is not None and before.misses(segments[place], synced):
            # The log was torn in a file of which not even the name has reached the disk, or not the end.
            warn(f"{segments[place].path}: what came before it never reached the disk, it is removed")
            gone = _leading(segments[place:])
            _remove(disk, folder, segments[place : place + gone])
            del segments[place : place + gone]
            continue
        behind = segments[place + 1 :]
        recovered = recover(disk, segments[place], mark, _limit(behind))
        segment = recovered.segment
        if recovered.torn:
            warn(f"{segment.path}: the end was not written completely, cut {recovered.torn} bytes")
            del segments[place + 1 : place + 1 + _cut(disk, segment, behind)]
        if recovered.damages:
            warn(f"{segment.path}: {recovered.damages} {PLACES_DAMAGED}")
        if segment.pages or segment.header.ends:
            found.segments.append(segment)
            found.happenings += recovered.happenings
            before.add(segment)
        else:
            segment.remove(disk)
        if segment.next > mark.synced or segment.last_note > mark.notes:
            _sync(disk, segment)
            to_sync = True
        segment.synced = segment.next
        place += 1
    if to_sync:
        disk.sync_folder(folder)
        disk.sync_folder(folder.parent)
    return found


def _cut(disk: Disk, segment: Segment, behind: list[Segment]) -> int:
    """Cut the torn end off *segment*; returns how many segments behind it went with it.

    What lies behind what never reached the disk does not count, or there would be a hole in the log. It goes
    first, the newest before the others, so that a crash in between leaves no such hole either. But a segment
    that was begun because this one failed stays, with all behind it: publishers were told of the failure, and
    what came later may have been synced.
    """
    gone = 0 if behind and behind[0].header.after_failure else _leading(behind)
    _remove(disk, segment.folder, behind[:gone])
    disk.truncate(segment.path, segment.size)
    return gone


class _Before:
    """What was found so far, and what a segment says of what was before it."""

    def __init__(self, low_water: int, notes: int) -> None:
        """Segments below *low_water*, with notes up to *notes*, may have been let go of."""
        self._end = low_water
        self._notes = notes

    def misses(self, segment: Segment, synced: int) -> bool:
        """Whether something before the segment never reached the disk, as a power cut may have it."""
        header = segment.header
        if header.after_failure or header.ends or header.first < synced:
            return False
        return header.follows > max(self._end, synced) or header.notes > self._notes

    def add(self, segment: Segment) -> None:
        self._end = max(self._end, segment.next)
        self._notes = max(self._notes, segment.last_note)


def _leading(segments: list[Segment]) -> int:
    """How many of them, from the first on, depend on what was before."""
    for place, segment in enumerate(segments):
        if place and segment.header.after_failure:
            return place
    return len(segments)


def _remove(disk: Disk, folder: Path, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        segment.remove(disk)
    if segments:
        disk.sync_folder(folder)


def _limit(behind: list[Segment]) -> int:
    """Where the log had ended when the next segment was begun, as that one says."""
    return (behind[0].header.follows if behind else 0) or NO_LIMIT


def _newest_generations(
    disk: Disk, folder: Path, names: list[str], warn: Callable[[str], None]
) -> list[Segment]:
    """The segments there are files of, without their extents; of several generations the newest."""
    newest: dict[int, Segment] = {}
    matches = [match for name in names if (match := _LOG_NAME.fullmatch(name))]
    for match in sorted(matches, key=lambda match: (int(match[1]), int(match[2] or 0))):
        number, generation = int(match[1]), int(match[2] or 0)
        path = folder / match[0]
        try:
            segment = open_segment(disk, path, number, generation)
        except NotALog as error:
            # What was in it is missed: the next segment says where this one ended.
            warn(f"{path} is put aside: {error}")
            disk.rename(path, path.with_name(path.name + UNREADABLE))
            names.append(path.name + UNREADABLE)
            continue
        if segment is None:
            disk.remove(path)
            continue
        if (older := newest.get(number)) is not None:
            older.remove(disk)
        newest[number] = segment
    return [newest[number] for number in sorted(newest)]


def _sync(disk: Disk, segment: Segment) -> None:
    if not segment.pages:
        return
    fd = disk.open_read(segment.path)
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)
