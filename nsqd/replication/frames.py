"""The frames between two nodes: a class for each kind, whose annotations are the types of its fields. Pure.

The bytes of a frame have its fields in the order of the class. The *connector* opens the connection; the
*acceptor* answers. A *log* is all messages that one node accepted; on a connection it has a number, and so
has each of its topics.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, TypeAlias

from nsqd.replication.fields import (
    MAX_FILES,
    MAX_HOLDERS,
    U8,
    U16,
    U32,
    U64,
    Bytes32,
    ChannelName,
    FileName,
    Flag,
    Identity,
    Kind,
    NodeId,
    RangeList,
    Remaining,
    Text,
    TopicName,
    many,
)

# The versions of the stream that this release speaks.
VERSIONS: Final = (3, 3)


# --- handshake ---


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of each side.

    *incarnation* counts the starts of the data path *identity*. *token* is random bytes of this start,
    *previous_token* those of the start before.
    """

    KIND: ClassVar[int] = 1
    # A reader of any version knows the first two fields.
    min_version: U16 = field(default=VERSIONS[0], kw_only=True)
    max_version: U16 = field(default=VERSIONS[1], kw_only=True)
    features: U64 = field(default=0, kw_only=True)
    identity: Identity
    incarnation: U64
    token: Identity
    previous_token: Identity
    node_id: NodeId
    address: Text
    nonce: Bytes32


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that the sender knows the cluster secret; see `membership`."""

    KIND: ClassVar[int] = 2
    mac: Bytes32


@dataclass(frozen=True, slots=True)
class Refuse:
    """Why the sender ends the connection, in one sentence."""

    KIND: ClassVar[int] = 3
    code: U8
    sentence: Text

    NOT_A_MEMBER: ClassVar[int] = 1
    VERSION: ClassVar[int] = 2
    SAME_NODE_ID: ClassVar[int] = 3
    DISK: ClassVar[int] = 4
    DAMAGED: ClassVar[int] = 5
    EARLIER_INCARNATION: ClassVar[int] = 6
    TWO_NODES_WITH_ONE_IDENTITY: ClassVar[int] = 7
    BUSY: ClassVar[int] = 8
    BAD_FRAME: ClassVar[int] = 9
    STOPPING: ClassVar[int] = 10


# The label of `nsqd_replication_refused_total` for each code.
REFUSALS: Final = {
    code: name.lower() for name, code in vars(Refuse).items() if name.isupper() and name != "KIND"
}


@dataclass(frozen=True, slots=True)
class StartTls:
    """The connector asks for TLS before its hello; the acceptor answers the same, and both begin it."""

    KIND: ClassVar[int] = 4


# --- the beginning of a stream ---


@dataclass(frozen=True, slots=True)
class Holder:
    """A node with a copy of a log, and where it was last found."""

    identity: Identity
    address: Text


Holders: TypeAlias = Annotated[tuple[Holder, ...], many(Holder, MAX_HOLDERS)]


@dataclass(frozen=True, slots=True)
class Log:
    """The sender is the primary of this log and streams it to the receiver.

    *number* is that of the log on this connection. *copy* is the number of the primary's copy, *epoch* that
    of its claim. *index* is the receiver's index in the list of replicas. With *strict* the primary answers
    publishers after the fsync of its replicas.
    """

    KIND: ClassVar[int] = 5
    number: U32
    origin: Identity
    epoch: U64
    copy: U64
    index: U8
    strict: Flag
    holders: Holders


@dataclass(frozen=True, slots=True)
class Topic:
    """The log has a topic of this name; *topic* is its number on this connection."""

    KIND: ClassVar[int] = 6
    log: U32
    topic: U32
    name: TopicName


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A log file of a copy.

    *first* is the position of its first message, *next_seq* the one behind its last message, *last_note* the
    number of its newest note. These are 0 for a log file whose numbers the replica does not know.
    """

    name: FileName
    salt: U64
    size: U64
    first: U64 = 0
    next_seq: U64 = 0
    last_note: U64 = 0


@dataclass(frozen=True, slots=True)
class Have:
    """The replica's files of a topic, in its earlier copy of this log; empty when there is none."""

    KIND: ClassVar[int] = 7
    topic: U32
    files: Annotated[tuple[CopiedFile, ...], many(CopiedFile, MAX_FILES)]


