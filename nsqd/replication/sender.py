"""The stream of one connection: sent and acknowledged positions, and the publishers that wait. Pure."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import Ack, AnyFrame, Sync
from nsqd.replication.framing import MAX_APPEND, encode

# Called once: with "" for an OK, or with the reason for an error.
AckCallback: TypeAlias = Callable[[str], None]


class PendingAck:
    """An answer that waits for *wanted* replicas, or for all in sync if there are fewer (rule 1).

    Only replicas in sync at that moment count. With *refuse* the answer is an error once fewer than *wanted*
    are in sync.
    """

    __slots__ = ("_callbacks", "positions", "refuse", "result", "wanted")

    def __init__(self, positions: list[tuple["Sender", int]], wanted: int, *, refuse: bool) -> None:
        """*positions* has the replicas in sync, and what each of them must acknowledge."""
        self.positions = positions
        self.wanted = wanted
        self.refuse = refuse
        # None while it is open; then the result that the publishers got.
        self.result: str | None = None
        self._callbacks: list[AckCallback] = []
        self.check()

    def add(self, callback: AckCallback) -> None:
        """Call *callback* with the result; immediately if there is one."""
        if self.result is None:
            self._callbacks.append(callback)
        else:
            callback(self.result)

    def check(self) -> None:
        """Give the publishers their answer if there is one by now."""
        if self.result is not None:
            return
        acks = [sender.reached >= position for sender, position in self.positions if sender.is_up]
        if self.refuse and len(acks) < self.wanted:
            self.result = too_few(len(acks), self.wanted)
        elif sum(acks) >= min(self.wanted, len(acks)):
            self.result = ""
        else:
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self.result)


def too_few(have: int, wanted: int) -> str:
    """Why publishes are refused."""
    return f"{have} of {wanted} replicas are in sync"


# A replica with so many unacknowledged bytes is disconnected; the next stream continues from the disk.
MAX_LAG_BYTES: Final = 2 * MAX_APPEND


class Sender:
    """The frames of one connection after its handshake, counted in bytes; times are nanoseconds."""

    def __init__(self, now_ns: int, *, strict: bool) -> None:
        """With *strict* only durable bytes at the replica are acknowledged to publishers."""
        self.strict = strict
        # Bytes of frames so far: sent, written by the replica, durable there.
        self.sent = 0
        self.written = 0
        self.synced = 0
        # The replica has not acknowledged in time: publishers do not wait for it until it has.
        self.stalled = False
        self.closed = False
        self.sent_ns = now_ns
        self._stalled_at = 0
        self._out: list[bytes] = []
        # Pending acknowledgements, each with the position that it needs.
        self._waiters: deque[tuple[int, PendingAck]] = deque()
        # Those that wait for other replicas only.
        self._acknowledged: deque[PendingAck] = deque()
        self._sync_requested = False
        # Positions and when they were sent, until they are acknowledged.
        self._under_way: deque[tuple[int, int]] = deque()

    # --- sending ---

    def put(self, frame: AnyFrame) -> None:
        data = encode(frame)
        self._out.append(data)
        self.sent += len(data)

    def put_pieces(self, head: bytes, pieces: Sequence[bytes], size: int) -> None:
        """Send a frame whose data, *size* bytes, is in *pieces*."""
        self._out.append(head)
        self._out += pieces
        self.sent += len(head) + size

    def flush(self, now_ns: int) -> list[bytes]:
        """The frames to send now, in order."""
        if self._sync_requested:
            self._sync_requested = False
            self.put(Sync())
        out, self._out = self._out, []
        if out:
            self.sent_ns = now_ns
            self._under_way.append((self.sent, now_ns))
        return out

    def request_sync(self) -> None:
        """Have everything sent so far made durable at the replica."""
        self._sync_requested = True

    # --- acknowledgements ---

    def acknowledged(self, ack: Ack) -> None:
        """Take an acknowledgement; :meth:`notify` answers publishers. Raises BadFrame."""
        if not (self.written <= ack.written <= self.sent and self.synced <= ack.synced <= ack.written):
            raise BadFrame("an acknowledgement of bytes that were not sent")
        self.written, self.synced = ack.written, ack.synced
        under_way = self._under_way
        while under_way and under_way[0][0] <= ack.written:
            under_way.popleft()
        if self.stalled and ack.written >= self._stalled_at:
            # Nothing of the stream was lost: the replica has all that was sent while it was stalled.
            self.stalled = False

    @property
    def is_up(self) -> bool:
        """Whether publishers wait for the replica."""
        return not (self.stalled or self.closed)

    @property
    def reached(self) -> int:
        """The acknowledged position that counts for publishers."""
        return self.synced if self.strict else self.written

    @property
    def lag_bytes(self) -> int:
        """Bytes that were sent and are not written yet."""
        return self.sent - self.written

    def lag_ns(self, now_ns: int) -> int:
        """How long the oldest of them has been under way."""
        return now_ns - self._under_way[0][1] if self._under_way else 0

    # --- publishers ---

    def add_waiter(self, pending: PendingAck) -> None:
        """Check *pending* when everything sent so far is acknowledged, or the replica is lost."""
        if self.reached < self.sent:
            self._sync_requested = self._sync_requested or self.strict
            self._waiters.append((self.sent, pending))
        else:
            self._acknowledged.append(pending)

    def notify(self) -> None:
        """Answer the publishers whose messages are acknowledged by now."""
        waiters, acknowledged, reached = self._waiters, self._acknowledged, self.reached
        while waiters and waiters[0][0] <= reached:
            pending = waiters.popleft()[1]
            pending.check()
            acknowledged.append(pending)
        while acknowledged and acknowledged[0].result is not None:
            acknowledged.popleft()

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def check_timeout(self, now_ns: int, timeout_ns: int) -> None:
        """Stop waiting for a replica that has not acknowledged for *timeout_ns*."""
        if self._under_way and now_ns - self._under_way[0][1] > timeout_ns:
            if not self.stalled:
                self.stalled = True
                self._lose()
            self._stalled_at = self.sent

    def close(self) -> None:
        """The connection is gone."""
        self.closed = True
        self._lose()

    def _lose(self) -> None:
        """The replica is not in sync any more."""
        waiting = (*self._acknowledged, *(pending for _, pending in self._waiters))
        self._acknowledged.clear()
        self._waiters.clear()
        for pending in waiting:
            pending.check()
