"""Which messages were published already: the header ``dedup-id`` within the window that a policy names.

The ids are in the log with the messages, so a start finds them after any stop. A topic remembers the ids of
its window. All topics of a node share the room for them; when it is full, the oldest are forgotten.
"""

from collections import OrderedDict
from typing import Final

from xxhash import xxh3_128_intdigest

from nsqd.engine.clock import Wall
from nsqd.log import cursor
from nsqd.log.encoder import Batch
from nsqd.log.frames import FRAME_OVERHEAD, Block, Buffer
from nsqd.log.headers import extension_bytes, split
from nsqd.log.tail import MessageLog

HEADER: Final = "dedup-id"
# How many ids a node remembers, of some 200 bytes each.
MAX_IDS: Final = 1 << 19


class DedupBudget:
    """How many ids all topics of a node remember together, and how many they may."""

    __slots__ = ("max_ids", "used")

    def __init__(self) -> None:
        self.max_ids = MAX_IDS
        self.used = 0


class DedupWindow:
    """The ids of one topic. Times are those of the engine's clock, because the wall clock may be set."""

    __slots__ = ("_room", "_staged", "_times", "forgotten", "repeated", "window_ns")

    def __init__(self, window_ns: int, room: DedupBudget) -> None:
        self.window_ns = window_ns
        # Messages that were not stored because they repeat others, and ids forgotten for lack of room within
        # the window.
        self.repeated = 0
        self.forgotten = 0
        self._room = room
        # When each id was published, the oldest first.
        self._times: OrderedDict[int, int] = OrderedDict()
        # Ids of messages that are not stored yet.
        self._staged: list[int] = []

    def __len__(self) -> int:
        return len(self._times)

    def has(self, key: int, now_ns: int) -> bool:
        """Whether a message with this id was published within the window; if so, that is counted."""
        published_ns = self._times.get(key)
        if published_ns is None or now_ns - published_ns >= self.window_ns:
            return False
        self.repeated += 1
        return True

    def fresh(self, batch: Batch, now_ns: int) -> tuple[Batch, list[int]]:
        """The messages of a batch that were not published before, and the ids in it."""
        bodies: list[Buffer] = []
        keys: dict[int, None] = {}
        extensions = 0
        for body in batch.bodies:
            begin = extension_bytes(body, 0)
            key = key_of(bytes(body[:begin]))
            if key is not None:
                if key in keys:
                    self.repeated += 1
                    continue
                if self.has(key, now_ns):
                    continue
                keys[key] = None
            extensions += begin
            bodies.append(body)
        return Batch(bodies, has_headers=True, extension_bytes=extensions), list(keys)

    def load(self, log: MessageLog, wall: Wall, now_ns: int) -> None:
        """Remember the ids that were published in the window before a start. Raises CannotRead.

        Those that lie in the future, because the wall clock was set back, count as published now.
        """
        offset_ns = wall.offset_ns
        for start, stop, found in cursor.scan(log, cursor.seek(log, now_ns + offset_ns - self.window_ns)):
            if not isinstance(found, Block) or not found.has_headers:
                continue
            for seq in range(start, stop):
                body = found.view(seq, seq + 1)[FRAME_OVERHEAD:]
                key = key_of(bytes(body[: extension_bytes(body, 0)]))
                if key is not None:
                    self.remember(key, min(now_ns, found.timestamp_ns(seq) - offset_ns))

    def stage(self, key: int, now_ns: int) -> None:
        """A message with this id is about to be stored."""
        self.remember(key, now_ns)
        self._staged.append(key)

    def remember(self, key: int, published_ns: int) -> None:
        """A message with this id is stored."""
        times, room = self._times, self._room
        self._drop(key)
        while times and published_ns - next(iter(times.values())) >= self.window_ns:
            times.popitem(last=False)
            room.used -= 1
        if room.used >= room.max_ids:
            self.forgotten += 1
            if not times:
                # Other topics use all the room: a repetition of this message will not be recognised.
                return
            times.popitem(last=False)
            room.used -= 1
        times[key] = published_ns
        room.used += 1

    def stored(self) -> None:
        """The staged messages are stored."""
        self._staged = []

    def abandoned(self) -> None:
        """The staged messages could not be stored: forget their ids."""
        for key in self._staged:
            self._drop(key)
        self._staged = []

    def forget(self) -> None:
        """Forget all ids, for instance when it is unknown whether the messages are on the disk."""
        self._room.used -= len(self._times)
        self._times.clear()
        self._staged = []

    def _drop(self, key: int) -> None:
        if self._times.pop(key, None) is not None:
            self._room.used -= 1


def key_of(extension: bytes) -> int | None:
    """The number that stands for the id in a message's headers; None when they have none."""
    if b"dedup" not in extension and b"\\" not in extension:
        return None
    headers, _ = split(extension)
    name = headers.get(HEADER)
    return None if name is None else xxh3_128_intdigest(name.encode())
