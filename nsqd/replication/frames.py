"""What a home and a keeper say to each other, as bytes; docs/replication.md has it byte by byte. Pure.

A frame is its size, its kind and its fields; all numbers are little-endian. The size counts what follows it.
Each kind is one class here, whose :meth:`fields` are what :meth:`read` reads again. Whatever does not follow
these rules is a `BadFrame`, and the connection ends: nothing behind it can be trusted.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from nsqclient.wire.names import is_ephemeral, is_valid_name
from nsqd.log.ids import MAX_NODE_ID
from nsqd.log.ranges import Ranges

MAGIC: Final = b"  R1"
VERSION: Final = 1
IDENTITY_BYTES: Final = 16
# A longer piece of a file goes in several frames; a longer append does, too.
MAX_DATA: Final = 4 << 20
MAX_FRAME: Final = MAX_DATA + 4096
# What is appended in one go is one frame up to this size.
MAX_LIVE: Final = 64 << 20
MAX_TEXT: Final = 2048
# So many ranges are said in one frame at most; the rest follow in others.
MAX_RANGES: Final = 65_536
MAX_FILES: Final = 32_768
MAX_TOPICS: Final = 60_000

_SIZE: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<IB")
_U8: Final = struct.Struct("<B")
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_AT: Final = struct.Struct("<IQ")
_FILE: Final = struct.Struct("<QQQQQ")
_RANGE: Final = struct.Struct("<QQ")
_LOG_NAME: Final = re.compile(r"\d{8,16}(\.\d{1,9})?\.log(\.new)?")
_CHECKPOINTS: Final = frozenset(("checkpoint.0", "checkpoint.1", "checkpoint.0.tmp", "checkpoint.1.tmp"))


class BadFrame(ValueError):
    """Bytes that are no frame; the text is one sentence for the log of either side."""


def is_copied_name(name: str) -> bool:
    """Whether a file of that name is part of a copy. No other name is ever written or removed by a frame."""
    return name in _CHECKPOINTS or _LOG_NAME.fullmatch(name) is not None


class Frame(Protocol):
    """One of the classes below."""

    KIND: ClassVar[int]

    def fields(self) -> bytes: ...


# --- who speaks ---


@dataclass(frozen=True, slots=True)
class Hello:
    """The home's first word. *address* is where it is found, for those who read logs and /carried.

    With *strict* it answers publishers after the fsync, and asks for that of the copy, too.
    """

    KIND: ClassVar[int] = 1
    identity: bytes
    node_id: int
    appointment: int
    address: str
    secret: bytes = b""
    strict: bool = False
    version: int = VERSION

    def fields(self) -> bytes:
        return b"".join(
            (
                _U16.pack(self.version),
                self.identity,
                _U16.pack(self.node_id),
                _U64.pack(self.appointment),
                _U8.pack(self.strict),
                _text(self.address),
                _bytes(self.secret),
            )
        )

    @classmethod
    def read(cls, rest: "_Fields") -> "Hello":
        version = rest.u16()
        if version != VERSION:
            # What follows may have another form.
            rest.skip()
            return cls(bytes(IDENTITY_BYTES), 0, 0, "", version=version)
        identity, node_id, appointment = rest.take(IDENTITY_BYTES), rest.node_id(), rest.u64()
        strict = rest.flag()
        return cls(identity, node_id, appointment, rest.text(), rest.blob(), strict=strict)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The keeper's answer to a hello that it accepts.

    *appointment* is the latest that it knows of this home; *topics* are those it has copies of in that of the
    hello.
    """

    KIND: ClassVar[int] = 2
    identity: bytes
    node_id: int
    address: str
    appointment: int = 0
    topics: tuple[str, ...] = ()
    version: int = VERSION

    def fields(self) -> bytes:
        return b"".join(
            (
                _U16.pack(self.version),
                self.identity,
                _U16.pack(self.node_id),
                _U64.pack(self.appointment),
                _text(self.address),
                _U32.pack(len(self.topics)),
                *map(_text, self.topics),
            )
        )

    @classmethod
    def read(cls, rest: "_Fields") -> "Welcome":
        version = rest.u16()
        if version != VERSION:
            rest.skip()
            return cls(bytes(IDENTITY_BYTES), 0, "", version=version)
        identity, node_id, appointment = rest.take(IDENTITY_BYTES), rest.node_id(), rest.u64()
        address = rest.text()
        topics = tuple(rest.topic() for _ in range(rest.count(MAX_TOPICS)))
        return cls(identity, node_id, address, appointment, topics)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Why this side will not go on, in one sentence; the connection ends behind it."""

    KIND: ClassVar[int] = 3
    code: int
    sentence: str

    # Codes.
    NOT_WANTED: ClassVar[int] = 1
    VERSION: ClassVar[int] = 2
    SAME_NODE_ID: ClassVar[int] = 3
    UNAUTHORIZED: ClassVar[int] = 4
    DISK: ClassVar[int] = 5
    DAMAGED: ClassVar[int] = 6
    TAKEN: ClassVar[int] = 7
    LEAVING: ClassVar[int] = 8
    BAD_FRAME: ClassVar[int] = 9

    def fields(self) -> bytes:
        return _U8.pack(self.code) + _text(self.sentence)

    @classmethod
    def read(cls, rest: "_Fields") -> "Refuse":
        return cls(rest.u8(), rest.text())


@dataclass(frozen=True, slots=True)
class StartTls:
    """The home asks for TLS before its hello; the keeper says the same, and both begin it."""

    KIND: ClassVar[int] = 4

    def fields(self) -> bytes:
        return b""

    @classmethod
    def read(cls, _rest: "_Fields") -> "StartTls":
        return cls()


# --- what there is ---


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """The home has a topic of this name; on this connection its folder is that number."""

    KIND: ClassVar[int] = 8
    folder: int
    name: str

    def fields(self) -> bytes:
        return _U32.pack(self.folder) + _text(self.name)

    @classmethod
    def read(cls, rest: "_Fields") -> "CopiedTopic":
        return cls(rest.u32(), rest.topic())


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy. Of a checkpoint all but the name and the size are 0.

    *first* is the sequence with which it begins, *next_seq* the one behind its last message, *last_note* the
    number of its newest note. Of a log file of which the keeper does not know that, they are 0, too.
    """

    name: str
    salt: int
    size: int
    first: int = 0
    next_seq: int = 0
    last_note: int = 0


