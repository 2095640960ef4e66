"""Flipped bits: one bit of one file is wrong; at most its append may be lost, and the node must report it."""

from collections.abc import Iterator
from pathlib import Path

from tests.campaign.model import Found
from tests.campaign.played import Played, a_day_behind
from tests.campaign.restored import read_back
from tests.support.simulated_disk import SimulatedDisk

# An MPUB of the workload is one append.
APPEND_MESSAGES = 6


def places(disk: SimulatedDisk, every: int, start: int) -> Iterator[tuple[str, int]]:
    """Yield paths and offsets of the bytes to be flipped: each *every*-th byte that the storage reads.

    nsqd.dat is left out: if it cannot be parsed nsqd does not start, like the original, but nothing is lost.
    """
    number = start
    for path, inode in disk.volume.walk():
        file = disk.volume.files.get(inode)
        if file is None or path.endswith(("spare", ".tmp", "nsqd.dat")):
            continue
        for offset in range(file.size):
            number += 1
            if number % every == 0:
                yield path, offset


def flipped(disk: SimulatedDisk, path: str, offset: int, bit: int) -> SimulatedDisk:
    """Return the disk with one bit of a file flipped."""
    other = disk.killed()
    fd = other.open_write(Path(path))
    wrong = other.read(fd, 1, offset)[0] ^ (1 << bit)
    other.write_at(fd, bytes([wrong]), offset)
    other.close(fd)
    other.sync_all()
    return other


def flip_everywhere(played: Played, every: int) -> Iterator[tuple[str, int, str]]:
    """Flip bits in the files that a workload has left; yield what each of them broke, "" for nothing."""
    with a_day_behind():
        whole = read_back(played.disk.killed())
        for path, offset in places(played.disk, every, played.seed):
            disk = flipped(played.disk, path, offset, (played.seed + offset) % 8)
            try:
                found, warnings = read_back_and_warnings(disk)
            except Exception as error:  # noqa: BLE001 - every error means that the node does not start
                yield path, offset, f"the node does not start: {type(error).__name__}: {error}"
                continue
            yield path, offset, _broken(whole, found, set(played.model.messages), warnings, path)


def read_back_and_warnings(disk: SimulatedDisk) -> tuple[Found, list[str]]:
    """Return the state of a restored node, and its warnings."""
    warnings: list[str] = []
    return read_back(disk, warnings), warnings


def _broken(whole: Found, found: Found, published: set[bytes], warnings: list[str], path: str) -> str:
    missing: set[bytes] = set()
    for name, topic in whole.topics.items():
        here = found.topics.get(name)
        if here is None:
            return f"topic {name} is gone"
        for channel_name, channel in topic.channels.items():
            there = here.channels.get(channel_name)
            if there is None:
                return f"channel {name}/{channel_name} is gone"
            if there.paused != channel.paused:
                return f"channel {name}/{channel_name} is paused: {there.paused}"
            missing |= set(channel.bodies) - set(there.bodies)
        if topic.backlog and here.backlog:
            missing |= set(topic.backlog.bodies) - set(here.backlog.bodies)
        if here.paused != topic.paused:
            return f"topic {name} is paused: {here.paused}"
    invented = set(found.seqs) - published
    if invented:
        return f"messages that no client published: {[body[:24] for body in invented]}"
    if len(missing) > APPEND_MESSAGES:
        return f"{len(missing)} messages are lost"
    if missing and not path.endswith(".log"):
        return f"{len(missing)} messages are lost though no log is damaged"
    if missing and not warnings and not found.lost:
        return f"{len(missing)} messages are lost, and no gap names them"
    return ""
