"""The frames between two nodes: a class for each kind. `framing` has their bytes. Pure.

The *connector* opens the connection; the *acceptor* answers. A *log* is all messages that one node accepted;
on a connection it has a number, and so has each of its topics.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

# The versions of the stream that this release speaks.
VERSIONS: Final = (2, 2)
IDENTITY_BYTES: Final = 16
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
_LOG_NAME: Final = re.compile(r"\d{8,16}(\.\d{1,9})?\.log(\.new)?")
_CHECKPOINTS: Final = frozenset(("checkpoint.0", "checkpoint.1", "checkpoint.0.tmp", "checkpoint.1.tmp"))


def is_copied_name(name: str) -> bool:
    """Whether a file of that name is part of a copy. Frames never write or remove a file of another name."""
    return name in _CHECKPOINTS or _LOG_NAME.fullmatch(name) is not None


# --- handshake ---


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of each side.

    *incarnation* counts the starts of the data path *identity*. *token* is random bytes of this start,
    *previous_token* those of the start before.
    """

    KIND: ClassVar[int] = 1
    identity: bytes
    incarnation: int
    token: bytes
    previous_token: bytes
    node_id: int
    address: str
    nonce: bytes
    min_version: int = VERSIONS[0]
    max_version: int = VERSIONS[1]
    features: int = 0


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that the sender knows the cluster secret; see `membership`."""

    KIND: ClassVar[int] = 2
    mac: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """Why the sender ends the connection, in one sentence."""

    KIND: ClassVar[int] = 3
    code: int
    sentence: str

    NOT_A_MEMBER: ClassVar[int] = 1
    VERSION: ClassVar[int] = 2
    SAME_NODE_ID: ClassVar[int] = 3
    DISK: ClassVar[int] = 4
    DAMAGED: ClassVar[int] = 5
    EARLIER_INCARNATION: ClassVar[int] = 6
    TWO_NODES: ClassVar[int] = 7
    BAD_FRAME: ClassVar[int] = 9
    STOPPING: ClassVar[int] = 10


# The label of `nsqd_replication_refused_total` for each code.
REFUSALS: Final = {
    Refuse.NOT_A_MEMBER: "not_a_member",
    Refuse.VERSION: "version",
    Refuse.SAME_NODE_ID: "same_node_id",
    Refuse.DISK: "disk",
    Refuse.DAMAGED: "damaged",
    Refuse.EARLIER_INCARNATION: "earlier_incarnation",
    Refuse.TWO_NODES: "two_nodes_with_one_identity",
    Refuse.BAD_FRAME: "bad_frame",
    Refuse.STOPPING: "stopping",
}


@dataclass(frozen=True, slots=True)
class StartTls:
    """The connector asks for TLS before its hello; the acceptor answers the same, and both begin it."""

    KIND: ClassVar[int] = 4


# --- the beginning of a stream ---


@dataclass(frozen=True, slots=True)
class Holder:
    """A node with a copy of a log, and where it was last found."""

    identity: bytes
    address: str


@dataclass(frozen=True, slots=True)
class Log:
    """The sender is the primary of this log and streams it to the receiver.

    *number* is that of the log on this connection. *copy* is the number of the primary's copy, *epoch* that
    of its claim. *index* is the receiver's index in the list of replicas. With *strict* the primary answers
    publishers after the fsync of its replicas.
    """

    KIND: ClassVar[int] = 5
    number: int
    origin: bytes
    epoch: int
    copy: int
    index: int
    strict: bool
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """The log has a topic of this name; *topic* is its number on this connection."""

    KIND: ClassVar[int] = 6
    log: int
    topic: int
    name: str


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy. Of a checkpoint all but the name and the size are 0.

    *first* is the position of its first message, *next_seq* the one behind its last message, *last_note* the
    number of its newest note. These are 0 too for a log file of which the replica does not know them.
    """

    name: str
    salt: int
    size: int
    first: int = 0
    next_seq: int = 0
    last_note: int = 0