@dataclass(frozen=True, slots=True)
class Ready:
    """The primary has named all topics of the log, or the replica has answered all of them.

    *has_copy*: the replica has an earlier copy that the stream may enter. *others* is the number of topics in
    it that the primary has not named. The primary sends zeros.
    """

    KIND: ClassVar[int] = 21
    log: U32
    has_copy: Flag
    others: U32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stream of a log begins: into the earlier copy (*resume*) or into a new one.

    A checkpoint of each topic follows, with the channel state of the primary.
    """

    KIND: ClassVar[int] = 8
    log: U32
    resume: Flag


# --- the stream ---


@dataclass(frozen=True, slots=True)
class Appends:
    """Whole appends of the primary to a file at *offset*, behind the file header if the file is new.

    Each is checked by its own checksum and the salt of the file.
    """

    KIND: ClassVar[int] = 9
    topic: U32
    file: FileName
    offset: U64
    data: Remaining


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a checkpoint or of an older log file; *check* is the xxh3 of the data.

    At offset 0 the file begins again.
    """

    KIND: ClassVar[int] = 10
    topic: U32
    file: FileName
    offset: U64
    check: U64
    data: Remaining


@dataclass(frozen=True, slots=True)
class Rename:
    """A complete file gets its name, and replaces a file that has that name."""

    KIND: ClassVar[int] = 11
    topic: U32
    file: FileName
    name: FileName


@dataclass(frozen=True, slots=True)
class Remove:
    """The primary has removed a file."""

    KIND: ClassVar[int] = 12
    topic: U32
    file: FileName


@dataclass(frozen=True, slots=True)
class Seal:
    """Nothing is appended any more to a file, which has this size."""

    KIND: ClassVar[int] = 13
    topic: U32
    file: FileName
    size: U64


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic of the log was deleted: its messages below a position are removed from every copy."""

    KIND: ClassVar[int] = 22
    origin: Identity
    name: TopicName
    below: U64


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
    written: U64
    synced: U64


# --- statuses ---


class CopyKind:
    """The role of a copy, in a status."""

    NONE: Final = 0
    # A replica without a stream whose topics are not recovered.
    REPLICA: Final = 1
    # A replica into which an owner streams at the moment.
    STREAMED: Final = 2
    # A replica without a stream whose topics are recovered: it merges channel state.
    OPEN: Final = 3
    PROMOTED: Final = 4
    ORIGIN: Final = 5


@dataclass(frozen=True, slots=True)
class CopyId:
    """A copy of a log: the node, and the number of the copy there."""

    node: Identity
    number: U64


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
    origin: Identity
    copy: U64
    kind: Kind
    epoch: U64
    seen_incarnation: U64
    owner: Identity
    serial: U64 = 0
    checkpointed: U64 = 0
    full: Flag = False
    fully_replicated: Flag = False
    ask: Flag = False
    last: Flag = False
    counted: Annotated[tuple[CopyId, ...], many(CopyId, MAX_HOLDERS)] = ()
    holders: Holders = ()


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One channel of a copy of the sender: its finished ranges, and this owner's *pending* messages.

    A channel that is not *live* was deleted, and *finished* has the messages held at that time. With an
    empty *channel* the frame is about the topic: *finished* has the messages that were emptied or deleted
    with it, *pending* those that no channel has yet. Long lists follow in further frames with *more*.
    """

    KIND: ClassVar[int] = 18
    origin: Identity
    copy: U64
    topic: TopicName
    channel: ChannelName
    generation: U64
    live: Flag
    more: Flag
    finished: RangeList
    pending: RangeList


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The receiver promotes its copy of this log under this epoch."""

    KIND: ClassVar[int] = 19
    log: U32
    epoch: U64


@dataclass(frozen=True, slots=True)
class Draining:
    """The replica is about to leave or has no room: the primary chooses another one.

    With *fewer_copies* it accepts no stream, even if there is no other node: the operator has ordered that.
    """

    KIND: ClassVar[int] = 20
    draining: Flag
    fewer_copies: Flag = False


AnyFrame: TypeAlias = (
    Hello | Proof | Refuse | StartTls | Log | Topic | Have | Ready | Snapshot | Appends | FilePart | Rename
    | Remove | Seal | DeleteTopic | Sync | Ping | Ack | Status | ChannelState | TakeOver | Draining
)  # fmt: skip
