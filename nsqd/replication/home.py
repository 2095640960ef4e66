"""The home's side: what is streamed to each keeper, and whose word counts. No socket, no clock, no thread.

A `Home` is the tap of all logs of a node. Each connection to a keeper is a `HomeLink`: the driver feeds it
what comes off the wire, sends what :meth:`HomeLink.flush` gives, runs its jobs in any thread and hands them
back to :meth:`HomeLink.ended`, and calls :meth:`HomeLink.tick` some twenty times a second. Times are
nanoseconds of a clock that only goes forward.

The stream of one topic is in the order in which the home wrote. Older files are filled in behind it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, cast

from xxhash import xxh3_64_intdigest

from nsqd.engine.facts import ChannelFacts
from nsqd.log.disk import Disk
from nsqd.log.ranges import Ranges
from nsqd.log.segment import Segment
from nsqd.log.shrinking import ShrinkingLog
from nsqd.log.tap import Tap
from nsqd.log.writer import LogWriter
from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import (
    MAX_DATA,
    MAX_LIVE,
    VERSION,
    Ack,
    AnyFrame,
    Ask,
    BadFrame,
    Begin,
    CopiedTopic,
    CopyState,
    Deleted,
    FilePart,
    Finished,
    FrameReader,
    Gone,
    Had,
    Have,
    Hello,
    Refuse,
    Remove,
    Rename,
    Seal,
    StillHere,
    StillOut,
    SyncCopy,
    Told,
    Welcome,
    appends_head,
    encode,
    in_parts,
)
from nsqd.replication.streams import LetGo, ReadJob, TopicStream
from nsqd.replication.waits import Wait, Waits
from nsqd.storage.slots import NAMES, CheckpointJob

_MS: Final = 1_000_000
_S: Final = 1_000 * _MS
# A keeper that has so much unacknowledged is given up; the next connection goes on from the disk.
MOST_BEHIND: Final = 2 * MAX_LIVE
# Older files are sent while no more than this is under way.
_FILL_WINDOW: Final = 4 << 20
# So much of --fill-rate that was not used is used later.
_FILL_BURST_NS: Final = 100 * _MS
_STILL_HERE_NS: Final = 500 * _MS
# A keeper from which nothing was heard for so long is not there.
_SILENT_NS: Final = 15 * _S
# Of what a log let go of in this life so much is remembered.
_MOST_GONE: Final = 4096


class HomeState(IntEnum):
    """Where a connection stands."""

    GREETING = 0
    MEETING = 1
    STREAMING = 2
    CLOSED = 3
    # At a keeper of former days: it is told that its home is there.
    VISITING = 4


@dataclass(frozen=True, slots=True)
class HomeSettings:
    """What the options say."""

    replicas: int = 0
    # With too few linked keepers publishers are refused.
    refuse: bool = False
    strict: bool = False
    timeout_ns: int = 2 * _S
    # Bytes in a second.
    fill_rate: int = 50 << 20
    secret: bytes = b""


@dataclass(slots=True)
class _Known:
    """A log of this node."""

    name: str
    gone: dict[str, LetGo] = field(default_factory=dict)


class Home(Tap):
    """All that is copied of this node; see the module."""

    def __init__(
        self,
        settings: HomeSettings,
        identity: bytes,
        node_id: int,
        address: str,
        *,
        again: Callable[[Appointed, int], Appointed],
        replicas_of: Callable[[str], int] | None = None,
        heard: "Callable[[HomeLink, str, AnyFrame], None]" = lambda _link, _topic, _frame: None,
    ) -> None:
        """*again* gives a keeper its next appointment, above a number; *replicas_of* asks a policy.

        *heard* is handed what a keeper that carried knows, with the name of the topic it is about.
        """
        # What is held and finished of a topic; and a keeper that says which older copies are gone.
        self.holdings: Callable[[str], tuple[Ranges, dict[str, ChannelFacts]]] = lambda _name: ([], {})
        self.gone: Callable[[HomeLink, int], None] = lambda _link, _appointment: None
        # Of a topic the messages for which nobody needs a copy.
        self.settled: Callable[[str], Ranges] = lambda _name: []
        self.settings = settings
        self.identity = identity
        self.node_id = node_id
        self.address = address
        self.again = again
        self.heard = heard
        self.links: list[HomeLink] = []
        # Logs of which the next checkpoint is to be written soon, and whole.
        self.wants_checkpoint: dict[LogWriter, None] = {}
        # Names of topics that were deleted, with those who have not heard of it: addresses of keepers.
        self.untold: dict[str, set[str]] = {}
        # Something of `untold` is new, and to be made durable.
        self.untold_changed = False
        self.addresses: set[str] = set()
        self._replicas_of = replicas_of or (lambda _name: settings.replicas)
        self._logs: dict[LogWriter, _Known] = {}
        self._waiting: dict[tuple[int, ...], Wait] = {}

    # --- the logs ---

    def add(self, log: LogWriter, name: str) -> None:
        """A log of this node, found at the start or made since."""
        self._logs[log] = _Known(name)
        log.tap = self

    def known(self) -> Iterator[tuple[LogWriter, str]]:
        return ((log, known.name) for log, known in self._logs.items())

    def gone_of(self, log: LogWriter) -> dict[str, LetGo]:
        return self._logs[log].gone

    def appended(self, log: ShrinkingLog, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        for link in self.links:
            link.appended(cast("LogWriter", log), segment, offset, pieces)

    def let_go(self, log: ShrinkingLog, segments: list[Segment]) -> None:
        known = self._logs.get(cast("LogWriter", log))
        if known is None:
            return
        for segment in segments:
            known.gone[segment.path.name] = LetGo(segment.header.salt, segment.size)
        while len(known.gone) > _MOST_GONE:
            del known.gone[next(iter(known.gone))]
        for link in self.links:
            link.look_at(cast("LogWriter", log))

    def lost(self, _log: ShrinkingLog) -> None:
        """The next connection finds that the copy has more than the home, and leaves it as it is."""
        for link in list(self.links):
            link.end("files of the log were removed by somebody")

    def deleted(self, log: ShrinkingLog) -> None:
        known = self._logs.pop(cast("LogWriter", log), None)
        if known is None:
            return
        if self.addresses:
            self.untold[known.name] = set(self.addresses)
            self.untold_changed = True
        for link in self.links:
            link.deleted(cast("LogWriter", log), known.name)

    def checkpointed(self, log: LogWriter, job: CheckpointJob) -> None:
        """A checkpoint was written."""
        for link in self.links:
            link.checkpointed(log, job)

    # --- who waits ---

    def counting(self, log: LogWriter) -> list["HomeLink"]:
        """The keepers whose word counts for a topic."""
        return [link for link in self.links if link.counts(log)]

    def lacks(self, log: LogWriter) -> str:
        """Why a publish to this topic is to be refused before it is written; empty when it is not."""
        if not self.settings.refuse:
            return ""
        known = self._logs.get(log)
        need = self._replicas_of(known.name) if known is not None else self.settings.replicas
        have = len(self.counting(log)) if known is not None else sum(link.is_up for link in self.links)
        return _too_few(have, need) if have < need else ""

    def under_copied(self) -> int:
        """How many topics have fewer linked keepers than are wanted."""
        return sum(
            len(self.counting(log)) < self._replicas_of(known.name) for log, known in self._logs.items()
        )

    def wait(self, log: LogWriter) -> Wait | None:
        """What a publisher waits for whose message was just appended; None when it waits for no keeper."""
        known = self._logs.get(log)
        need = 0 if known is None else self._replicas_of(known.name)
        if not need:
            return None
        links = self.counting(log)
        if len(links) < need:
            return None
        behind = [link for link in links if not link.has_all]
        need -= len(links) - len(behind)
        if need <= 0:
            return None
        links = behind
        key = (need, *(part for link in links for part in (id(link), link.sent)))
        found = self._waiting.get(key)
        if found is None or not found.open:
            reason = _too_few(need - 1, need) if self.settings.refuse else ""
            self._waiting = {key: (found := Wait(need, len(links), reason))}
            for link in links:
                link.wait(found)
        return found


def _too_few(have: int, need: int) -> str:
    return f"{have} of {need} keepers are linked"


class HomeLink:
    """One connection to one keeper; see the module."""

    def __init__(self, home: Home, appointed: Appointed, now_ns: int, *, visit: bool = False) -> None:
        """The first word is said at once; a *visit* is to a keeper that is one no more."""
        self.home = home
        self.visit = visit
        self.appointed = appointed
        self.state = HomeState.GREETING
        self.keeper: Welcome | None = None
        # Why it ended; what the keeper refused is said by its code, too.
        self.reason = ""
        self.refused = 0
        # Bytes of frames so far: said, written by the keeper, durable there.
        self.sent = 0
        self.written = 0
        self.synced = 0
        # When the first topic was linked on this connection.
        self.linked_ns = 0
        self.stalled = False
        self.bytes_filled = 0
        self._stalled_at = 0
        self._streams: dict[LogWriter, TopicStream] = {}
        self._numbers: dict[int, TopicStream] = {}
        # Those that may lack something.
        self._to_look: dict[TopicStream, None] = {}
        self._next_number = 1
        self._out: list[bytes] = []
        self._reader = FrameReader()
        self._waits = Waits()
        self._sync_wanted = False
        # Positions and when they were said, while they are not acknowledged.
        self._under_way: deque[tuple[int, int]] = deque()
        self._said_ns = now_ns
        self._heard_ns = now_ns
        self._fill_from_ns = now_ns
        self._jobs: list[ReadJob] = []
        self._reads = 0
        self._untold_to: list[tuple[int, str]] = []
        settings = home.settings
        self._put(
            Hello(
                home.identity,
                home.node_id,
                0 if visit else appointed.number,
                home.address,
                settings.secret,
                strict=settings.strict,
            )
        )
        home.links.append(self)

    # --- what the driver calls ---

    @property
    def closing(self) -> bool:
        return self.state is HomeState.CLOSED

    def receive(self, data: bytes, now_ns: int) -> None:
        """Hear what the keeper says."""
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
        if self._sync_wanted:
            self._sync_wanted = False
            self._put(SyncCopy())
        out, self._out = self._out, []
        if out:
            self._said_ns = now_ns
            self._under_way.append((self.sent, now_ns))
        return out

    def tick(self, now_ns: int) -> None:
        """Look at the time."""
        if self.closing:
            return
        if now_ns - self._heard_ns > _SILENT_NS:
            self.end("the keeper is silent")
            return
        if self._under_way and now_ns - self._under_way[0][1] > self.home.settings.timeout_ns:
            self._stall()
        if now_ns - self._said_ns >= _STILL_HERE_NS and self.keeper is not None:
            self._put(StillHere())
        self._fill(now_ns)

    def jobs(self) -> list[ReadJob]:
        """Pieces of files that are to be read."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def ended(self, job: ReadJob, error: OSError | None, now_ns: int) -> None:
        """A piece was read, or could not be."""
        self._reads -= 1
        stream, segment = job.stream, job.segment
        stream.reading = False
        if self.closing or self._numbers.get(stream.number) is not stream:
            return
        self._to_look[stream] = None
        if segment in stream.log.segments:
            if error is not None or len(job.data) < job.size:
                # The home reports what it cannot read when somebody is owed it; the copy goes without.
                stream.unreadable.add(segment)
            else:
                self._filled(stream, job)
        elif stream.has.pop(job.target, None) is not None and job.target.endswith(".log"):
            self._put(Remove(stream.number, job.target))
        self._fill(now_ns)

    def end(self, reason: str) -> None:
        """The connection is gone, or is to go."""
        if self.state is HomeState.CLOSED:
            return
        self.state = HomeState.CLOSED
        self.reason = self.reason or reason
        if self in self.home.links:
            self.home.links.remove(self)
        self._waits.lose()

    def leave(self, sentence: str) -> None:
        """The home leaves for good: the keeper gives out all of it, and need not wait."""
        self._refuse(Refuse.LEAVING, sentence)

    def _refuse(self, code: int, sentence: str) -> None:
        self._put(Refuse(code, sentence))
        self.end(sentence)

    # --- what is known of it ---

    @property
    def is_up(self) -> bool:
        """Whether it is streamed to, and answers in time."""
        return self.state is HomeState.STREAMING and not self.stalled

    def counts(self, log: LogWriter) -> bool:
        """Whether the keeper's word counts for a topic."""
        if self.state is not HomeState.STREAMING or self.stalled:
            return False
        stream = self._streams.get(log)
        # One to which nothing was ever written counts from its first append on.
        return not log.segments if stream is None else stream.linked

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it."""
        return bool(len(self._waits))

    @property
    def has_all(self) -> bool:
        """Whether the keeper has all that was said, durably where that is waited for."""
        return (self.synced if self.home.settings.strict else self.written) >= self.sent

    @property
    def behind(self) -> int:
        """Bytes that were said and are not written yet."""
        return self.sent - self.written

    def behind_ns(self, now_ns: int) -> int:
        """For how long the oldest of them is under way."""
        return now_ns - self._under_way[0][1] if self._under_way else 0

    def streams(self) -> list[TopicStream]:
        return list(self._numbers.values())

    # --- frames ---

    def _put(self, frame: AnyFrame) -> None:
        data = encode(frame)
        self._out.append(data)
        self.sent += len(data)

    def _take(self, frame: AnyFrame) -> None:
        if isinstance(frame, Refuse):
            self.refused = frame.code
            self.end(f"the keeper refuses: {frame.sentence}")
        elif isinstance(frame, Ack):
            self._acknowledged(frame)
        elif isinstance(frame, Welcome) and self.state is HomeState.GREETING:
            self._welcomed(frame)
        elif isinstance(frame, Have) and self.state is not HomeState.GREETING:
            self._told(frame)
        elif isinstance(frame, Ask) and self.state is not HomeState.GREETING:
            self._asked()
        elif isinstance(frame, Gone) and self.state is not HomeState.GREETING:
            self.home.gone(self, frame.appointment)
        elif isinstance(frame, Told) and self.state is not HomeState.GREETING:
            self.home.heard(self, "", frame)
        elif isinstance(frame, Finished | StillOut) and self.state is not HomeState.GREETING:
            stream = self._numbers.get(frame.folder)
            # A topic that was deleted meanwhile has nothing to learn.
            if stream is not None:
                self.home.heard(self, stream.name, frame)
        else:
            raise BadFrame(f"{type(frame).__name__} cannot be said now")

    def _acknowledged(self, ack: Ack) -> None:
        if not (self.written <= ack.written <= self.sent and self.synced <= ack.synced <= ack.written):
            raise BadFrame("an acknowledgement of what was not said")
        self.written, self.synced = ack.written, ack.synced
        under_way = self._under_way
        while under_way and under_way[0][0] <= ack.written:
            under_way.popleft()
        if self.stalled and ack.written >= self._stalled_at:
            # Nothing of the stream was lost: all that was said while it hung is there.
            self.stalled = False
        while self._untold_to and self._untold_to[0][0] <= ack.written:
            _, name = self._untold_to.pop(0)
            self._heard_of(name)
        self._waits.reached(ack.written, ack.synced)

    def _heard_of(self, name: str) -> None:
        left = self.home.untold.get(name)
        if left is not None:
            left.discard(self.appointed.address)
            if not left & self.home.addresses:
                del self.home.untold[name]
            self.home.untold_changed = True

    # --- meeting ---

    def _welcomed(self, welcome: Welcome) -> None:
        if welcome.version != VERSION:
            self._refuse(
                Refuse.VERSION, f"version {welcome.version} of the stream is not known here, {VERSION} is"
            )
            return
        if welcome.node_id == self.home.node_id:
            self._refuse(
                Refuse.SAME_NODE_ID,
                f"node id {welcome.node_id} is that of {welcome.address}, too:"
                " each nsqd needs its own --node-id",
            )
            return
        self.keeper = welcome
        self.state = HomeState.MEETING
        for name, left in self.home.untold.items():
            if self.appointed.address in left:
                self._put(Deleted(name))
                self._untold_to.append((self.sent, name))
        for log, name in self.home.known():
            self._name(log, name)
        if not self._streams:
            self._begin()

    def _name(self, log: LogWriter, name: str) -> TopicStream:
        stream = TopicStream(self._next_number, name, log)
        self._next_number += 1
        self._streams[log] = self._numbers[stream.number] = stream
        self._put(CopiedTopic(stream.number, name))
        return stream

    def _told(self, have: Have) -> None:
        stream = self._numbers.get(have.folder)
        if stream is None:
            # Deleted meanwhile.
            return
        if self.state is HomeState.STREAMING:
            if have.files:
                raise BadFrame(f"a copy of {stream.name} was there already")
            return
        stream.told = have.files
        if all(one.told is not None for one in self._streams.values()):
            self._begin()

    def _asked(self) -> None:
        """A keeper with older copies wants to know what is to be found elsewhere.

        It is told when today's keepers have all that the home has: what it hears may let those copies go.
        """
        today = [link for link in self.home.links if not link.visit]
        if not today or not all(link.is_filled for link in today):
            return
        for number, stream in self._numbers.items():
            held, known = self.home.holdings(stream.name)
            for part in in_parts(held):
                self._put(Had(number, part))
            for channel, told in known.items():
                for part in in_parts(told.finished):
                    self._put(Finished(number, channel, told.generation, part))
        self._put(Told())

    @property
    def is_filled(self) -> bool:
        """Whether the keeper has all that the home has, and its word counts."""
        if self.state is not HomeState.STREAMING or self.stalled:
            return False
        return all(stream.linked and stream.filled for stream in self._streams.values())

    def _begin(self) -> None:
        """All is known that the keeper has."""
        if self.visit:
            self.state = HomeState.VISITING
            self._put(Told())
            return
        home, keeper = self.home, self.keeper
        streams = list(self._streams.values())
        left = [one.number for one in streams if one.conflicts(home.gone_of(one.log), home.settled)]
        names = {one.name for one in streams} | {name for _, name in self._untold_to}
        unknown = keeper is not None and not names.issuperset(keeper.topics)
        latest = 0 if keeper is None else keeper.appointment
        # Another node, or one that has lost its disk, is another keeper.
        who = "" if keeper is None else keeper.identity.hex()
        changed = bool(self.appointed.identity) and self.appointed.identity != who
        if left or unknown or changed or latest > self.appointed.number:
            try:
                self.appointed = home.again(self.appointed, latest)
            except OSError as error:
                self.end(f"the next appointment cannot be noted: {(error.strerror or str(error)).lower()}")
                return
        self._put(Begin(self.appointed.number, tuple(left)))
        self.state = HomeState.STREAMING
        for stream in streams:
            if stream.number not in left:
                stream.believe()
            self._begin_stream(stream)

    def _begin_stream(self, stream: TopicStream) -> None:
        stream.begin()
        self._to_look[stream] = None
        if stream.is_empty:
            self._link(stream)
        else:
            self.home.wants_checkpoint[stream.log] = None

    def _link(self, stream: TopicStream) -> None:
        stream.linked = True
        self._put(CopyState(stream.number, CopyState.LINKED))

    # --- the stream of what is written ---

    def appended(self, log: LogWriter, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        """The home has written this just now."""
        if self.state is not HomeState.STREAMING:
            if self.state is HomeState.MEETING and log not in self._streams:
                self._name_new(log)
            return
        stream = self._streams.get(log)
        if stream is None:
            stream = self._name_new(log)
            if stream is None:
                return
            stream.begun = True
            if offset or len(log.segments) > 1:
                self._begin_stream(stream)
                return
            self._link(stream)
            self._to_look[stream] = None
        if segment is not stream.live:
            if offset:
                # It was begun before this connection.
                self._begin_stream(stream)
                return
            self._follow(stream, segment)
        size = sum(map(len, pieces))
        if stream.has.get(stream.live_name, 0) != offset or size > MAX_LIVE:
            self._begin_stream(stream)
            return
        head = appends_head(stream.number, stream.live_name, offset, size)
        self._out.append(head)
        self._out += pieces
        self.sent += len(head) + size
        stream.has[stream.live_name] = offset + size
        if self.behind > MOST_BEHIND:
            self.end("the keeper does not keep up")

    def _name_new(self, log: LogWriter) -> TopicStream | None:
        name = next((name for known, name in self.home.known() if known is log), None)
        return None if name is None else self._name(log, name)

    def _follow(self, stream: TopicStream, segment: Segment) -> None:
        """The log goes on in another file."""
        before = stream.live
        if before is not None:
            if stream.has.get(stream.live_name) == before.size and before in stream.log.segments:
                self._put(Seal(stream.number, stream.live_name, before.size))
                stream.whole.add(stream.live_name)
            else:
                self._to_look[stream] = None
        stream.live, stream.live_name = segment, segment.path.name
        stream.has[stream.live_name] = 0

    def checkpointed(self, log: LogWriter, job: CheckpointJob) -> None:
        """The home has written a checkpoint, which tells of nothing that was not streamed before."""
        stream = self._streams.get(log)
        if self.state is not HomeState.STREAMING or stream is None or not stream.begun:
            return
        name = NAMES[job.place]
        if not job.offset:
            self._parts(stream, f"{name}.tmp", 0, job.content)
            self._put(Rename(stream.number, f"{name}.tmp", name))
            stream.has[name] = len(job.content)
        elif stream.has.get(name) == job.offset:
            self._parts(stream, name, job.offset, job.content)
            stream.has[name] = job.offset + len(job.content)
        else:
            self.home.wants_checkpoint[log] = None
            return
        if not stream.linked:
            if stream.covered_by(job.mark.next, job.mark.notes):
                self._link(stream)
            else:
                self.home.wants_checkpoint[log] = None

    def _parts(self, stream: TopicStream, name: str, offset: int, data: bytes) -> None:
        for at in range(0, max(1, len(data)), MAX_DATA):
            part = data[at : at + MAX_DATA]
            self._put(FilePart(stream.number, name, offset + at, xxh3_64_intdigest(part), part))

    def deleted(self, log: LogWriter, name: str) -> None:
        """A topic is gone."""
        stream = self._streams.pop(log, None)
        if stream is not None:
            del self._numbers[stream.number]
            self._to_look.pop(stream, None)
        if self.state in (HomeState.MEETING, HomeState.STREAMING, HomeState.VISITING):
            self._put(Deleted(name))
            self._untold_to.append((self.sent, name))
            if self.state is HomeState.MEETING and all(
                one.told is not None for one in self._streams.values()
            ):
                self._begin()

    # --- who waits ---

    def wait(self, wait: Wait) -> None:
        """Somebody waits for all that was said so far."""
        durable = self.home.settings.strict
        self._sync_wanted = self._sync_wanted or durable
        self._waits.add(self.sent, wait, durable=durable)

    def _stall(self) -> None:
        """Nobody waits for it any longer, until it has caught up."""
        if not self.stalled:
            self.stalled = True
            self._waits.lose()
        self._stalled_at = self.sent

    # --- filling ---

    def look_at(self, log: LogWriter) -> None:
        """Files of a log have gone, or others took their place."""
        stream = self._streams.get(log)
        if stream is not None:
            self._to_look[stream] = None

    def _fill(self, now_ns: int) -> None:
        """Begin to read what the keeper lacks, as fast as it may be sent."""
        if self.state is not HomeState.STREAMING:
            return
        while (
            self._to_look and not self._reads and self.behind < _FILL_WINDOW and now_ns >= self._fill_from_ns
        ):
            stream = next(iter(self._to_look))
            for name in stream.extra():
                self._put(Remove(stream.number, name))
                del stream.has[name]
                stream.whole.discard(name)
            job = stream.next_read()
            if job is None:
                del self._to_look[stream]
                if stream.is_filled and not stream.filled and not stream.reading:
                    stream.filled = True
                    self._put(CopyState(stream.number, CopyState.FILLED))
                continue
            if not job.size:
                stream.reading = False
                self._filled(stream, job)
                continue
            self._fill_from_ns = max(self._fill_from_ns, now_ns - _FILL_BURST_NS)
            self._fill_from_ns += job.size * _S // self.home.settings.fill_rate
            self._reads += 1
            self._jobs.append(job)

    def _filled(self, stream: TopicStream, job: ReadJob) -> None:
        segment, name = job.segment, job.segment.path.name
        if job.size:
            self._parts(stream, job.target, job.offset, job.data)
            self.bytes_filled += job.size
            stream.has[job.target] = job.offset + job.size
        if stream.has.get(job.target) != segment.size:
            return
        if job.target == name:
            self._put(Seal(stream.number, name, segment.size))
        else:
            self._put(Rename(stream.number, job.target, name))
            stream.has[name] = stream.has.pop(job.target)
        stream.whole.add(name)


def run_reads(link: HomeLink, disk: Disk, now_ns: int) -> None:
    """Do all that is to be read at once, as a simulation does, or `nsqd-data`."""
    while jobs := link.jobs():
        for job in jobs:
            error = None
            try:
                job.run(disk)
            except OSError as failed:
                error = failed
            link.ended(job, error, now_ns)
