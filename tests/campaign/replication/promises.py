"""What publishers were promised, and what consumers have finished."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.replication.node import DATA
from tests.support.simulated_disk import SimulatedDisk


@dataclass
class Promise:
    """A message that was answered with OK: its topic, its origin, and the channels that get it."""

    topic: str
    origin: bytes
    channels: set[str]
    # No channel existed yet, so the first one gets the message.
    is_backlog: bool
    # How many replicas were in sync at the OK.
    copies: int = 0


@dataclass
class Promises:
    """The promises of one history."""

    made: dict[bytes, Promise] = field(default_factory=dict)
    # Messages whose publishers have no answer yet.
    unanswered: dict[bytes, Promise] = field(default_factory=dict)
    done: dict[tuple[str, str], set[bytes]] = field(default_factory=dict)
    again: int = 0
    by_another: int = 0
    waived: int = 0
    # When each message was finished first, and on which node.
    finished_at: dict[tuple[str, str, bytes], tuple[int, int]] = field(default_factory=dict)

    def finished(self, topic: str, channel: str, body: bytes, now: int, number: int) -> None:
        done = self.done.setdefault((topic, channel), set())
        self.again += body in done
        done.add(body)
        self.finished_at.setdefault((topic, channel, body), (now, number))

    def is_kept(self, body: bytes) -> bool:
        one = self.made[body]
        if one.is_backlog:
            return any(body in done for (name, _), done in self.done.items() if name == one.topic)
        return all(body in self.done.get((one.topic, channel), ()) for channel in one.channels)

    def open(self) -> list[bytes]:
        return [body for body in self.made if not self.is_kept(body)]

    def waive(self, topic: str, origins: set[bytes], channel: str | None) -> None:
        """Drop promises of messages that an operator deleted, emptied or passed over."""
        for promises in (self.made, self.unanswered):
            for body, one in list(promises.items()):
                if one.topic != topic or one.origin not in origins:
                    continue
                if channel is None or one.is_backlog or one.channels == {channel}:
                    self.waived += 1
                    del promises[body]
                else:
                    one.channels.discard(channel)


def bodies_in(disk: SimulatedDisk) -> bytes:
    """Return the contents of all log files of a disk that a start would use.

    A node that is to be killed at a call of its disk is not killed at these.
    """
    found: list[bytes] = []
    before_call, disk.before_call = disk.before_call, lambda _call: None

    def walk(folder: Path) -> None:
        for name in disk.names(folder):
            path = folder / name
            if name.endswith((".log", ".new")):
                found.append(disk.read_file(path))
            elif not name.endswith(".deleted"):
                try:
                    walk(path)
                except OSError:
                    continue

    walk(DATA)
    disk.before_call = before_call
    return b"\n".join(found)
