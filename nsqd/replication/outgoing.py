"""What a home has said on one connection, how much of it the keeper has, and who waits for that. Pure."""

from collections import deque
from collections.abc import Sequence

from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import Ack, AnyFrame, SyncCopy
from nsqd.replication.framing import encode
from nsqd.replication.waits import Wait, Waits


class SaidToKeeper:
    """The frames of one connection, counted in bytes from the first on; times are nanoseconds."""

    __slots__ = (
        "_out",
        "_stalled_at",
        "_sync_wanted",
        "_under_way",
        "_waits",
        "said_ns",
        "sent",
        "stalled",
        "strict",
        "synced",
        "written",
    )

    def __init__(self, now_ns: int, *, strict: bool) -> None:
        """With *strict* only what is durable at the keeper counts as what it has."""
        self.strict = strict
        # Bytes of frames so far: said, written by the keeper, durable there.
        self.sent = 0
        self.written = 0
        self.synced = 0
        # Nobody waits for the keeper until it has caught up.
        self.stalled = False
        self.said_ns = now_ns
        self._stalled_at = 0
        self._out: list[bytes] = []
        self._waits = Waits()
        self._sync_wanted = False
        # Positions and when they were said, until they are acknowledged.
        self._under_way: deque[tuple[int, int]] = deque()

    # --- what is said ---

    def put(self, frame: AnyFrame) -> None:
        data = encode(frame)
        self._out.append(data)
        self.sent += len(data)

    def put_pieces(self, head: bytes, pieces: Sequence[bytes], size: int) -> None:
        """Say a frame whose data, *size* bytes, is in *pieces*."""
        self._out.append(head)
        self._out += pieces
        self.sent += len(head) + size

    def flush(self, now_ns: int) -> list[bytes]:
        """What is to be sent now, in order."""
        if self._sync_wanted:
            self._sync_wanted = False
            self.put(SyncCopy())
        out, self._out = self._out, []
        if out:
            self.said_ns = now_ns
            self._under_way.append((self.sent, now_ns))
        return out

    def want_durable(self) -> None:
        """Have all that was said so far made durable at the keeper."""
        self._sync_wanted = True

    # --- what the keeper has ---

    def acknowledged(self, ack: Ack) -> None:
        """Take an acknowledgement. Raises BadFrame."""
        if not (self.written <= ack.written <= self.sent and self.synced <= ack.synced <= ack.written):
            raise BadFrame("an acknowledgement of what was not said")
        self.written, self.synced = ack.written, ack.synced
        under_way = self._under_way
        while under_way and under_way[0][0] <= ack.written:
            under_way.popleft()
        if self.stalled and ack.written >= self._stalled_at:
            # Nothing of the stream was lost: the keeper has all that was said while it hung.
            self.stalled = False

    @property
    def has_all(self) -> bool:
        """Whether the keeper has all that was said; with *strict* durably."""
        return (self.synced if self.strict else self.written) >= self.sent

    @property
    def behind(self) -> int:
        """Bytes that were said and are not written yet."""
        return self.sent - self.written

    def behind_ns(self, now_ns: int) -> int:
        """How long the oldest of them has been under way."""
        return now_ns - self._under_way[0][1] if self._under_way else 0

    # --- who waits ---

    def wait(self, wait: Wait) -> None:
        """Let *wait* be for all that was said so far."""
        durable = self.strict
        self._sync_wanted = self._sync_wanted or durable
        self._waits.add(self.sent, wait, durable=durable)

    def tell(self) -> None:
        """Tell those who waited for what the keeper has by now."""
        self._waits.reached(self.written, self.synced)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits."""
        return bool(len(self._waits))

    def look(self, now_ns: int, timeout_ns: int) -> None:
        """Stop waiting for a keeper that has not acknowledged for *timeout_ns*."""
        if self._under_way and now_ns - self._under_way[0][1] > timeout_ns:
            if not self.stalled:
                self.stalled = True
                self._waits.lose()
            self._stalled_at = self.sent

    def lose(self) -> None:
        """The connection is gone."""
        self._waits.lose()
