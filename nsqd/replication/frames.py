"""What a home and a keeper say to each other: a class for each kind of frame. `framing` has their bytes."""

import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

VERSION: Final = 1
IDENTITY_BYTES: Final = 16
_LOG_NAME: Final = re.compile(r"\d{8,16}(\.\d{1,9})?\.log(\.new)?")
_CHECKPOINTS: Final = frozenset(("checkpoint.0", "checkpoint.1", "checkpoint.0.tmp", "checkpoint.1.tmp"))


def is_copied_name(name: str) -> bool:
    """Whether a file of that name is part of a copy. No other name is ever written or removed by a frame."""
    return name in _CHECKPOINTS or _LOG_NAME.fullmatch(name) is not None


# --- who speaks ---


@dataclass(frozen=True, slots=True)
class Hello:
    """The home's first word. *address* is where it is found, for those who read logs and /carried.

    With *strict* it answers publishers after the fsync, and asks for that of the copy, too. A keeper *stands
    in* for a home that is gone, which has the better right to its name should it come.
    """

    KIND: ClassVar[int] = 1
    identity: bytes
    node_id: int
    appointment: int
    address: str
    secret: bytes = b""
    strict: bool = False
    stands_in: bool = False
    version: int = VERSION


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
    HANDED_OVER: ClassVar[int] = 10
    # Said to a keeper that speaks for it.
    HOME_IS_HERE: ClassVar[int] = 11
    # It was handed over, and is not here (any more).
    NO_COPY: ClassVar[int] = 12


@dataclass(frozen=True, slots=True)
class StartTls:
    """The home asks for TLS before its hello; the keeper says the same, and both begin it."""

    KIND: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class FellowHello:
    """The first word of a keeper to another that has copies of the same *home*; see `fellows`."""

    KIND: ClassVar[int] = 5
    identity: bytes
    node_id: int
    address: str
    home: bytes
    secret: bytes = b""
    version: int = VERSION


# --- what there is ---


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """The home has a topic of this name; on this connection its folder is that number."""

    KIND: ClassVar[int] = 8
    folder: int
    name: str


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


@dataclass(frozen=True, slots=True)
class Deleted:
    """The topic of this name was deleted at the home: every copy of it goes."""

    KIND: ClassVar[int] = 11
    name: str


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


@dataclass(frozen=True, slots=True)
class Fellow:
    """A keeper of a home, and the number of its appointment."""

    number: int
    address: str


@dataclass(frozen=True, slots=True)
class Fellows:
    """All keepers of the home that may have copies, so that each can ask the others when it is gone."""

    KIND: ClassVar[int] = 13
    keepers: tuple[Fellow, ...]


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


@dataclass(frozen=True, slots=True)
class Rename:
    """A file that is whole gets its name, and takes the place of one that has it."""

    KIND: ClassVar[int] = 18
    folder: int
    file: str
    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The home has let go of a file."""

    KIND: ClassVar[int] = 19
    folder: int
    file: str


@dataclass(frozen=True, slots=True)
class Seal:
    """Nothing is appended to a file any more, whose size is this."""

    KIND: ClassVar[int] = 20
    folder: int
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class SyncCopy:
    """Make all before this durable, and say so."""

    KIND: ClassVar[int] = 21


@dataclass(frozen=True, slots=True)
class StillHere:
    """Something to acknowledge, when there is nothing else to say."""

    KIND: ClassVar[int] = 22


@dataclass(frozen=True, slots=True)
class Ack:
    """Up to where the keeper has written the home's frames, and up to where that is durable.

    Counted in bytes of frames since the home's hello, which is the first of them.
    """

    KIND: ClassVar[int] = 23
    written: int
    synced: int


# --- handing over: see `handed_over` and `for_good` ---


@dataclass(frozen=True, slots=True)
class Offer:
    """The home is to be handed over: would the keeper take so many bytes? One that will not refuses."""

    KIND: ClassVar[int] = 24
    size: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """The copy of that appointment is the keeper's for good; the home has noted it and gives out nothing."""

    KIND: ClassVar[int] = 25
    appointment: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The keeper has noted it too."""

    KIND: ClassVar[int] = 38


# --- what is known: see `facts` and `serving` ---


@dataclass(frozen=True, slots=True)
class Had:
    """Sequences of a topic that the home has, and can read."""

    KIND: ClassVar[int] = 32
    folder: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """What is finished of a channel, of messages that the speaker has had."""

    KIND: ClassVar[int] = 33
    folder: int
    channel: str
    generation: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StillOut:
    """What the speaker has in flight of a channel, or of none any more: the end of what it carried."""

    KIND: ClassVar[int] = 34
    folder: int
    channel: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """What has the home, and what is finished there? Asked by a keeper with older copies than today's."""

    KIND: ClassVar[int] = 35
    identity: bytes
    appointment: int


@dataclass(frozen=True, slots=True)
class Told:
    """All that was asked for is said."""

    KIND: ClassVar[int] = 36


@dataclass(frozen=True, slots=True)
class Gone:
    """The keeper has no copy of that appointment any more, or of any up to it."""

    KIND: ClassVar[int] = 37
    appointment: int


@dataclass(frozen=True, slots=True)
class FellowCopy:
    """The speaker has a copy of that appointment, and what is said next is of it. See `fellows`."""

    KIND: ClassVar[int] = 39
    appointment: int
    standing: int


@dataclass(frozen=True, slots=True)
class Leaves:
    """The keeper is about to leave, so the home looks for another; or it stays after all."""

    KIND: ClassVar[int] = 40
    leaves: bool


AnyFrame: TypeAlias = (
    Hello | Welcome | Refuse | StartTls | CopiedTopic | Have | Begin | Deleted | CopyState
    | Appends | FilePart | Rename | Remove | Seal | SyncCopy | StillHere | Ack
    | Had | Finished | StillOut | Ask | Told | Gone | Offer | HandOver | Taken
    | FellowHello | Fellows | FellowCopy | Leaves
)  # fmt: skip
