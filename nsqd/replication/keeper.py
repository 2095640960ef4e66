"""The keeper's side of a connection: frames in, effects on the copies, frames out. No socket, no clock.

The driver feeds received bytes to :meth:`KeeperLink.receive`, sends what is in `out`, runs the jobs of
:meth:`KeeperLink.jobs` in any thread and hands each back to :meth:`KeeperLink.ended`, and calls
:meth:`KeeperLink.sync` now and then. When `closing` is set, the connection ends behind what is in `out`. A
simulated node does the same with no thread and no socket.
"""

from typing import Final

from nsqd.log.disk import words_of
from nsqd.replication.copied_topics import CopiedTopics
from nsqd.replication.copy_folder import CopyFolder
from nsqd.replication.copy_jobs import CopyJob, CopySync, FindCopy, KeeperJob, SyncUpTo
from nsqd.replication.fellow_hears import FellowHears
from nsqd.replication.fields import MAX_TOPICS, BadFrame
from nsqd.replication.frames import (
    Ack,
    AnyFrame,
    Begin,
    CopiedTopic,
    CopyState,
    Deleted,
    FellowHello,
    Fellows,
    Finished,
    Had,
    HandOver,
    Have,
    Hello,
    Leaves,
    Offer,
    Refuse,
    SyncCopy,
    Taken,
    Told,
    Welcome,
    other_version,
)
from nsqd.replication.framing import MAX_FRAME, MAX_LIVE, FrameReader, encode
from nsqd.replication.keeper_states import ALLOWED, KeeperState
from nsqd.replication.sound import Mismatch
from nsqd.replication.willing import Keeping

# A home gives up a keeper that leaves so much unacknowledged; a frame more may be under way.
_MOST_EARLY: Final = 2 * MAX_LIVE + MAX_FRAME


