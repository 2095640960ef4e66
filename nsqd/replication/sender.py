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
    """An answer to publishers that waits until *need* of *possible* replicas have acknowledged.

    With a *reason* it is given to the publishers when fewer than *need* replicas are left. Without one, the
    publishers wait for those that are left.
    """

    __slots__ = ("_callbacks", "need", "possible", "reason", "result")

    def __init__(self, need: int, possible: int, reason: str) -> None:
        """*possible* is the number of replicas in sync that have not acknowledged yet."""
        self.need = need
        self.possible = possible
        self.reason = reason
        # None while it is open; then the result that the publishers got.
        self.result: str | None = None
        self._callbacks: list[AckCallback] = []
        self._check()

    @property
    def is_open(self) -> bool:
        return self.result is None

    def add(self, callback: AckCallback) -> None:
        """Call *callback* with the result; immediately if there is one."""
        if self.result is None:
            self._callbacks.append(callback)
        else:
            callback(self.result)

    def acknowledged(self) -> None:
        """One more replica has acknowledged."""
        self.need -= 1
        self.possible -= 1
        self._check()

    def lost(self) -> None:
        """A replica that had not acknowledged is not in sync any more."""
        self.possible -= 1
        self._check()

    def withdrawn(self) -> None:
        """A replica that had acknowledged is not in sync any more: only those in sync at the OK count."""
        self.need += 1
        self._check()

    def _check(self) -> None:
        if self.result is not None:
            return
        if self.need > self.possible:
            if self.reason:
                self._close(self.reason)
                return
            self.need = self.possible
        if self.need <= 0:
            self._close("")

    def _close(self, result: str) -> None:
        self.result = result
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(result)


class AckQueue:
    """The pending acknowledgements of one replica, in the order of its stream."""

    __slots__ = ("_acknowledged", "_queue")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bool, PendingAck]] = deque()
        # Acknowledged by this replica and not by enough others yet.
        self._acknowledged: deque[PendingAck] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, position: int, pending: PendingAck, *, durable: bool) -> None:
        """*pending* needs everything before *position*, *durable* or written."""
        self._queue.append((position, durable, pending))

    def add_acknowledged(self, pending: PendingAck) -> None:
        """The replica has acknowledged all that *pending* needs."""
        while self._acknowledged and not self._acknowledged[0].is_open:
            self._acknowledged.popleft()
        if pending.is_open:
            self._acknowledged.append(pending)

    def reached(self, written: int, synced: int) -> None:
        """The replica has acknowledged the stream up to this position."""
        queue = self._queue
        while queue:
            position, durable, pending = queue[0]
            if position > (synced if durable else written):
                return
            queue.popleft()
            if pending.is_open:
                pending.acknowledged()
                self.add_acknowledged(pending)

    def lose(self) -> None:
        """The replica is not in sync any more."""
        queue, self._queue = self._queue, deque()
        acknowledged, self._acknowledged = self._acknowledged, deque()
        for pending in acknowledged:
            if pending.is_open:
                pending.withdrawn()
        for _, _, pending in queue:
            if pending.is_open:
                pending.lost()


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
        self._acks = AckQueue()
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
    def has_all(self) -> bool:
        """Whether the replica has everything that was sent; with *strict* durably."""
        return (self.synced if self.strict else self.written) >= self.sent

    @property
    def lag_bytes(self) -> int:
        """Bytes that were sent and are not written yet."""
        return self.sent - self.written

    def lag_ns(self, now_ns: int) -> int:
        """How long the oldest of them has been under way."""
        return now_ns - self._under_way[0][1] if self._under_way else 0

    # --- publishers ---

    def add_waiter(self, pending: PendingAck) -> None:
        """Let *pending* wait until everything sent so far is acknowledged."""
        if self.has_all:
            self._acks.add_acknowledged(pending)
            return
        self._sync_requested = self._sync_requested or self.strict
        self._acks.add(self.sent, pending, durable=self.strict)

    def notify(self) -> None:
        """Answer the publishers whose messages are acknowledged by now."""
        self._acks.reached(self.written, self.synced)

    @property
    def has_waiters(self) -> bool:
        return bool(len(self._acks))

    def check_timeout(self, now_ns: int, timeout_ns: int) -> None:
        """Stop waiting for a replica that has not acknowledged for *timeout_ns*."""
        if self._under_way and now_ns - self._under_way[0][1] > timeout_ns:
            if not self.stalled:
                self.stalled = True
                self._acks.lose()
            self._stalled_at = self.sent

    def close(self) -> None:
        """The connection is gone."""
        self.closed = True
        self._acks.lose()