@dataclass(frozen=True, slots=True)
class Have:
    """The replica's files of a topic, in its earlier copy of this log; empty when there is none."""

    KIND: ClassVar[int] = 7
    topic: int
    files: tuple[CopiedFile, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The primary has named all topics of the log, or the replica has answered all of them.

    *has_copy*: the replica has an earlier copy that the stream may enter. *others* is the number of topics in
    it that the primary has not named. The primary sends zeros.
    """

    KIND: ClassVar[int] = 21
    log: int
    has_copy: bool
    others: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stream of a log begins: into the earlier copy (*resume*) or into a new one.

    A checkpoint of each topic follows, with the channel state of the primary.
    """

    KIND: ClassVar[int] = 8
    log: int
    resume: bool


# --- the stream ---


@dataclass(frozen=True, slots=True)
class Appends:
    """Whole appends of the primary to a file at *offset*, behind the file header if the file is new.

    Each is checked by its own checksum and the salt of the file.
    """

    KIND: ClassVar[int] = 9
    topic: int
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a checkpoint or of an older log file; *check* is the xxh3 of the data.

    At offset 0 the file begins again.
    """

    KIND: ClassVar[int] = 10
    topic: int
    file: str
    offset: int
    check: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Rename:
    """A complete file gets its name, and replaces a file that has that name."""

    KIND: ClassVar[int] = 11
    topic: int
    file: str
    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The primary has removed a file."""

    KIND: ClassVar[int] = 12
    topic: int
    file: str


@dataclass(frozen=True, slots=True)
class Seal:
    """Nothing is appended any more to a file, which has this size."""

    KIND: ClassVar[int] = 13
    topic: int
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic of the log was deleted: its messages below a position are removed from every copy."""

    KIND: ClassVar[int] = 22
    origin: bytes
    name: str
    below: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Make everything before this frame durable, and acknowledge that."""

    KIND: ClassVar[int] = 14


@dataclass(frozen=True, slots=True)
class Ping:
    """Sent by a side that has sent nothing else for half a second."""

    KIND: ClassVar[int] = 15


@dataclass(frozen=True, slots=True)
class Ack:
    """How many bytes of the connector's stream the acceptor has written, and how many are durable there."""

    KIND: ClassVar[int] = 16
    written: int
    synced: int


# --- statuses ---


class CopyKind:
    """What a copy is, in a status."""

    NONE: Final = 0
    # A replica without a stream whose topics are not recovered.
    REPLICA: Final = 1
    # A replica into which an owner streams at the moment.
    STREAMED: Final = 2
    # A replica without a stream whose topics are recovered: it learns channel state.
    OPEN: Final = 3
    PROMOTED: Final = 4
    ORIGIN: Final = 5


@dataclass(frozen=True, slots=True)
class CopyId:
    """A copy of a log: the node, and the number of the copy there."""

    node: bytes
    number: int


@dataclass(frozen=True, slots=True)
class Status:
    """The status of one copy of the sender; `ChannelState` frames precede it.

    *serial* counts the statuses about this log on this connection. *checkpointed* is the serial of the
    receiver's last status whose channel state is in a checkpoint here and at the replicas of this owner.
    *full* is set when the channel states in front of it name every topic of the copy; otherwise they name
    the topics that have changed.
    *counted* has the replicas because of which the copy is fully replicated. With *ask* the sender wants the
    full channel state of the receiver's copies. *last* is set on the status of the sender's last copy of this
    log: the receiver forgets other copies of the sender.
    """

    KIND: ClassVar[int] = 17
    origin: bytes
    copy: int
    kind: int
    epoch: int
    seen: int
    owner: bytes
    serial: int = 0
    checkpointed: int = 0
    full: bool = False
    fully_replicated: bool = False
    ask: bool = False
    last: bool = False
    counted: tuple[CopyId, ...] = ()
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One channel of a copy of the sender: what is finished, and what this owner delivers (*pending*).

    A channel that is not *live* was deleted, and *finished* has the messages held at that time. With an
    empty *channel* the frame is about the topic: *finished* has the messages that were emptied or deleted
    with it, *pending* those that no channel has yet. Long lists follow in further frames with *more*.
    """

    KIND: ClassVar[int] = 18
    origin: bytes
    copy: int
    topic: str
    channel: str
    generation: int
    live: bool
    more: bool
    finished: tuple[tuple[int, int], ...]
    pending: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The receiver promotes its copy of this log under this epoch."""

    KIND: ClassVar[int] = 19
    log: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Draining:
    """The replica is about to leave or has no room: the primary chooses another one.

    With *fewer_copies* it accepts no stream, even if there is no other node: the operator has ordered that.
    """

    KIND: ClassVar[int] = 20
    draining: bool
    fewer_copies: bool = False


AnyFrame: TypeAlias = (
    Hello | Proof | Refuse | StartTls | Log | Topic | Have | Ready | Snapshot | Appends | FilePart | Rename
    | Remove | Seal | DeleteTopic | Sync | Ping | Ack | Status | ChannelState | TakeOver | Draining
)  # fmt: skip
