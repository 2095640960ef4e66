"""The frames of homes and keepers: a class for each kind. `framing` has their bytes."""

import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

VERSION: Final = 1
IDENTITY_BYTES: Final = 16
_LOG_NAME: Final = re.compile(r"\d{8,16}(\.\d{1,9})?\.log(\.new)?")
_CHECKPOINTS: Final = frozenset(("checkpoint.0", "checkpoint.1", "checkpoint.0.tmp", "checkpoint.1.tmp"))


def is_copied_name(name: str) -> bool:
    """Whether a file of that name is part of a copy. Frames never write or remove a file of another name."""
    return name in _CHECKPOINTS or _LOG_NAME.fullmatch(name) is not None


# --- who speaks ---


@dataclass(frozen=True, slots=True)
class Hello:
    """The home's first frame. *address* is where it is found, for those who read logs and /carried.

    With *strict* the home answers publishers after the fsync, and asks for an fsync of the copy too. With
    *stands_in* a keeper speaks for a home that is gone; if the home itself comes, it has precedence.
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

    *appointment* is the latest that it knows of this home; *topics* are those of which it has copies in the
    appointment of the hello.
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
    """Why this side does not go on, in one sentence; the connection ends behind it."""

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
    # Said to a keeper that speaks for the home.
    HOME_IS_HERE: ClassVar[int] = 11
    # The copy that was handed over is not here (any more).
    NO_COPY: ClassVar[int] = 12


def other_version(version: int) -> Refuse | None:
    """The refusal for a peer of another version; None for this one."""
    if version == VERSION:
        return None
    return Refuse(Refuse.VERSION, f"version {version} of the stream is not known here, {VERSION} is")


def same_node_id(node_id: int, whose: str) -> Refuse:
    """The refusal between two nodes with one node id."""
    return Refuse(
        Refuse.SAME_NODE_ID, f"node id {node_id} is that of {whose}, too: each nsqd needs its own --node-id"
    )


@dataclass(frozen=True, slots=True)
class StartTls:
    """The home asks for TLS before its hello; the keeper says the same, and both begin it."""

    KIND: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class FellowHello:
    """The first frame of a keeper to another that has copies of the same *home*; see `fellows`."""

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
    """The home has a topic of this name; on this connection its number is *folder*."""

    KIND: ClassVar[int] = 8
    folder: int
    name: str


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy. Of a checkpoint all but the name and the size are 0.

    *first* is the sequence with which it begins, *next_seq* the one behind its last message, *last_note* the
    number of its newest note. These are 0 too for a log file of which the keeper does not know them.
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
    """The home has named its topics. From here on the copy is that of *appointment*.

    When that is later than the appointment of the hello, the folders *left* stay behind in the older one, as
    they are, and are empty in the new one: they hold what the home does not have. Copies of topics that the
    home did not name stay behind too.
    """

    KIND: ClassVar[int] = 10
    appointment: int
    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Deleted:
    """The topic of this name was deleted at the home: every copy of it is removed."""

    KIND: ClassVar[int] = 11
    name: str


@dataclass(frozen=True, slots=True)
class CopyState:
    """How complete the copy of a folder is.

    `LINKED`: it has a checkpoint of this connection and all of the log behind that, so its word counts.
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
    """Whole appends of the home to a file at *offset*, behind the file header if the file is new.

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

    At offset 0 the file begins again.
    """

    KIND: ClassVar[int] = 17
    folder: int
    file: str
    offset: int
    check: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Rename:
    """A file that is whole gets its name, and replaces a file that has that name."""

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
    """Nothing is appended any more to a file, which has this size."""

    KIND: ClassVar[int] = 20
    folder: int
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class SyncCopy:
    """Make everything before this frame durable, and say so."""

    KIND: ClassVar[int] = 21


@dataclass(frozen=True, slots=True)
class StillHere:
    """Sent when there is nothing else to say, so that there is something to acknowledge."""

    KIND: ClassVar[int] = 22


@dataclass(frozen=True, slots=True)
class Ack:
    """How far the keeper has written the home's frames, and how far that is durable.

    Counted in bytes of frames, from the home's hello on.
    """

    KIND: ClassVar[int] = 23
    written: int
    synced: int


# --- handing over: see `handed_over` and `for_good` ---


@dataclass(frozen=True, slots=True)
class Offer:
    """The home is to be handed over: will the keeper take so many bytes? One that will not refuses."""

    KIND: ClassVar[int] = 24
    size: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """That appointment's copy is the keeper's permanently; the home has noted it and gives out nothing."""

    KIND: ClassVar[int] = 25
    appointment: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The keeper has noted the hand-over too."""

    KIND: ClassVar[int] = 38


# --- what is known: see `facts` and `serving` ---


@dataclass(frozen=True, slots=True)
class Had:
    """Sequences of a topic that the home has and can read."""

    KIND: ClassVar[int] = 32
    folder: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """What is finished on a channel, of messages that the speaker has or had."""

    KIND: ClassVar[int] = 33
    folder: int
    channel: str
    generation: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StillOut:
    """What the speaker has in flight on a channel; nothing at the end of what it carried."""

    KIND: ClassVar[int] = 34
    folder: int
    channel: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks what the home has and what is finished there; by a keeper with older copies than today's."""

    KIND: ClassVar[int] = 35
    identity: bytes
    appointment: int


@dataclass(frozen=True, slots=True)
class Told:
    """All that was asked for has been said."""

    KIND: ClassVar[int] = 36


@dataclass(frozen=True, slots=True)
class Gone:
    """The keeper has no copy of that appointment, or of any before it, any more."""

    KIND: ClassVar[int] = 37
    appointment: int


@dataclass(frozen=True, slots=True)
class FellowCopy:
    """The speaker has a copy of that appointment, and the frames that follow are about it. See `fellows`."""

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