@dataclass(frozen=True, slots=True)
class Have:
    """The keeper's answer to a topic: the files of its copy."""

    KIND: ClassVar[int] = 9
    folder: int
    files: tuple[CopiedFile, ...]

    def fields(self) -> bytes:
        found = [_U32.pack(self.folder), _U32.pack(len(self.files))]
        for one in self.files:
            found += (_name(one.name), _FILE.pack(one.salt, one.size, one.first, one.next_seq, one.last_note))
        return b"".join(found)

    @classmethod
    def read(cls, rest: "_Fields") -> "Have":
        folder, count = rest.u32(), rest.count(MAX_FILES)
        return cls(
            folder, tuple(CopiedFile(rest.name(), *_FILE.unpack(rest.take(_FILE.size))) for _ in range(count))
        )


@dataclass(frozen=True, slots=True)
class Begin:
    """The home has named its topics. The copy is that of *appointment* from here on.

    When that is a later one than the hello's, the folders *left* stay behind in the older one, as they are,
    and are empty in the new one: they hold what the home has not. Copies of topics that the home did not name
    stay behind, too.
    """

    KIND: ClassVar[int] = 10
    appointment: int
    left: tuple[int, ...] = ()

    def fields(self) -> bytes:
        return b"".join(
            (_U64.pack(self.appointment), _U32.pack(len(self.left)), *(_U32.pack(one) for one in self.left))
        )

    @classmethod
    def read(cls, rest: "_Fields") -> "Begin":
        return cls(rest.u64(), tuple(rest.u32() for _ in range(rest.count(MAX_FRAME // 4))))


@dataclass(frozen=True, slots=True)
class Deleted:
    """The topic of this name was deleted at the home: every copy of it goes."""

    KIND: ClassVar[int] = 11
    name: str

    def fields(self) -> bytes:
        return _text(self.name)

    @classmethod
    def read(cls, rest: "_Fields") -> "Deleted":
        return cls(rest.topic())


@dataclass(frozen=True, slots=True)
class CopyState:
    """How far the copy of a folder is.

    `LINKED`: it has a checkpoint of this connection and all the log behind that, so its word counts.
    `FILLED`: it has every file that the home has.
    """

    KIND: ClassVar[int] = 12
    folder: int
    state: int

    LINKED: ClassVar[int] = 1
    FILLED: ClassVar[int] = 2

    def fields(self) -> bytes:
        return _U32.pack(self.folder) + _U8.pack(self.state)

    @classmethod
    def read(cls, rest: "_Fields") -> "CopyState":
        folder, state = rest.u32(), rest.u8()
        if state not in (cls.LINKED, cls.FILLED):
            raise BadFrame(f"there is no state {state} of a copy")
        return cls(folder, state)


# --- what is written ---


@dataclass(frozen=True, slots=True)
class Appends:
    """What the home has appended to a file at *offset*: whole appends, behind the file header if it is new.

    Each is checked by its own checksum and the salt of the file.
    """

    KIND: ClassVar[int] = 16
    folder: int
    file: str
    offset: int
    data: bytes

    def fields(self) -> bytes:
        return b"".join((_AT.pack(self.folder, self.offset), _name(self.file), self.data))

    @classmethod
    def read(cls, rest: "_Fields") -> "Appends":
        folder, offset = rest.at()
        return cls(folder, rest.name(), offset, rest.rest())


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file as it lies on the home's disk, damaged or not; *check* is the xxh3 of the data.

    At offset 0 the file is begun anew.
    """

    KIND: ClassVar[int] = 17
    folder: int
    file: str
    offset: int
    check: int
    data: bytes

    def fields(self) -> bytes:
        return b"".join(
            (_AT.pack(self.folder, self.offset), _name(self.file), _U64.pack(self.check), self.data)
        )

    @classmethod
    def read(cls, rest: "_Fields") -> "FilePart":
        folder, offset = rest.at()
        return cls(folder, rest.name(), offset, rest.u64(), rest.rest())


@dataclass(frozen=True, slots=True)
class Rename:
    """A file that is whole gets its name, and takes the place of one that has it."""

    KIND: ClassVar[int] = 18
    folder: int
    file: str
    name: str

    def fields(self) -> bytes:
        return _U32.pack(self.folder) + _name(self.file) + _name(self.name)

    @classmethod
    def read(cls, rest: "_Fields") -> "Rename":
        return cls(rest.u32(), rest.name(), rest.name())


@dataclass(frozen=True, slots=True)
class Remove:
    """The home has let go of a file."""

    KIND: ClassVar[int] = 19
    folder: int
    file: str

    def fields(self) -> bytes:
        return _U32.pack(self.folder) + _name(self.file)

    @classmethod
    def read(cls, rest: "_Fields") -> "Remove":
        return cls(rest.u32(), rest.name())


@dataclass(frozen=True, slots=True)
class Seal:
    """Nothing is appended to a file any more, whose size is this."""

    KIND: ClassVar[int] = 20
    folder: int
    file: str
    size: int

    def fields(self) -> bytes:
        return _AT.pack(self.folder, self.size) + _name(self.file)

    @classmethod
    def read(cls, rest: "_Fields") -> "Seal":
        folder, size = rest.at()
        return cls(folder, rest.name(), size)


@dataclass(frozen=True, slots=True)
class SyncCopy:
    """Make all before this durable, and say so."""

    KIND: ClassVar[int] = 21

    def fields(self) -> bytes:
        return b""

    @classmethod
    def read(cls, _rest: "_Fields") -> "SyncCopy":
        return cls()


@dataclass(frozen=True, slots=True)
class StillHere:
    """Something to acknowledge, when there is nothing else to say."""

    KIND: ClassVar[int] = 22

    def fields(self) -> bytes:
        return b""

    @classmethod
    def read(cls, _rest: "_Fields") -> "StillHere":
        return cls()


@dataclass(frozen=True, slots=True)
class Ack:
    """Up to where the keeper has written the home's frames, and up to where that is durable.

    Counted in bytes of frames since the home's hello, which is the first of them.
    """

    KIND: ClassVar[int] = 23
    written: int
    synced: int

    def fields(self) -> bytes:
        return _RANGE.pack(self.written, self.synced)

    @classmethod
    def read(cls, rest: "_Fields") -> "Ack":
        return cls(rest.u64(), rest.u64())


# --- what is known: see `facts` and `serving` ---


@dataclass(frozen=True, slots=True)
class Had:
    """Sequences of a topic that the home has, and can read."""

    KIND: ClassVar[int] = 32
    folder: int
    ranges: tuple[tuple[int, int], ...]

    def fields(self) -> bytes:
        return _U32.pack(self.folder) + _ranges(self.ranges)

    @classmethod
    def read(cls, rest: "_Fields") -> "Had":
        return cls(rest.u32(), rest.ranges())


@dataclass(frozen=True, slots=True)
class Finished:
    """What is finished of a channel, of messages that the speaker has had."""

    KIND: ClassVar[int] = 33
    folder: int
    channel: str
    generation: int
    ranges: tuple[tuple[int, int], ...]

    def fields(self) -> bytes:
        return b"".join((_AT.pack(self.folder, self.generation), _text(self.channel), _ranges(self.ranges)))

    @classmethod
    def read(cls, rest: "_Fields") -> "Finished":
        folder, generation = rest.at()
        return cls(folder, rest.channel(), generation, rest.ranges())


@dataclass(frozen=True, slots=True)
class StillOut:
    """What the speaker has in flight of a channel, or of none any more: the end of what it carried."""

    KIND: ClassVar[int] = 34
    folder: int
    channel: str
    ranges: tuple[tuple[int, int], ...]

    def fields(self) -> bytes:
        return b"".join((_U32.pack(self.folder), _text(self.channel), _ranges(self.ranges)))

    @classmethod
    def read(cls, rest: "_Fields") -> "StillOut":
        return cls(rest.u32(), rest.channel(), rest.ranges())


@dataclass(frozen=True, slots=True)
class Ask:
    """What has the home, and what is finished there? Asked by a keeper with older copies than today's."""

    KIND: ClassVar[int] = 35
    identity: bytes
    appointment: int

    def fields(self) -> bytes:
        return self.identity + _U64.pack(self.appointment)

    @classmethod
    def read(cls, rest: "_Fields") -> "Ask":
        return cls(rest.take(IDENTITY_BYTES), rest.u64())


@dataclass(frozen=True, slots=True)
class Told:
    """All that was asked for is said."""

    KIND: ClassVar[int] = 36

    def fields(self) -> bytes:
        return b""

    @classmethod
    def read(cls, _rest: "_Fields") -> "Told":
        return cls()


@dataclass(frozen=True, slots=True)
class Gone:
    """The keeper has no copy of that appointment any more, or of any up to it."""

    KIND: ClassVar[int] = 37
    appointment: int

    def fields(self) -> bytes:
        return _U64.pack(self.appointment)

    @classmethod
    def read(cls, rest: "_Fields") -> "Gone":
        return cls(rest.u64())


AnyFrame: TypeAlias = (
    Hello | Welcome | Refuse | StartTls | CopiedTopic | Have | Begin | Deleted | CopyState
    | Appends | FilePart | Rename | Remove | Seal | SyncCopy | StillHere | Ack
    | Had | Finished | StillOut | Ask | Told | Gone
)  # fmt: skip
KINDS: Final[dict[int, type[AnyFrame]]] = {
    kind.KIND: kind
    for kind in (
        *(Hello, Welcome, Refuse, StartTls, CopiedTopic, Have, Begin, Deleted, CopyState),
        *(Appends, FilePart, Rename, Remove, Seal, SyncCopy, StillHere, Ack),
        *(Had, Finished, StillOut, Ask, Told, Gone),
    )
}


# --- to bytes ---


def encode(frame: AnyFrame) -> bytes:
    """The bytes of one frame."""
    fields = frame.fields()
    return _HEAD.pack(1 + len(fields), frame.KIND) + fields


def appends_head(folder: int, file: str, offset: int, size: int) -> bytes:
    """What goes before *size* bytes that are appended, which then need not be copied."""
    name = _name(file)
    return b"".join(
        (_HEAD.pack(1 + _AT.size + len(name) + size, Appends.KIND), _AT.pack(folder, offset), name)
    )


def _text(text: str) -> bytes:
    return _bytes(text.encode("utf-8", "replace")[:MAX_TEXT])


def _bytes(data: bytes) -> bytes:
    if len(data) > MAX_TEXT:
        raise BadFrame(f"a text of {len(data)} bytes is longer than {MAX_TEXT}")
    return _U16.pack(len(data)) + data


def _name(name: str) -> bytes:
    data = name.encode()
    return _U8.pack(len(data)) + data


def _ranges(ranges: tuple[tuple[int, int], ...]) -> bytes:
    return _U32.pack(len(ranges)) + b"".join(_RANGE.pack(start, end) for start, end in ranges)


def in_parts(ranges: Ranges) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ranges by as many as one frame takes; one part at least, so that nothing is said, too."""
    for at in range(0, max(1, len(ranges)), MAX_RANGES):
        yield tuple(ranges[at : at + MAX_RANGES])


# --- from bytes ---


class _Fields:
    """Reads the fields of one frame. All raise BadFrame."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._at = at
        self._end = end

    def take(self, size: int) -> bytes:
        at = self._at
        if at + size > self._end:
            raise BadFrame("a frame is shorter than what it should hold")
        self._at = at + size
        return self._data[at : at + size]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self._end - self._at)

    def skip(self) -> None:
        self._at = self._end

    def done(self) -> None:
        if self._at != self._end:
            raise BadFrame("a frame is longer than what it holds")

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(_U16.unpack(self.take(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def at(self) -> tuple[int, int]:
        """A folder and a number."""
        folder, number = _AT.unpack(self.take(_AT.size))
        return folder, number

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise BadFrame(f"{value} is neither yes nor no")
        return bool(value)

    def count(self, most: int) -> int:
        count = self.u32()
        if count > most:
            raise BadFrame(f"{count} are more than the {most} that a frame may hold")
        return count

    def node_id(self) -> int:
        found = self.u16()
        if found > MAX_NODE_ID:
            raise BadFrame(f"{found} is no node id")
        return found

    def blob(self) -> bytes:
        size = self.u16()
        if size > MAX_TEXT:
            raise BadFrame(f"a text of {size} bytes is longer than {MAX_TEXT}")
        return self.take(size)

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError as error:
            raise BadFrame("a text is not UTF-8") from error

    def topic(self) -> str:
        name = self.text()
        if not is_valid_name(name) or is_ephemeral(name):
            raise BadFrame("the name of a topic is not valid")
        return name

    def channel(self) -> str:
        name = self.text()
        if not is_valid_name(name):
            raise BadFrame("the name of a channel is not valid")
        return name

    def name(self) -> str:
        """The name of a file of a copy."""
        name = self.take(self.u8()).decode("latin-1")
        if not is_copied_name(name):
            raise BadFrame("a file of that name is no part of a copy")
        return name

    def ranges(self) -> tuple[tuple[int, int], ...]:
        count = self.count(MAX_RANGES)
        found = tuple(_RANGE.iter_unpack(self.take(count * _RANGE.size)))
        behind = 0
        for start, end in found:
            if not behind <= start < end:
                raise BadFrame("ranges are not in order")
            behind = end
        return found


def decode(data: bytes, at: int, end: int) -> AnyFrame:
    """The frame whose kind and fields lie at ``at <= offset < end``. Raises BadFrame."""
    kind = KINDS.get(data[at])
    if kind is None:
        raise BadFrame(f"there is no frame of kind {data[at]}")
    rest = _Fields(data, at + 1, end)
    frame = kind.read(rest)
    rest.done()
    return frame


class FrameReader:
    """Cuts what comes off the wire into frames. It keeps one frame that is not whole yet, and no more."""

    __slots__ = ("_have", "_need", "_pieces", "max_frame", "position")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        # Bytes of whole frames that were read so far.
        self.position = 0
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = _HEAD.size

    def feed(self, data: bytes) -> Iterator[AnyFrame]:
        """The frames that are whole now; `position` stands behind the one that was given last.

        Raises BadFrame, behind the frames before it.
        """
        self._pieces.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        data = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        at, total = 0, len(data)
        self._need = _HEAD.size
        try:
            while total - at >= _HEAD.size:
                (size,) = _SIZE.unpack_from(data, at)
                if not 1 <= size <= self.max_frame:
                    raise BadFrame(f"a frame of {size} bytes is none: 1 to {self.max_frame} are")
                end = at + _SIZE.size + size
                if end > total:
                    self._need = _SIZE.size + size
                    break
                frame = decode(data, at + _SIZE.size, end)
                self.position += end - at
                at = end
                yield frame
        finally:
            # Also when nobody asks for the next one: it is there for the next call.
            self._pieces = [data[at:]] if at < total else []
            self._have = total - at
