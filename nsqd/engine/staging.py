"""Staging: numbers and encodes the messages published to a topic, until they are written.

Everything else that happens to the topic is staged as notes, which are written before the messages.
"""

from io import BytesIO
from typing import Any, Protocol

from nsqclient.wire.names import is_ephemeral
from nsqd.engine import notes
from nsqd.engine.clock import Wall
from nsqd.engine.dedup import DedupWindow, key_of
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import FRAME_OVERHEAD, NOT_DEFERRED, Block, Buffer
from nsqd.log.headers import NO_HEADERS
from nsqd.log.ids import MessageIds


class Bound(Protocol):
    """A limit on what a topic may hold."""

    def admit(self, count: int, size: int) -> None:
        """Allow *count* messages of *size* bytes, which are about to be staged. Raises Refused."""


class Staging:
    """Messages and notes of one topic that are about to be written."""

    __slots__ = (
        "_bound",
        "_encoder",
        "_extension_bytes",
        "_notes",
        "_requeued",
        "_staged",
        "_unusual",
        "ephemeral",
        "name",
        "origin",
        "published",
        "wall",
    )

    def __init__(
        self, name: str, ids: MessageIds, next_seq: int, wall: Wall | None = None, origin: str = ""
    ) -> None:
        """*origin* is the identity of the nsqd that accepted the messages, if it is another one."""
        self.name = name
        self.origin = origin
        self.ephemeral = is_ephemeral(name)
        self.wall = wall or Wall()
        self._encoder = Encoder(ids, next_seq)
        self._staged: list[Block] = []
        # Bytes of headers, as opposed to bodies, in the staged messages.
        self._extension_bytes = 0
        self._bound: Bound | None = None
        # There is a bound, or the open block holds messages that are deferred or have headers.
        self._unusual = False
        # Notes that are not written yet; and messages that came back with a delay, by channel.
        self._notes: list[bytes] = []
        self._requeued: dict[str, list[tuple[int, int, int]]] = {}
        # Ids that were published already, while a policy asks for that.
        self.published: DedupWindow | None = None

    def stage(self, body: Buffer, now_ns: int, due_ns: int = 0, extension: bytes = b"") -> None:
        """Stage one message. Raises Refused.

        Everything that is published comes through here or :meth:`stage_batch`. With *due_ns* consumers get
        the message at that time; *extension* has its headers as they are stored (`log.headers`).
        """
        if self._unusual or due_ns or extension:
            self._stage_unusual(body, now_ns, due_ns, extension)
        # Runs for each PUB: `Wall.at` inlined, which saves a call where this is not compiled.
        elif self._encoder.put(body, now_ns + self.wall.offset_ns):  # type: ignore[arg-type]
            self._seal()

    def stage_frame(self, frame: BytesIO, now_ns: int) -> None:
        """Stage the message in *frame*, behind room for the head of its frame. Raises Refused."""
        if self._unusual:
            self._stage_unusual(memoryview(frame.getvalue())[FRAME_OVERHEAD:], now_ns, 0, b"")
        else:
            self._seal()
            self._staged.append(self._encoder.framed(frame, self.wall.time_at(now_ns)))

    def _stage_unusual(self, body: Buffer, now_ns: int, due_ns: int, extension: bytes) -> None:
        """Stage a message that is deferred, has headers or is bounded, or that follows such a message.

        Messages that are due together share a block. After a message with headers, those without are stored
        with empty headers, so that a publisher of both kinds does not make a block of each message.
        """
        wall_ns = self.wall.time_at(now_ns)
        published = self.published
        key = key_of(extension) if published is not None and extension else None
        if published is not None and key is not None and published.has(key, now_ns):
            return
        if self._bound is not None:
            self._bound.admit(1, len(body) + len(extension))
        if published is not None and key is not None:
            published.stage(key, now_ns)
        encoder = self._encoder
        due_wall_ns = self.wall.time_at(due_ns) if due_ns else NOT_DEFERRED
        if encoder.due_ns != due_wall_ns or (extension and not encoder.has_headers):
            self._seal()
            encoder.due_ns = due_wall_ns
            encoder.has_headers = bool(extension)
            self._unusual = self._unusual or bool(due_ns or extension)
        if encoder.has_headers:
            extension = extension or NO_HEADERS
            self._extension_bytes += len(extension)
            body = b"".join((extension, body))
        if encoder.put(body, wall_ns):
            self._seal()

    def stage_extended(self, extended: bytes, begin: int, now_ns: int) -> None:
        """Stage one message as it is stored: headers, and its body from *begin* on. Raises Refused."""
        encoder = self._encoder
        if encoder.has_headers and not encoder.due_ns and self._bound is None and self.published is None:
            self._extension_bytes += begin
            if encoder.put(extended, self.wall.time_at(now_ns)):
                self._seal()
        else:
            self._stage_unusual(extended[begin:], now_ns, 0, extended[:begin])

    def stage_batch(self, batch: Batch, now_ns: int, *, moved: bool = False, due_ns: int = 0) -> None:
        """Stage several messages. Raises Refused; then none of them is staged.

        Messages that are *moved* here were published before and are not checked for repetition. With *due_ns*
        consumers get them at that time.
        """
        if batch.count == 1 and not batch.has_headers:
            self.stage(batch.bodies[0], now_ns, due_ns)
            return
        keys: list[int] = []
        if batch.has_headers and self.published is not None and not moved:
            batch, keys = self.published.fresh(batch, now_ns)
            if not batch.count:
                return
        if self._bound is not None:
            self._bound.admit(batch.count, batch.size)
        if self.published is not None:
            for key in keys:
                self.published.stage(key, now_ns)
        self._seal()
        self._extension_bytes += batch.extension_bytes
        block = self._encoder.batch(batch, self.wall.time_at(now_ns))
        if due_ns:
            block.due_ns = self.wall.time_at(due_ns)
        self._staged.append(block)

    @property
    def bounded(self) -> bool:
        """Whether a bound is asked before a message is staged."""
        return self._bound is not None

    @property
    def staged_count(self) -> int:
        """Messages that are staged and not stored yet."""
        return self._encoder.open_count + sum(map(len, self._staged))

    @property
    def staged_bytes(self) -> int:
        """The bytes of the frames of staged messages."""
        return self._encoder.open_bytes + sum([len(block.data) for block in self._staged])

    def bind(self, bound: Bound | None) -> None:
        """Ask *bound* before anything is staged; None for no bound."""
        self._bound = bound
        self._seal()
        self._unusual = bound is not None

    def note(self, what: str, channel: str = "", **more: Any) -> None:
        """Stage a note on the topic or one of its channels.

        Those that live in memory only get none. Nothing is written to the log of another nsqd: the next
        checkpoint has the change.
        """
        if not (self.origin or self.ephemeral or (channel and is_ephemeral(channel))):
            self._notes.append(notes.encode(what, channel, **more))

    def staged(self) -> list[Block]:
        """The blocks to be written now, in order."""
        self._seal()
        return self._staged

    def staged_notes(self) -> list[bytes]:
        """The notes to be written now, before the messages."""
        if self._requeued:
            for name, messages in self._requeued.items():
                self._notes.append(notes.encode(notes.DEFER, name, messages=messages))
            self._requeued.clear()
        return self._notes

    @property
    def sequence_end(self) -> int:
        """The sequence behind the last one that was given to a message, stored or not."""
        return self._encoder.next_seq

    def _seal(self) -> None:
        block = self._encoder.close()
        if block is not None:
            self._staged.append(block)
            self._unusual = self._bound is not None
