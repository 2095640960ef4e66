"""A log whose writes all go to a keeper on another disk, frame by frame, without a socket."""

from pathlib import Path

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk
from nsqd.log.tap import Tap
from nsqd.replication.copies import Copies
from nsqd.replication.frames import AnyFrame, Appends, Begin, CopiedTopic, FilePart, Hello, Refuse
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.willing import Keeping
from tests.support.jobs import run_all
from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import Shop

HOME, KEEPER = b"h" * 16, b"k" * 16
DATA = Path("/data")
HELLO = Hello(HOME, 1, 1, "home:4150")
FIRST, SECOND = "00000001.log", "00000002.log"


class Said(Tap):
    """A log's tap that records the appends as frames."""

    def __init__(self) -> None:
        self.frames: list[AnyFrame] = []

    def appended(self, segment, offset, pieces):  # type: ignore[no-untyped-def]
        self.frames.append(Appends(1, segment.path.name, offset, b"".join(pieces)))


class Shelf:
    """A keeper on a disk, with the one connection of its home."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or SimulatedDisk(DATA)
        self.keeping = Keeping(Copies(self.disk, DATA), KEEPER, 2, "keeper:4150")
        self.link = KeeperLink(self.keeping)
        self._reader = FrameReader()

    def connect(self) -> None:
        """Connect the home again."""
        self.link.closed()
        self.link = KeeperLink(self.keeping)
        self._reader = FrameReader()

    def say(self, *frames: AnyFrame) -> list[AnyFrame]:
        """Send frames, run the keeper's jobs, and return its answers."""
        self.link.receive(b"".join(map(encode, frames)))
        self.work()
        return self.answers()

    def work(self) -> None:
        run_all(self.link.jobs, self.disk, self.link.ended)

    def answers(self) -> list[AnyFrame]:
        data, self.link.out = b"".join(self.link.out), []
        return list(self._reader.feed(data))

    def begin(self, hello: Hello = HELLO, topic: str = "t") -> list[AnyFrame]:
        """Send hello, one topic as folder 1, and begin; return the answers."""
        found = self.say(hello)
        found += self.say(CopiedTopic(1, topic))
        return found + self.say(Begin(hello.appointment))

    def content(self, name: str, appointment: int = 1, topic: str = "t") -> bytes:
        return self.disk.read_file(self.folder(appointment, topic) / name)

    def folder(self, appointment: int = 1, topic: str = "t") -> Path:
        return DATA / "carried" / HOME.hex() / str(appointment) / f"{topic}.topic"

    def names(self, appointment: int = 1, topic: str = "t") -> list[str]:
        return self.disk.names(self.folder(appointment, topic))


def home_file(shop: Shop, name: str = FIRST) -> bytes:
    return shop.store._disk.read_file(shop.folder / name)


def part(name: str, offset: int, data: bytes) -> FilePart:
    return FilePart(1, name, offset, xxh3_64_intdigest(data), data)


def refused(answers) -> Refuse:
    (found,) = [one for one in answers if isinstance(one, Refuse)]
    return found
