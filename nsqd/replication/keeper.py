"""The keeper's side of a connection: frames in, effects on the copies, frames out. No socket, no clock.

The driver feeds what comes off the wire to :meth:`KeeperLink.receive`, sends what is in `out`, runs what
:meth:`KeeperLink.jobs` gives in any thread and hands each back to :meth:`KeeperLink.ended`, and asks for
:meth:`KeeperLink.sync` now and then. When `closing` is set the connection ends behind what is in `out`. A
simulated node does the same with no thread and no socket.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from nsqd.log.disk import Disk
from nsqd.replication.copies import Copies
from nsqd.replication.copy_folder import CopyFolder, CopyJob, CopySync, Mismatch
from nsqd.replication.frames import (
    MAX_FRAME,
    MAX_LIVE,
    MAX_TOPICS,
    VERSION,
    Ack,
    AnyFrame,
    Appends,
    BadFrame,
    Begin,
    CopiedTopic,
    CopyState,
    Deleted,
    FilePart,
    Finished,
    FrameReader,
    Had,
    Have,
    Hello,
    Refuse,
    Remove,
    Rename,
    Seal,
    StillHere,
    SyncCopy,
    Told,
    Welcome,
    encode,
)


class KeeperState(IntEnum):
    """Where a connection stands."""

    NEW = 0
    # The driver asks who the home is.
    ASKING = 1
    # The home names its topics.
    MEETING = 2
    COPYING = 3
    CLOSED = 4


_ITS_OWN: Final = "each nsqd needs its own --node-id"
# What a home says of what it has, when it is asked.
_KNOWN: Final = (Had, Finished, Told)
_WRITES: Final = (
    *_KNOWN,
    CopiedTopic,
    CopyState,
    Appends,
    FilePart,
    Rename,
    Remove,
    Seal,
    Deleted,
    SyncCopy,
    StillHere,
)
# What the home may say in each state.
ALLOWED: Final[dict[KeeperState, tuple[type[AnyFrame], ...]]] = {
    KeeperState.NEW: (Hello,),
    KeeperState.ASKING: (),
    KeeperState.MEETING: (CopiedTopic, Deleted, Begin, StillHere, *_KNOWN),
    KeeperState.COPYING: _WRITES,
    KeeperState.CLOSED: (),
}


@dataclass(slots=True)
class Keeping:
    """What one node keeps, for all its connections."""

    copies: Copies
    identity: bytes
    node_id: int
    address: str
    # Secrets are asked about before a home is welcomed.
    asks: bool = False
    # The reason why nothing is kept just now, such as a disk that is nearly full; empty when it is.
    unwilling: Callable[[], str] = lambda: ""
    # Somebody has to let go of the copies of a home before that goes on with them; True when nobody does.
    released: Callable[[bytes], bool] = lambda _identity: True
    # A home was welcomed, or its connection is gone; with True it has said that it leaves for good.
    came: "Callable[[KeeperLink], None]" = lambda _link: None
    went: "Callable[[KeeperLink, bool], None]" = lambda _link, _for_good: None
    # It says what it has and what is finished.
    heard: "Callable[[KeeperLink, Had | Finished | Told], None]" = lambda _link, _frame: None
    links: "dict[bytes, KeeperLink]" = field(default_factory=dict)


@dataclass(slots=True)
class _Load:
    """Finding what there is of one copy."""

    folder: CopyFolder
    number: int

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        if not self.folder.loaded:
            self.folder.load()


@dataclass(slots=True)
class _Durable:
    """An fsync of all that was written up to a position."""

    sync: CopySync
    position: int

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        self.sync.run(disk)


KeeperJob: TypeAlias = "_Load | _Durable | CopyJob"


class KeeperLink:
    """One connection of a home; see the module."""

    def __init__(self, keeping: Keeping) -> None:
        self.state = KeeperState.NEW
        self.out: list[bytes] = []
        # What the home said of itself; None before that.
        self.hello: Hello | None = None
        # Of copies whose word counts, or that are whole: the numbers of their folders.
        self.linked: set[int] = set()
        self.filled: set[int] = set()
        # Why the connection ends, for the log; empty when the home ended it.
        self.reason = ""
        # Bytes of frames that were written, and that are durable.
        self.written = 0
        self.synced = 0
        self.appointment = 0
        self._keeping = keeping
        self._reader = FrameReader()
        self._folders: dict[int, CopyFolder] = {}
        self._names: dict[int, str] = {}
        # Numbers that were used on this connection.
        self._used: set[int] = set()
        self._loads: list[_Load] = []
        self._loading = 0
        self._begin: Begin | None = None
        self._early: list[bytes] = []
        self._syncing = False
        self._sync_wanted = False
        self._acknowledged = (0, 0)
        self._for_good = False
        # A visitor has named its topics.
        self.named = False

    @property
    def closing(self) -> bool:
        return self.state is KeeperState.CLOSED

    @property
    def topics(self) -> dict[int, str]:
        """The topics that are copied, by the numbers of their folders."""
        return self._names

    def folder(self, number: int) -> CopyFolder:
        return self._folders[number]

    @property
    def waits_for_release(self) -> bool:
        """The home has named all its topics, and may go on when nobody carries them any more."""
        return self._begin is not None and not self.closing

    @property
    def is_visit(self) -> bool:
        """The home has other keepers by now, and comes to say that it is there."""
        return self.hello is not None and not self.hello.appointment

    def say(self, frame: AnyFrame) -> None:
        """Tell the home something beside what it asks."""
        if not self.closing:
            self.out.append(encode(frame))

    # --- what the driver calls ---

    def receive(self, data: bytes) -> None:
        """Do what the home says."""
        if self.closing:
            return
        if self._deaf:
            self._early.append(data)
            return
        self._hear([data])

    @property
    def _deaf(self) -> bool:
        """The home is not heard until something else is done."""
        return self.state is KeeperState.ASKING or self._begin is not None

    def _hear(self, pieces: list[bytes]) -> None:
        for place, data in enumerate(pieces):
            try:
                for frame in self._reader.feed(data):
                    self._take(frame)
                    if self.closing:
                        return
                    self.written = self._reader.position
                    if self._deaf:
                        break
            except BadFrame as error:
                self.refuse(Refuse.BAD_FRAME, str(error))
                return
            if self._deaf:
                self._early += pieces[place + 1 :]
                break
        self._acknowledge()

    def admitted(self, reason: str) -> None:
        """The answer to who the home is: *reason* is why it may not, or empty."""
        if self.state is not KeeperState.ASKING:
            return
        if reason:
            self.refuse(Refuse.UNAUTHORIZED, reason)
        else:
            self._welcome()
            self._go_on()

    def sync(self) -> None:
        """Have what was written made durable by a job."""
        if self.state is KeeperState.COPYING and any(
            one.dirty or one.new_names for one in self._folders.values()
        ):
            self._sync_wanted = True

    def jobs(self) -> list[KeeperJob]:
        """What waits for the disk now."""
        found: list[KeeperJob] = []
        if self.closing:
            return found
        found += self._loads
        self._loading += len(self._loads)
        self._loads = []
        if self._sync_wanted and not self._syncing:
            self._sync_wanted, self._syncing = False, True
            found.append(_Durable(CopySync(list(self._folders.values())), self.written))
        for folder in self._folders.values():
            job = folder.begin()
            if job is not None:
                found.append(job)
        return found

    def ended(self, job: KeeperJob, error: OSError | None) -> None:
        """A job has run, or failed."""
        if isinstance(job, _Durable):
            self._syncing = False
            if error is None:
                job.sync.end()
                self.synced = max(self.synced, job.position)
                self._acknowledge()
            else:
                job.sync.failed()
        elif isinstance(job, CopyJob):
            if error is None:
                job.folder.end(job)
            else:
                job.folder.loaded = False
        else:
            self._loading -= 1
            if error is None and not self.closing:
                self.out.append(encode(Have(job.number, job.folder.told())))
        if error is not None and not self.closing:
            self.refuse(Refuse.DISK, _disk_says(error))
        elif self._begin is not None and not self._loading:
            self._go_on()

    def refuse(self, code: int, sentence: str) -> None:
        """End the connection with one sentence."""
        if not self.closing:
            self.reason = sentence
            self.out.append(encode(Refuse(code, sentence)))
            self.closed()

    def closed(self) -> None:
        """The connection is gone, or goes."""
        self.state = KeeperState.CLOSED
        for folder in self._folders.values():
            folder.close()
        if self.hello is not None and self._keeping.links.get(self.hello.identity) is self:
            del self._keeping.links[self.hello.identity]
            self._keeping.went(self, self._for_good)

    # --- frames ---

    def _take(self, frame: AnyFrame) -> None:
        if isinstance(frame, Refuse):
            self.reason = frame.sentence
            self._for_good = frame.code == Refuse.LEAVING
            self.closed()
            return
        if not isinstance(frame, ALLOWED[self.state]):
            raise BadFrame(f"{type(frame).__name__} cannot be said now")
        try:
            if isinstance(frame, Had | Finished | Told):
                self.named = True
                self._keeping.heard(self, frame)
            elif self.state is KeeperState.COPYING:
                self._write(frame)
            else:
                self._meet(frame)
        except Mismatch as error:
            self.refuse(Refuse.DAMAGED, str(error))
        except OSError as error:
            self.refuse(Refuse.DISK, _disk_says(error))

    def _meet(self, frame: AnyFrame) -> None:
        if isinstance(frame, Hello):
            self._greet(frame)
        elif isinstance(frame, CopiedTopic):
            folder = self._new_folder(frame)
            self._loads.append(_Load(folder, frame.folder))
        elif isinstance(frame, Deleted):
            self._delete(frame.name)
        elif isinstance(frame, Begin):
            if self._loads or self._loading:
                raise BadFrame("the copy cannot begin before it is known what there is")
            self._begin_copy(frame)

    def _greet(self, hello: Hello) -> None:
        keeping = self._keeping
        if hello.version != VERSION:
            self.refuse(
                Refuse.VERSION, f"version {hello.version} of the stream is not known here, {VERSION} is"
            )
            return
        if hello.identity == keeping.identity:
            self.refuse(Refuse.NOT_WANTED, "a node does not keep its own logs")
            return
        unwilling = keeping.unwilling()
        if unwilling:
            self.refuse(Refuse.NOT_WANTED, unwilling)
            return
        reason = self._same_node_id(hello)
        if reason:
            self.refuse(Refuse.SAME_NODE_ID, reason)
            return
        self.hello = hello
        if keeping.asks:
            self.state = KeeperState.ASKING
        else:
            self._welcome()

    def _same_node_id(self, hello: Hello) -> str:
        if hello.node_id == self._keeping.node_id:
            return f"node id {hello.node_id} is that of the keeper, too: {_ITS_OWN}"
        for identity, link in self._keeping.links.items():
            if link.hello is not None and identity != hello.identity and link.hello.node_id == hello.node_id:
                return f"node id {hello.node_id} is that of {link.hello.address}, too: {_ITS_OWN}"
        return ""

    def _welcome(self) -> None:
        hello, keeping = self.hello, self._keeping
        assert hello is not None  # noqa: S101 - there is no other way here
        before = keeping.links.get(hello.identity)
        if before is not None and before.hello is not None:
            if before.hello.address != hello.address:
                self.refuse(
                    Refuse.TAKEN,
                    f"{before.hello.address} is connected with the identity {hello.identity.hex()}:"
                    " one of the two data paths is a copy of the other",
                )
                return
            # The home has begun again; its old connection is about to end.
            before.refuse(Refuse.TAKEN, "the home has connected again")
        keeping.links[hello.identity] = self
        self.appointment = hello.appointment
        try:
            known = keeping.copies.appointments(hello.identity)
            topics = tuple(keeping.copies.topics(hello.identity, hello.appointment)[:MAX_TOPICS])
        except OSError as error:
            self.refuse(Refuse.DISK, _disk_says(error))
            return
        self.state = KeeperState.MEETING
        latest = max(known, default=0)
        self.out.append(encode(Welcome(keeping.identity, keeping.node_id, keeping.address, latest, topics)))
        keeping.came(self)

    def _begin_copy(self, begin: Begin) -> None:
        hello = self.hello
        assert hello is not None  # noqa: S101 - it was said first
        if begin.appointment < hello.appointment:
            raise BadFrame("an appointment does not become an earlier one")
        if not self._keeping.released(hello.identity):
            self._begin = begin
            return
        self._begin = None
        if begin.appointment > hello.appointment:
            left = set(begin.left)
            for number, folder in list(self._folders.items()):
                name = self._names[number]
                if number in left:
                    folder.close()
                    moved = self._keeping.copies.folder(hello.identity, begin.appointment, name)
                    moved.load()
                else:
                    moved = self._keeping.copies.move(folder, hello.identity, begin.appointment, name)
                    moved.loaded = True
                self._folders[number] = moved
        self.appointment = begin.appointment
        self._reader.max_frame = MAX_LIVE + MAX_FRAME
        self.state = KeeperState.COPYING

    def released(self) -> None:
        """Nobody holds the copies any more that the home has come back for."""
        if self._begin is not None and not self.closing:
            self._go_on()

    def _go_on(self) -> None:
        """Hear what came while the home was not heard."""
        if self._begin is not None:
            try:
                self._begin_copy(self._begin)
            except OSError as error:
                self.refuse(Refuse.DISK, _disk_says(error))
            if self.closing or self._begin is not None:
                return
        early, self._early = self._early, []
        # What came with the frame that was waited for lies in the reader.
        self._hear([b"", *early])

    def _new_folder(self, frame: CopiedTopic) -> CopyFolder:
        hello = self.hello
        assert hello is not None  # noqa: S101 - it was said first
        if frame.folder in self._used:
            raise BadFrame(f"folder {frame.folder} has a topic already")
        if frame.name in self._names.values():
            raise BadFrame(f"topic {frame.name} has a folder already")
        folder = self._keeping.copies.folder(hello.identity, self.appointment, frame.name)
        self._used.add(frame.folder)
        self._folders[frame.folder] = folder
        self._names[frame.folder] = frame.name
        return folder

    def _delete(self, name: str) -> None:
        hello = self.hello
        assert hello is not None  # noqa: S101 - it was said first
        for number in [number for number, found in self._names.items() if found == name]:
            self._folders[number].close()
            del self._folders[number], self._names[number]
            self.linked.discard(number)
            self.filled.discard(number)
        self._keeping.copies.delete(hello.identity, name)

    def _write(self, frame: AnyFrame) -> None:
        if isinstance(frame, Appends):
            self._of(frame.folder).append(frame.file, frame.offset, frame.data)
        elif isinstance(frame, FilePart):
            self._of(frame.folder).part(frame.file, frame.offset, frame.check, frame.data)
        elif isinstance(frame, Rename):
            self._of(frame.folder).rename(frame.file, frame.name)
        elif isinstance(frame, Remove):
            self._of(frame.folder).remove(frame.file)
        elif isinstance(frame, Seal):
            self._of(frame.folder).seal(frame.file, frame.size)
        elif isinstance(frame, CopyState):
            self._of(frame.folder)
            (self.linked if frame.state == CopyState.LINKED else self.filled).add(frame.folder)
        elif isinstance(frame, CopiedTopic):
            folder = self._new_folder(frame)
            # New at the home, so there is nothing yet.
            folder.load()
            self.out.append(encode(Have(frame.folder, folder.told())))
        elif isinstance(frame, Deleted):
            self._delete(frame.name)
        elif isinstance(frame, SyncCopy):
            self._sync_wanted = True

    def _of(self, number: int) -> CopyFolder:
        folder = self._folders.get(number)
        if folder is None:
            raise BadFrame(f"folder {number} has no topic")
        return folder

    def _acknowledge(self) -> None:
        if self.state is KeeperState.CLOSED or self.hello is None or self.state is KeeperState.ASKING:
            return
        now = (self.written, self.synced)
        if now != self._acknowledged:
            self._acknowledged = now
            self.out.append(encode(Ack(*now)))


def _disk_says(error: OSError) -> str:
    return f"the keeper's disk: {(error.strerror or str(error)).lower()}"
