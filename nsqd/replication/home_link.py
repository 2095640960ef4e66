"""One connection of a home to a keeper: they meet, and then the home streams. No socket, no clock, no thread.

The driver feeds received bytes, sends what :meth:`HomeLink.flush` gives, runs the jobs in any thread and
hands them back to :meth:`HomeLink.ended`, and calls :meth:`HomeLink.tick` some twenty times a second. Times
are nanoseconds of a clock that only goes forward.
"""

from enum import IntEnum
from typing import Final

from nsqd.log.disk import words_of
from nsqd.log.segment import Segment
from nsqd.log.writer import LogWriter
from nsqd.replication.choosing import Appointed
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import (
    Ack,
    AnyFrame,
    Ask,
    Begin,
    Deleted,
    Fellows,
    Finished,
    Gone,
    Had,
    HandOver,
    Have,
    Hello,
    Leaves,
    Offer,
    Refuse,
    StillHere,
    StillOut,
    SyncCopy,
    Taken,
    Told,
    Welcome,
    other_version,
    same_node_id,
)
from nsqd.replication.framing import MAX_LIVE, FrameReader, in_parts
from nsqd.replication.home import Home
from nsqd.replication.outgoing import SaidToKeeper
from nsqd.replication.streaming import Streaming
from nsqd.replication.streams import ReadJob, TopicStream
from nsqd.storage.slots import CheckpointJob

_S: Final = 1_000_000_000
# A keeper with so many unacknowledged bytes is given up; the next connection goes on from the disk.
MOST_BEHIND: Final = 2 * MAX_LIVE
_STILL_HERE_NS: Final = _S // 2
# A keeper from which nothing was heard for so long counts as gone.
_SILENT_NS: Final = 15 * _S


class HomeState(IntEnum):
    """The state of a connection."""

    GREETING = 0
    MEETING = 1
    STREAMING = 2
    CLOSED = 3
    # At a former keeper: it is told that its home is there.
    VISITING = 4


_ALWAYS: Final = (Refuse, Ack)
_MET: Final = (*_ALWAYS, Have, Ask, Gone, Fellows, Leaves, Told, Finished, StillOut)
# What the keeper may say in each state.
_ALLOWED: Final[dict[HomeState, tuple[type[AnyFrame], ...]]] = {
    HomeState.GREETING: (*_ALWAYS, Welcome),
    HomeState.MEETING: _MET,
    HomeState.STREAMING: (*_MET, Taken),
    HomeState.VISITING: (*_MET, Taken),
    HomeState.CLOSED: (),
}


