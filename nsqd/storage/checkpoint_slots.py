"""The two checkpoints of a topic: the newest, and the one before it in case the newest cannot be used.

They take turns in two files, each with a serial number, and the highest that is whole counts. The newest
durable one is never written over, so a power cut at any moment leaves one to start from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from nsqd.engine.topic import Topic
from nsqd.storage import checkpoint
from nsqd.storage.checkpoint import BadCheckpoint, Sealed, TopicState
from nsqd.storage.disk import Disk
from nsqd.storage.recovery import Mark

NAMES: Final = ("checkpoint.0", "checkpoint.1")
# What version 1 had, without a second one.
VERSION_1: Final = "checkpoint"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Slot:
    """What the checkpoint in a file says; *durable* when a power cut does not change that."""

    serial: int
    low_water: int
    notes: int
    durable: bool


class CheckpointJob:
    """One checkpoint to be written: :meth:`run` in any thread, then :meth:`CheckpointSlots.end`."""

    def __init__(
        self, path: Path, encode: Callable[[], bytes], slot: _Slot, place: int, version_1: Path | None
    ) -> None:
        self.slot = slot
        self.place = place
        self._path = path
        self._encode = encode
        self._version_1 = version_1

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        disk.replace(self._path, self._encode(), durable=self.slot.durable)
        if self.slot.durable:
            disk.sync_folder(self._path.parent)
            if self._version_1 is not None:
                disk.remove(self._version_1)


class CheckpointSlots:
    """Which checkpoints there are, and what both of them cover."""

    __slots__ = ("_disk", "_folder", "_has_version_1", "_slots", "damaged")

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._slots: list[_Slot | None] = [None, None]
        # Version 1 may have left its checkpoint, until there is a durable one of ours.
        self._has_version_1 = False
        # There was a checkpoint at start that could not be used.
        self.damaged = False

    def load(self, warn: Callable[[str], None]) -> TopicState | None:
        """The newest checkpoint that is whole; None when there is none. Raises OSError and NewerVersion."""
        whole = [
            (sealed, place)
            for place, name in enumerate(NAMES)
            if (sealed := self._read(name, Sealed, warn)) is not None
        ]
        found: TopicState | None = None
        for sealed, place in sorted(whole, key=lambda one: -one[0].serial):
            if found is None:
                found = self._unless_bad(NAMES[place], sealed.state, warn)
            if found is not None:
                # Whether it ever reached the disk is not known, so it covers nothing.
                self._slots[place] = _Slot(sealed.serial, 0, 0, durable=False)
        # It goes with the first durable one of this life, also when an earlier life left it behind.
        self._has_version_1 = True
        return found or self._read(VERSION_1, checkpoint.decode, warn)

    def _read(self, name: str, use: Callable[[bytes], _T], warn: Callable[[str], None]) -> _T | None:
        try:
            content = self._disk.read_file(self._folder / name)
        except FileNotFoundError:
            return None
        return self._unless_bad(name, lambda: use(content), warn)

    def _unless_bad(self, name: str, use: Callable[[], _T], warn: Callable[[str], None]) -> _T | None:
        try:
            return use()
        except BadCheckpoint as error:
            self.damaged = True
            warn(f"cannot use {self._folder / name}: {error}")
            return None

    def begin(self, topic: Topic, mark: Mark, *, durable: bool = True) -> CheckpointJob:
        """The checkpoint of a topic as it is now."""
        serials = [slot.serial if slot else -1 for slot in self._slots]
        newest_durable = max((slot.serial for slot in self._slots if slot and slot.durable), default=-1)
        place = serials.index(min(serials))
        if newest_durable >= 0 and serials[place] == newest_durable:
            place = 1 - place
        slot = _Slot(max(0, *serials) + 1, topic.low_water(), mark.notes, durable)
        encode = checkpoint.encoder(topic, slot.serial, mark)
        # Until it is written nobody knows what is in that file.
        self._slots[place] = None
        version_1 = self._folder / VERSION_1 if self._has_version_1 else None
        return CheckpointJob(self._folder / NAMES[place], encode, slot, place, version_1)

    def end(self, job: CheckpointJob) -> None:
        """The job has run without an error."""
        self._slots[job.place] = job.slot
        if job.slot.durable:
            self._has_version_1 = False

    @property
    def covered_low_water(self) -> int:
        """Nobody owes anything below this sequence, whichever of the two is believed."""
        return min(slot.low_water if slot and slot.durable else 0 for slot in self._slots)

    @property
    def covered_notes(self) -> int:
        """Both know of the notes up to this number."""
        return min(slot.notes if slot and slot.durable else 0 for slot in self._slots)