class KeeperLink:
    """One connection of a home; see the module."""

    def __init__(self, keeping: "Keeping[KeeperLink]") -> None:
        self.state = KeeperState.NEW
        self.out: list[bytes] = []
        # The home's hello; None before it came.
        self.hello: Hello | None = None
        # The topics that the home named; None before it was welcomed.
        self.copied: CopiedTopics | None = None
        # Why the connection ends, for the log; empty when the home ended it.
        self.reason = ""
        # Bytes of frames that were written, and that are durable.
        self.written = 0
        self.synced = 0
        self._keeping = keeping
        self._reader = FrameReader()
        self._loads: list[FindCopy] = []
        self._loading = 0
        self._begin: Begin | None = None
        # What came while the home was not heard.
        self._early: list[bytes] = []
        self._early_bytes = 0
        self._syncing = False
        self._sync_wanted = False
        # Copies whose state was told while some of their files had no final names.
        self._to_settle: set[CopyFolder] = set()
        self._acknowledged = (0, 0)
        self._for_good = False
        # Set when the peer is another keeper of a home that is gone, which asks.
        self.fellow: FellowHello | None = None
        self._fellow_hears = FellowHears()
        # The home visits, and has named its topics.
        self.named = False
        # The home is about to leave permanently.
        self.offered = False
        # The home was told that this keeper leaves, or has no room.
        self._leaves = False

    @property
    def closing(self) -> bool:
        return self.state is KeeperState.CLOSED

    @property
    def topics(self) -> dict[int, str]:
        """The topics that are copied, by the numbers of their folders."""
        return {} if self.copied is None else self.copied.names

    @property
    def folders(self) -> list[CopyFolder]:
        return [] if self.copied is None else list(self.copied)

    @property
    def appointment(self) -> int:
        """The appointment of the copies that the home writes to."""
        return 0 if self.copied is None else self.copied.appointment

    @property
    def waits_for_release(self) -> bool:
        """The home has named all its topics, and may go on when nobody carries them any more."""
        return self._begin is not None and not self.closing

    @property
    def is_visit(self) -> bool:
        """The home has other keepers by now, and comes only to say that it is there."""
        return self.hello is not None and not self.hello.appointment

    def say(self, frame: AnyFrame) -> None:
        """Tell the home something that is not an answer to it."""
        if not self.closing:
            self.out.append(encode(frame))

    # --- what the driver calls ---

    def receive(self, data: bytes) -> None:
        """Take bytes from the home and act on them."""
        if self.closing:
            return
        if self._deaf:
            self._early.append(data)
            self._early_bytes += len(data)
            if self._early_bytes > _MOST_EARLY:
                self.refuse(Refuse.BAD_FRAME, "more came before it was heard than a home sends")
            return
        self._hear([data])

    @property
    def _deaf(self) -> bool:
        """Whether the home is not heard until something else is done."""
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
                self._early_bytes = sum(map(len, self._early))
                break
        self._acknowledge()

    def admitted(self, reason: str) -> None:
        """The answer to who the home is: *reason* is why it may not connect, or empty."""
        if self.state is not KeeperState.ASKING:
            return
        if reason:
            self.refuse(Refuse.UNAUTHORIZED, reason)
            return
        if self.fellow is not None:
            self.state = KeeperState.FELLOW
        else:
            self._welcome()
        self._go_on()

    @property
    def secret(self) -> bytes:
        """The secret that the peer has shown."""
        came = self.fellow or self.hello
        return b"" if came is None else came.secret

    def sync(self) -> None:
        """Let what was written be made durable by a job."""
        if self.state is KeeperState.COPYING and any(one.dirty or one.new_names for one in self.folders):
            self._sync_wanted = True

    def jobs(self) -> list[KeeperJob]:
        """Jobs that are to be run now."""
        found: list[KeeperJob] = []
        if self.closing:
            return found
        if self._loads:
            # A file is not looked at while a job of an earlier connection may rename or remove it.
            found += [one for one in self._loads if not one.folder.is_at_work]
            self._loading += len(found)
            self._loads = [one for one in self._loads if one.folder.is_at_work]
        # A start removes files without final names, so a sync that shows a state durable waits for the names.
        if self._to_settle:
            self._to_settle = {one for one in self.folders if one in self._to_settle and not one.is_settled}
        waits = bool(self._to_settle) or (self.offered and not all(one.is_settled for one in self.folders))
        if self._sync_wanted and not self._syncing and not waits:
            self._sync_wanted, self._syncing = False, True
            found.append(SyncUpTo(CopySync(self.folders), self.written))
        for folder in self.folders:
            steps = folder.begin()
            if steps:
                found.append(CopyJob(folder, steps))
        return found

    def ended(self, job: KeeperJob, error: OSError | None) -> None:
        """A job has run, or failed."""
        if isinstance(job, SyncUpTo):
            self._syncing = False
            if error is None:
                job.sync.end()
                self.synced = max(self.synced, job.position)
                self._acknowledge()
            else:
                job.sync.failed()
        elif isinstance(job, CopyJob):
            if error is None:
                job.folder.end(job.steps, job.measured)
            else:
                job.folder.failed()
        else:
            self._loading -= 1
            if error is None and not self.closing:
                self.out.append(encode(Have(job.number, job.folder.told())))
        if error is not None and not self.closing:
            self.refuse(Refuse.DISK, _disk_says(error))
        elif self._begin is not None and not self._loading:
            self._go_on()

    def refuse(self, code: int, sentence: str) -> None:
        """End the connection, with one sentence."""
        if not self.closing:
            self.reason = sentence
            self.out.append(encode(Refuse(code, sentence)))
            self.closed()

    def closed(self) -> None:
        """Close this side: the connection is gone, or is to go."""
        self.state = KeeperState.CLOSED
        self._early.clear()
        if self.copied is not None:
            self.copied.close()
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
            if self.state is KeeperState.FELLOW:
                self._fellow_says(frame)
            elif isinstance(frame, FellowHello):
                self._greet_fellow(frame)
            elif isinstance(frame, Fellows) and self.hello is not None:
                self._keeping.fellows(self.hello.identity, frame.keepers)
            elif isinstance(frame, Had | Finished | Told):
                self.named = True
                self._keeping.heard(self, frame)
            elif isinstance(frame, Offer):
                self._offered(frame.size)
            elif isinstance(frame, HandOver):
                self._given(frame.appointment)
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
            self._loads.append(FindCopy(self._named.add(frame), frame.folder))
        elif isinstance(frame, Deleted):
            self._delete(frame.name)
        elif isinstance(frame, Begin):
            if self._loads or self._loading:
                raise BadFrame("the copy cannot begin before it is known what there is")
            self._begin_copy(frame)

    def _delete(self, name: str) -> None:
        assert self.hello is not None  # noqa: S101 - what is heard before it was welcomed is refused
        # Whoever gives the topic out lets go of its files before they are deleted.
        self._keeping.deleted(self.hello.identity, name)
        self._named.delete(name)

    @property
    def _named(self) -> CopiedTopics:
        assert self.copied is not None  # noqa: S101 - what is heard before it was welcomed is refused
        return self.copied

    def _greet(self, hello: Hello) -> None:
        no = self._keeping.why_not(hello)
        if no is not None:
            self.refuse(no.code, no.sentence)
            return
        self.hello = hello
        if self._keeping.asks:
            self.state = KeeperState.ASKING
        else:
            self._welcome()

    # --- another keeper of a home that is gone ---

    def _greet_fellow(self, hello: FellowHello) -> None:
        no = other_version(hello.version)
        if no is not None:
            self.refuse(no.code, no.sentence)
            return
        self.fellow = hello
        self.state = KeeperState.ASKING if self._keeping.asks else KeeperState.FELLOW

    def _fellow_says(self, frame: AnyFrame) -> None:
        assert self.fellow is not None  # noqa: S101 - it was said first
        if not self._fellow_hears.take(frame):
            raise BadFrame(f"{type(frame).__name__} cannot be said now")
        if self._fellow_hears.done:
            answer = self._keeping.answers(self.fellow, self._fellow_hears.copies)
            self._fellow_hears = FellowHears()
            self.out += map(encode, answer)

    def _welcome(self) -> None:
        hello, keeping = self.hello, self._keeping
        assert hello is not None  # noqa: S101 - there is no other way here
        no = keeping.taken(hello)
        if no is not None:
            self.refuse(no.code, no.sentence)
            return
        keeping.connected(self, hello.identity)
        self.copied = CopiedTopics(keeping.copies, hello.identity, hello.appointment)
        try:
            known = keeping.copies.appointments(hello.identity)
            topics = tuple(keeping.copies.topics(hello.identity, hello.appointment)[:MAX_TOPICS])
        except OSError as error:
            self.refuse(Refuse.DISK, _disk_says(error))
            return
        self.state = KeeperState.MEETING
        latest = max(known, default=0)
        self.out.append(encode(Welcome(keeping.identity, keeping.node_id, keeping.address, latest, topics)))
        try:
            keeping.came(self)
        except OSError as error:
            self.refuse(Refuse.DISK, _disk_says(error))

    def _begin_copy(self, begin: Begin) -> None:
        hello = self.hello
        assert hello is not None  # noqa: S101 - it was said first
        if begin.appointment < hello.appointment:
            raise BadFrame("an appointment does not become an earlier one")
        if not self._keeping.released(hello.identity):
            self._begin = begin
            return
        self._begin = None
        self._named.begin(begin)
        self._reader.max_frame = MAX_LIVE + MAX_FRAME
        self.state = KeeperState.COPYING

    # --- a home that leaves for good ---

    def _offered(self, size: int) -> None:
        self.offered = True
        reason = self._keeping.unwilling() or self._keeping.too_much(size)
        if reason:
            self.refuse(Refuse.NOT_WANTED, reason)

    def _given(self, appointment: int) -> None:
        if not self.is_visit:
            if self.state is not KeeperState.COPYING or appointment != self.appointment:
                raise BadFrame("a copy that was not begun cannot be handed over")
            if not self._named.filled.issuperset(self._named.names):
                raise BadFrame("a copy that is not whole cannot be handed over")
        self._keeping.given(self, appointment)

    def taken(self) -> None:
        """Tell the home that its leaving is durable here."""
        self.say(Taken())
        if not self.closing:
            self._for_good = True
            self.closed()

    def look_at_offer(self) -> None:
        """Called now and then: a home that is about to leave is refused when nothing is taken any more."""
        if self.offered and not self.closing:
            unwilling = self._keeping.unwilling()
            if unwilling:
                self.refuse(Refuse.NOT_WANTED, unwilling)

    def look_at_drain(self) -> None:
        """Called now and then: a home is told that its keeper leaves or has no room, and finds another."""
        leaves = bool(self._keeping.unwilling())
        met = self.state in (KeeperState.MEETING, KeeperState.COPYING)
        if met and leaves != self._leaves:
            self._leaves = leaves
            self.say(Leaves(leaves))

    # --- going on ---

    def released(self) -> None:
        """Go on: nobody holds the copies any more for which the home has come back."""
        if self._begin is not None and not self.closing:
            self._go_on()

    def _go_on(self) -> None:
        """Apply what came while the home was not heard."""
        if self._begin is not None:
            try:
                self._begin_copy(self._begin)
            except OSError as error:
                self.refuse(Refuse.DISK, _disk_says(error))
            if self.closing or self._begin is not None:
                return
        early, self._early = self._early, []
        self._early_bytes = 0
        # Bytes that came with the frame that was waited for are in the reader.
        self._hear([b"", *early])

    def _write(self, frame: AnyFrame) -> None:
        if isinstance(frame, CopiedTopic):
            folder = self._named.add(frame)
            # The topic is new at the home, so no copy exists yet.
            folder.load()
            self.out.append(encode(Have(frame.folder, folder.told())))
        elif isinstance(frame, Deleted):
            self._delete(frame.name)
        elif isinstance(frame, SyncCopy):
            self._sync_wanted = True
        else:
            self._named.write(frame)
            if isinstance(frame, CopyState):
                self._to_settle.add(self._named.folder(frame.folder))

    def _acknowledge(self) -> None:
        if self.state is KeeperState.CLOSED or self.hello is None or self.state is KeeperState.ASKING:
            return
        now = (self.written, self.synced)
        if now != self._acknowledged:
            self._acknowledged = now
            self.out.append(encode(Ack(*now)))


def _disk_says(error: OSError) -> str:
    return f"the keeper's disk: {words_of(error)}"
