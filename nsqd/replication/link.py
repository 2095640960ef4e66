"""One connection between two nodes: the handshake, streams, statuses and channel state. No socket, no clock.

The driver feeds bytes to :meth:`PeerLink.receive`, sends what :meth:`PeerLink.flush` returns, and calls
:meth:`PeerLink.tick` ten times a second. Times are nanoseconds of a clock that only goes forward.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

from nsqd.log.disk import Disk, error_text
from nsqd.replication.copies import Copies
from nsqd.replication.copy_file import Mismatch
from nsqd.replication.copy_folder import FileFrame
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import (
    Ack,
    AnyFrame,
    ChannelState,
    DeleteTopic,
    Draining,
    Have,
    Hello,
    Log,
    Ping,
    Ready,
    Refuse,
    Snapshot,
    Status,
    Sync,
    TakeOver,
    Topic,
)
from nsqd.replication.framing import MAX_APPEND, MAX_FRAME, FrameReader, encode
from nsqd.replication.handshake import MAX_HANDSHAKE_FRAME, Handshake
from nsqd.replication.incoming import IncomingLog
from nsqd.replication.log_stream import LogStream, ReplicaSettings
from nsqd.replication.primary import Primary
from nsqd.replication.sender import Sender

_S: Final = 1_000_000_000
_PING_NS: Final = _S // 2
# A peer from which nothing was received for so long is gone: half the failover timeout, within these bounds.
_MIN_SILENCE_NS: Final = 2 * _S
_MAX_SILENCE_NS: Final = 15 * _S
# A peer that has not finished the handshake after so long is refused.
_HANDSHAKE_NS: Final = 10 * _S


class LinkOwner(Protocol):
    """The interface of the node that a connection uses."""

    settings: ReplicaSettings
    identity: bytes
    copies: Copies
    # The `NodeState`, the `Streams` and the `DeletedTopics`, which know connections.
    state: Any
    streams: Any
    deleted: Any

    def link_up(self, link: "PeerLink", now_ns: int) -> None: ...
    def link_ended(self, link: "PeerLink") -> None: ...
    def take_channel_state(self, link: "PeerLink", frame: ChannelState) -> None: ...
    def take_status(self, link: "PeerLink", frame: Status, now_ns: int) -> None: ...
    def stream_began(self, link: "PeerLink") -> None: ...


class LinkState(IntEnum):
    """The state of a connection."""

    HANDSHAKE = 0
    UP = 1
    CLOSED = 2


class PeerLink:
    """See the module; used by the connector and by the acceptor."""

    def __init__(self, node: LinkOwner, handshake: Handshake, now_ns: int, *, connector: bool) -> None:
        self.node = node
        self.connector = connector
        self.state = LinkState.HANDSHAKE
        # Why it ended; and the code if one side refused.
        self.reason = ""
        self.refused = 0
        # The peer refused, not this node.
        self.refused_by_peer = False
        # The last `Draining` of the peer, and the last that was sent: an acceptor begins with one.
        self.draining: Draining | None = None
        self.sent_draining: Draining | None = None
        self.heard_ns = now_ns
        self.sender = Sender(now_ns, strict=node.settings.strict)
        # The logs that are streamed to the peer, and those that come from it, by their numbers.
        self.streams: dict[int, LogStream] = {}
        self.incoming: dict[int, IncomingLog] = {}
        self._by_topic: dict[int, IncomingLog] = {}
        self._handshake = handshake
        self._began_ns = now_ns
        self._reader = FrameReader(MAX_HANDSHAKE_FRAME)
        self._out: list[bytes] = [encode(frame) for frame in handshake.first_frames()]
        self._base = 0
        self._next_log = 1
        self._next_topic = 1
        # Received bytes up to the last frame that was taken.
        self._position = 0
        self._acknowledged = (0, 0)
        # Positions of frames whose jobs have not ended; nothing after them is acknowledged.
        self.unacknowledged: list[int] = []
        # Positions of deletions that the peer has not acknowledged, in order.
        self._deletions: list[tuple[int, DeleteTopic]] = []
        # Deletions that the peer has sent before the log.
        self._early_deletions: list[DeleteTopic] = []

    def __repr__(self) -> str:
        direction = "to" if self.connector else "from"
        return f"<PeerLink {direction} {self.address or 'a stranger'} {self.state.name}>"

    # --- the peer ---

    @property
    def is_up(self) -> bool:
        return self.state is LinkState.UP

    @property
    def is_closed(self) -> bool:
        return self.state is LinkState.CLOSED

    @property
    def hello(self) -> Hello | None:
        """The peer's handshake frame; it counts only once its membership is proved."""
        return self._handshake.peer

    @property
    def peer(self) -> bytes:
        """The identity of the peer; empty before it has proved it."""
        return self.hello.identity if self._handshake.done and self.hello is not None else b""

    @property
    def peer_drains(self) -> bool:
        """Whether the peer drains or has no room."""
        return self.draining is not None and self.draining.draining

    @property
    def peer_accepts(self) -> bool:
        """Whether the peer accepts streams: not before its first `Draining` frame."""
        return self.draining is not None and not self.draining.fewer_copies

    @property
    def is_preferred(self) -> bool:
        """Whether statuses use this connection and not one that the other node has made."""
        return self.connector is (self.node.identity < self.peer)

    @property
    def token(self) -> bytes:
        """That of the peer's incarnation."""
        return b"" if self.hello is None else self.hello.token

    @property
    def address(self) -> str:
        return "" if self.hello is None else self.hello.address

    # --- called by the driver ---

    def receive(self, data: bytes, now_ns: int) -> None:
        """Take bytes of the peer and act on them."""
        if self.is_closed:
            return
        self.heard_ns = now_ns
        try:
            for frame in self._reader.feed(data):
                at, self._position = self._position, self._reader.position
                if self.state is LinkState.HANDSHAKE:
                    self._greet(frame, now_ns)
                else:
                    self._take(frame, at - self._base, now_ns)
                if self.has_ended():
                    return
        except (BadFrame, Mismatch, OSError) as error:
            self._refuse_for(error)
            return
        self._go_on(now_ns)

    def has_ended(self) -> bool:
        """Whether the last frame has ended the connection."""
        return self.is_closed

    def flush(self, now_ns: int) -> list[bytes]:
        """The frames to send now, in order."""
        out, self._out = self._out, []
        if self.connector and self.is_up:
            out += self.sender.flush(now_ns)
        elif out:
            self.sender.sent_ns = now_ns
        return out

    def tick(self, now_ns: int) -> None:
        """Do the work that is due at this time."""
        if self.is_closed:
            return
        if self.state is LinkState.HANDSHAKE:
            if now_ns - self._began_ns > _HANDSHAKE_NS:
                self.end("the handshake was not finished in time")
            return
        if now_ns - self.heard_ns > silence_ns(self.node.settings.failover_ns):
            self.end("the peer is silent")
            return
        if now_ns - self.sender.sent_ns >= _PING_NS:
            self.send(Ping())
            self.sender.sent_ns = now_ns
        if self.connector:
            self.sender.check_timeout(now_ns, self.node.settings.timeout_ns)
        self._go_on(now_ns)

    def sync(self) -> None:
        """Make the received bytes of the incoming logs durable."""
        for one in self.incoming.values():
            one.sync()
            one.begin_jobs()

    def _start_job(self, run: Callable[[Disk], None], then: Callable[[Exception | None, int], None]) -> None:
        """Run a job soon; an error in the call after its end ends the connection."""

        def ended(error: Exception | None, now_ns: int) -> None:
            try:
                then(error, now_ns)
            except (BadFrame, Mismatch, OSError) as failed:
                self._refuse_for(failed)
            except Exception as failed:
                self.end(f"a job failed: {type(failed).__name__}: {failed}")
                raise
            if not self.is_closed:
                self._go_on(now_ns)

        self.node.state.start(run, ended)

    def send(self, frame: AnyFrame) -> None:
        """Send a frame after those that are waiting."""
        if self.is_closed:
            return
        if self.connector and self.is_up:
            self.sender.put(frame)
        else:
            self._out.append(encode(frame))

    def refuse(self, code: int, sentence: str) -> None:
        """End the connection with one sentence for the peer."""
        if not self.is_closed:
            self.refused = code
            self._out += self.sender.flush(0) if self.connector and self.is_up else []
            self._out.append(encode(Refuse(code, sentence)))
            self.node.state.refused(code)
            self.end(sentence)

    def _refuse_for(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self.refuse(Refuse.DISK, f"the replica's disk: {error_text(error)}")
        else:
            self.refuse(Refuse.DAMAGED if isinstance(error, Mismatch) else Refuse.BAD_FRAME, str(error))

    def end(self, reason: str) -> None:
        """End this side: the connection is gone, or is to go."""
        if self.is_closed:
            return
        was_up = self.is_up
        self.state = LinkState.CLOSED
        self.reason = self.reason or reason
        self.sender.close()
        for stream in list(self.streams.values()):
            stream.close()
        for one in self.incoming.values():
            one.close()
        if was_up:
            self.node.link_ended(self)

    def _go_on(self, now_ns: int) -> None:
        for stream in self.streams.values():
            stream.catch_up(now_ns)
            if stream.problem:
                self.end(stream.problem)
                return
        for one in self.incoming.values():
            one.begin_jobs()
            if one.out:
                out, one.out = one.out, []
                self._out += map(encode, out)
        self._acknowledge()

    # --- frames ---

    def _greet(self, frame: AnyFrame, now_ns: int) -> None:
        handshake = self._handshake
        self._out += map(encode, handshake.take(frame))
        if handshake.problem:
            if handshake.refusal is not None:
                self.refused = handshake.refusal.code
                self.node.state.refused(self.refused)
            elif handshake.refused_by_peer is not None:
                self.refused, self.refused_by_peer = handshake.refused_by_peer.code, True
            by_peer = "the peer refuses: " if self.refused_by_peer else ""
            self.end(by_peer + handshake.problem)
        elif handshake.done:
            self.state = LinkState.UP
            self._reader.max_frame = MAX_APPEND + MAX_FRAME
            self._base = self._position
            self.sender.sent_ns = now_ns
            self.node.link_up(self, now_ns)

    def _take(self, frame: AnyFrame, at: int, now_ns: int) -> None:
        """Take a frame that begins at this position of the stream."""
        if isinstance(frame, FileFrame) and not self.connector:
            # The most frequent ones.
            log = self._by_topic.get(frame.topic)
            if log is None:
                raise BadFrame(f"there is no topic {frame.topic}")
            log.take(frame, at)
        elif isinstance(frame, Ping):
            return
        elif isinstance(frame, Refuse):
            self.refused, self.refused_by_peer = frame.code, True
            self.end(f"the peer refuses: {frame.sentence}")
        elif isinstance(frame, ChannelState):
            self.node.take_channel_state(self, frame)
        elif isinstance(frame, Status):
            self.node.take_status(self, frame, now_ns)
        elif isinstance(frame, DeleteTopic):
            self.node.deleted.take(self, frame, at)
            streams = [one for one in self.incoming.values() if one.log.origin == frame.origin]
            for one in streams:
                one.take(frame, at)
            if not streams:
                self._early_deletions.append(frame)
        elif self.connector:
            self._take_answer(frame, now_ns)
        else:
            self._take_stream(frame, at, now_ns)

    # --- the primary's side ---

    def begin_stream(self, primary: Primary, index: int, now_ns: int) -> LogStream:
        """Stream a log to the peer."""
        number, self._next_log = self._next_log, self._next_log + 1
        stream = LogStream(
            primary, self.peer, self.sender, number, index, self._draw_topic, self._start_job, now_ns
        )
        self.streams[number] = stream
        return stream

    def _draw_topic(self) -> int:
        number, self._next_topic = self._next_topic, self._next_topic + 1
        return number

    def stream_of(self, primary: Primary) -> LogStream | None:
        """The stream of that log to this peer."""
        return next((one for one in self.streams.values() if one.primary is primary), None)

    def delete_topic(self, frame: DeleteTopic) -> None:
        """Send a deletion; its acknowledgement is reported to the node."""
        self.send(frame)
        self._deletions.append((self.sender.sent, frame))

    def _take_answer(self, frame: AnyFrame, now_ns: int) -> None:
        if isinstance(frame, Ack):
            self.sender.acknowledged(frame)
            while self._deletions and self._deletions[0][0] <= frame.written:
                self.node.deleted.acknowledged(self.peer, self._deletions.pop(0)[1])
            self.sender.notify()
        elif isinstance(frame, Have):
            stream = next((one for one in self.streams.values() if one.has_topic(frame.topic)), None)
            if stream is not None:
                stream.take_have(frame)
        elif isinstance(frame, Ready) and frame.log in self.streams:
            self.streams[frame.log].take_ready(frame, now_ns)
            self.node.stream_began(self)
        elif isinstance(frame, Draining):
            self.draining = frame
            self.node.streams.begin(self, now_ns)
        else:
            raise BadFrame(f"{type(frame).__name__} cannot be sent now")

    # --- the replica's side ---

    def _take_stream(self, frame: AnyFrame, at: int, now_ns: int) -> None:
        if isinstance(frame, Log):
            if frame.number in self.incoming:
                raise BadFrame(f"log {frame.number} is streamed already")
            candidate = self.node.streams.candidate_for(self, frame)
            if not self.is_closed:
                self.incoming[frame.number] = IncomingLog(
                    *(frame, self.peer, self.node.copies, candidate, self._start_job),
                    self._origin_node_id(frame),
                    [one for one in self._early_deletions if one.origin == frame.origin],
                )
        elif isinstance(frame, Sync):
            self.sync()
        elif isinstance(frame, Topic):
            one = self._log(frame.log)
            one.take(frame, at)
            self._by_topic[frame.topic] = one
        elif isinstance(frame, Ready):
            self._log(frame.log).take(frame, at)
        elif isinstance(frame, Snapshot):
            one = self._log(frame.log)
            self.node.streams.before(one, frame)
            one.take(frame, at)
            self.node.streams.began(self, one, now_ns)
        elif isinstance(frame, TakeOver):
            self.node.streams.take_over(self, self._log(frame.log), frame.epoch, now_ns)
        else:
            raise BadFrame(f"{type(frame).__name__} cannot be sent now")

    def _origin_node_id(self, frame: Log) -> int:
        """The node id of the log's origin, if the peer is that; 0 otherwise."""
        return self.hello.node_id if self.hello is not None and self.peer == frame.origin else 0

    def _log(self, number: int) -> IncomingLog:
        one = self.incoming.get(number)
        if one is None:
            raise BadFrame(f"there is no log {number}")
        return one

    def _acknowledge(self) -> None:
        """Acknowledge the written and the durable bytes; frames that wait for a job are neither."""
        if self.connector or not self.is_up:
            return
        written = synced = min((self._position - self._base, *self.unacknowledged))
        for one in self.incoming.values():
            unwritten, unsynced = one.unwritten_from, one.unsynced_from
            written = written if unwritten is None else min(written, unwritten)
            synced = synced if unsynced is None else min(synced, unsynced)
        now = (max(written, self._acknowledged[0]), max(min(synced, written), self._acknowledged[1]))
        if now != self._acknowledged:
            self._acknowledged = now
            self._out.append(encode(Ack(*now)))


def silence_ns(failover_ns: int) -> int:
    """After how long a silent peer is gone: its replicas are open when the failover timeout has passed."""
    return min(_MAX_SILENCE_NS, max(_MIN_SILENCE_NS, failover_ns // 2))