class HomeLink:
    """See the module."""

    def __init__(self, home: Home, appointed: Appointed, now_ns: int, *, visit: bool = False) -> None:
        """The hello is said at once; a *visit* is to a former keeper."""
        settings = home.settings
        self.home = home
        self.visit = visit
        self.appointed = appointed
        self.state = HomeState.GREETING
        self.keeper: Welcome | None = None
        # Why it ended; if the keeper refused, also the code.
        self.reason = ""
        self.refused = 0
        # The keeper is about to leave, or has no room: another is wanted in its place.
        self.keeper_leaves = False
        # The keeper has no older copies of this log.
        self.has_no_older = False
        self.out = SaidToKeeper(now_ns, strict=settings.strict)
        self.streaming = Streaming(self.out, settings.fill_rate, now_ns, home.want_checkpoint)
        self._reader = FrameReader()
        self._heard_ns = now_ns
        self._untold_to: list[tuple[int, str]] = []
        # The home leaves permanently: how many bytes it has offered, and whether the keeper has taken them.
        self.offers: int | None = None
        self.taken = False
        self.out.put(
            Hello(
                home.identity,
                home.node_id,
                0 if visit else appointed.number,
                home.address,
                settings.secret(),
                strict=settings.strict,
                stands_in=home.stands_in,
            )
        )
        home.links = (*home.links, self)

    # --- what the driver calls ---

    @property
    def closing(self) -> bool:
        return self.state is HomeState.CLOSED

    def receive(self, data: bytes, now_ns: int) -> None:
        """Take bytes from the keeper and act on them."""
        self._heard_ns = now_ns
        try:
            for frame in self._reader.feed(data):
                if self.closing:
                    return
                self._take(frame)
        except BadFrame as error:
            if self.state is HomeState.GREETING:
                self.end("no keeper answers there: is it an nsqd, and of a version that keeps copies?")
            else:
                self._refuse(Refuse.BAD_FRAME, str(error))
            return
        self._fill(now_ns)

    def flush(self, now_ns: int) -> list[bytes]:
        """What is to be sent now, in order."""
        return self.out.flush(now_ns)

    def tick(self, now_ns: int) -> None:
        """Do what is due at this time."""
        if self.closing:
            return
        if now_ns - self._heard_ns > _SILENT_NS:
            self.end("the keeper is silent")
            return
        self.out.look(now_ns, self.home.settings.timeout_ns)
        if now_ns - self.out.said_ns >= _STILL_HERE_NS and self.keeper is not None:
            self.out.put(StillHere())
        self._fill(now_ns)

    def _fill(self, now_ns: int) -> None:
        if self.state is HomeState.STREAMING:
            self.streaming.fill(now_ns)

    def jobs(self) -> list[ReadJob]:
        """Pieces of files to be read."""
        return self.streaming.jobs()

    def ended(self, job: ReadJob, error: OSError | None, now_ns: int) -> None:
        """A piece was read, or could not be read."""
        if not self.closing:
            self.streaming.ended(job, error)
            self._fill(now_ns)

    def end(self, reason: str) -> None:
        """End the connection, which is gone or is to go."""
        if self.state is HomeState.CLOSED:
            return
        self.state = HomeState.CLOSED
        self.reason = self.reason or reason
        self.home.links = tuple(link for link in self.home.links if link is not self)
        self.out.lose()

    # --- leaving for good ---

    def offer(self, size: int) -> None:
        """Ask whether the keeper will take so many bytes permanently; one that will not refuses."""
        self.offers = size
        self.streaming.hurries = True
        if self.is_streamed_to and self._latest_of_others() > self.appointed.number:
            # The keeper's copy gets a number above the others only when both meet.
            self.end("it takes over all of it, and is appointed anew for that")
        elif self.state in (HomeState.MEETING, HomeState.STREAMING):
            self.out.put(Offer(size))

    def _latest_of_others(self) -> int:
        """The number of the latest appointment of another keeper; 0 when there is none."""
        others = [one for one in self.home.fellows() if one.address != self.appointed.address]
        return max((one.number for one in others), default=0)

    def sync(self) -> int:
        """Have all that was said made durable there; returns the position that `out.synced` must reach."""
        self.out.put(SyncCopy())
        return self.out.sent

    def hand_over(self, appointment: int) -> None:
        """Tell the keeper that the home has noted the hand-over: the copy is the keeper's permanently."""
        self.out.put(HandOver(appointment))

    @property
    def has_said_all(self) -> bool:
        """Whether all that the home has now was said: nothing is left to be filled in."""
        said = all(stream.linked and stream.filled for stream in self.streams())
        return self.is_up and said and self.streaming.is_filled

    def unreadable(self) -> str:
        """A file that could not be read, so that the copy does without it; empty when there is none."""
        return next((str(one.path) for stream in self.streams() for one in stream.unreadable), "")

    def leave(self, sentence: str) -> None:
        """The home leaves permanently: the keeper gives out all of it, and need not wait."""
        self._refuse(Refuse.LEAVING, sentence)

    def _refuse(self, code: int, sentence: str) -> None:
        self.out.put(Refuse(code, sentence))
        self.end(sentence)

    # --- what is known of it ---

    @property
    def is_streamed_to(self) -> bool:
        """Whether both have met: what is written from now on is sent there."""
        return self.state is HomeState.STREAMING

    @property
    def is_up(self) -> bool:
        """Whether it is streamed to and answers in time."""
        return self.is_streamed_to and not self.out.stalled

    def counts(self, log: LogWriter) -> bool:
        """Whether the keeper's word counts for a topic."""
        if not self.is_up:
            return False
        stream = self.streaming.of(log)
        # A topic to which nothing was ever written counts from its first append on.
        return not log.segments if stream is None else stream.linked

    @property
    def is_filled(self) -> bool:
        """Whether the keeper has all that the home has, durably, and its word counts."""
        return self.is_up and all(map(self.has_whole, self.streams()))

    def has_whole(self, stream: TopicStream) -> bool:
        """Whether the keeper has every file of a topic, durably, and its word counts for it."""
        return stream.linked and stream.filled and self.out.synced >= stream.stated

    def streams(self) -> list[TopicStream]:
        return self.streaming.all()

    # --- frames ---

    def _take(self, frame: AnyFrame) -> None:
        if not isinstance(frame, _ALLOWED[self.state]):
            raise BadFrame(f"{type(frame).__name__} cannot be said now")
        if isinstance(frame, Refuse):
            self.refused = frame.code
            self.end(f"the keeper refuses: {frame.sentence}")
        elif isinstance(frame, Ack):
            self._acknowledged(frame)
        elif isinstance(frame, Welcome):
            self._welcomed(frame)
        elif isinstance(frame, Have):
            self._told(frame)
        elif isinstance(frame, Ask):
            self._asked()
        elif isinstance(frame, Gone):
            self.has_no_older = frame.appointment + 1 >= self.appointed.number
            self.home.gone(self.appointed, frame.appointment)
        elif isinstance(frame, Fellows):
            self.home.others_keep(frame.keepers)
        elif isinstance(frame, Leaves):
            self.keeper_leaves = frame.leaves
        elif isinstance(frame, Told):
            self.home.heard(self.appointed, "", frame)
        elif isinstance(frame, Taken):
            self.taken = True
        elif isinstance(frame, Finished | StillOut):
            stream = self.streaming.numbered(frame.folder)
            # A topic that was deleted meanwhile has nothing to learn.
            if stream is not None:
                self.home.heard(self.appointed, stream.name, frame)

    def _acknowledged(self, ack: Ack) -> None:
        self.out.acknowledged(ack)
        while self._untold_to and self._untold_to[0][0] <= ack.written:
            _, name = self._untold_to.pop(0)
            self.home.heard_of_deletion(name, self.appointed.address)
        self.out.tell()

    # --- meeting ---

    def _welcomed(self, welcome: Welcome) -> None:
        refuse = other_version(welcome.version)
        if refuse is None and welcome.node_id == self.home.node_id:
            refuse = same_node_id(welcome.node_id, welcome.address)
        if refuse is not None:
            self._refuse(refuse.code, refuse.sentence)
            return
        self.keeper = welcome
        self.state = HomeState.MEETING
        if self.offers is not None:
            self.out.put(Offer(self.offers))
        for name, left in self.home.untold.items():
            if self.appointed.address in left:
                self._tell_deleted(name)
        for log, name in self.home.known():
            self.streaming.name(log, name)
        self._begin_when_told()

    def _tell_deleted(self, name: str) -> None:
        self.out.put(Deleted(name))
        self._untold_to.append((self.out.sent, name))

    def _told(self, have: Have) -> None:
        stream = self.streaming.numbered(have.folder)
        if stream is None:
            # Deleted meanwhile.
            return
        if self.state is HomeState.STREAMING:
            if have.files:
                raise BadFrame(f"a copy of {stream.name} was there already")
            return
        stream.told = have.files
        self._begin_when_told()

    def _begin_when_told(self) -> None:
        if all(one.told is not None for one in self.streams()):
            self._begin()

    def _asked(self) -> None:
        """A keeper with older copies asks what is to be found elsewhere.

        It is told only when today's keepers have all that the home has, because those copies may go when it
        hears. A home that wants no keeper has nobody to wait for.
        """
        home = self.home
        today = [link for link in home.links if not link.visit]
        if not today and (home.settings.replicas or home.addresses):
            return
        if not all(link.is_filled for link in today):
            return
        for stream in self.streams():
            held, known = self.home.holdings(stream.name)
            for part in in_parts(held):
                self.out.put(Had(stream.number, part))
            for channel, told in known.items():
                for part in in_parts(told.finished):
                    self.out.put(Finished(stream.number, channel, told.generation, part))
        self.out.put(Told())

    def _begin(self) -> None:
        """Begin: it is known what the keeper has."""
        if self.visit:
            self.state = HomeState.VISITING
            self.say_who_keeps()
            self.out.put(Told())
            return
        home, keeper = self.home, self.keeper
        streams = self.streams()
        left = [one.number for one in streams if one.conflicts(home.gone_of(one.log), home.settled)]
        names = {one.name for one in streams} | {name for _, name in self._untold_to}
        unknown = keeper is not None and not names.issuperset(keeper.topics)
        latest = 0 if keeper is None else keeper.appointment
        if self.offers is not None:
            # Whoever gets all of it ranks above the other keepers, so that these leave it alone.
            latest = max(latest, self._latest_of_others())
        # Another node, or one that has lost its disk, counts as another keeper.
        who = "" if keeper is None else keeper.identity.hex()
        changed = bool(self.appointed.identity) and self.appointed.identity != who
        if left or unknown or changed or latest > self.appointed.number:
            try:
                self.appointed = home.again(self.appointed, latest)
            except OSError as error:
                self.end(f"the next appointment cannot be noted: {words_of(error)}")
                return
        self.out.put(Begin(self.appointed.number, tuple(left)))
        self.state = HomeState.STREAMING
        self.home.say_who_keeps()
        for stream in streams:
            if stream.number not in left:
                stream.believe()
            self.streaming.begin(stream)

    def say_who_keeps(self) -> None:
        """Tell the keeper of the others, which it asks when the home is gone."""
        if self.state in (HomeState.STREAMING, HomeState.VISITING):
            self.out.put(Fellows(self.home.fellows()))

    # --- what happens at home ---

    def appended(self, log: LogWriter, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        """The home has just written this."""
        if self.state is not HomeState.STREAMING:
            if self.state is HomeState.MEETING and self.streaming.of(log) is None:
                self._name_new(log)
            return
        stream = self.streaming.of(log)
        new = stream is None
        if stream is None:
            stream = self._name_new(log)
            if stream is None:
                return
        self.streaming.appended(stream, segment, offset, pieces, new=new)
        if self.out.behind > MOST_BEHIND:
            self.end("the keeper does not keep up")

    def _name_new(self, log: LogWriter) -> TopicStream | None:
        name = next((name for known, name in self.home.known() if known is log), None)
        return None if name is None else self.streaming.name(log, name)

    def checkpointed(self, log: LogWriter, job: CheckpointJob) -> None:
        """The home has written a checkpoint."""
        if self.state is HomeState.STREAMING:
            self.streaming.checkpointed(log, job)

    def deleted(self, log: LogWriter, name: str) -> None:
        """A topic was deleted."""
        self.streaming.forget(log)
        if self.state in (HomeState.MEETING, HomeState.STREAMING, HomeState.VISITING):
            self._tell_deleted(name)
            if self.state is HomeState.MEETING:
                self._begin_when_told()

    def look_at(self, log: LogWriter) -> None:
        """Look at the files of a log again, because some have gone or were replaced."""
        self.streaming.look_at(log)
