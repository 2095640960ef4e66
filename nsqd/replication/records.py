"""The records on disk: `replication.json` of the node, and `copy.json` of each copy.

A node record is a value: a change makes another one, and `NodeRecordFile.save` makes it durable before it is
the node's record. So nothing is sent to other nodes that a power cut could take back.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from xxhash import xxh3_64_hexdigest

from nsqd.log.disk import Disk
from nsqd.log.ids import MAX_NODE_ID
from nsqd.replication.fields import IDENTITY_BYTES
from nsqd.replication.frames import Holder

FILE_NAME: Final = "replication.json"
COPY_FILE_NAME: Final = "copy.json"
_NODE_VERSION: Final = 2
_COPY_VERSION: Final = 1
_NO_TOKEN: Final = bytes(IDENTITY_BYTES)
_T = TypeVar("_T")


# --- the node ---


class DamagedRecord(ValueError):
    """The file cannot be used; the text is one sentence. It is never treated as absent."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The messages of a topic below a position were deleted, and some holders may not know it yet."""

    topic: str
    below: int
    unacknowledged: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The content of the file. *epoch* and *highest_epoch* are those of the node's own log."""

    identity: bytes
    incarnation: int = 0
    token: bytes = _NO_TOKEN
    previous_token: bytes = _NO_TOKEN
    epoch: int = 0
    highest_epoch: int = 0
    # In the order of their places. A named replica has no identity before its first handshake.
    replicas: tuple[Holder, ...] = ()
    holders: tuple[Holder, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    # All logs were transferred to other nodes: the next start delivers none of the messages here.
    is_transferred: bool = False

    # --- holders ---

    def with_holder(self, identity: bytes, address: str) -> "NodeRecord":
        """The record after a holder was connected."""
        others = tuple(one for one in self.holders if one.identity != identity)
        return replace(self, holders=(*others, Holder(identity, address)))

    def without_holder(self, identity: bytes) -> "NodeRecord":
        """The record after a holder dropped its copy, or was forgotten."""
        deletions = (replace(one, unacknowledged=one.unacknowledged - {identity}) for one in self.deletions)
        return replace(
            self,
            holders=tuple(one for one in self.holders if one.identity != identity),
            deletions=_with_unacknowledged(deletions),
        )

    # --- deletions ---

    def with_deletion(self, topic: str, below: int) -> "NodeRecord":
        """The record after messages of a topic were deleted: each holder has to acknowledge that."""
        holders = frozenset(one.identity for one in self.holders)
        others = tuple(one for one in self.deletions if one.topic != topic)
        return replace(self, deletions=_with_unacknowledged((*others, Deletion(topic, below, holders))))

    def with_acknowledged(self, topic: str, below: int, identity: bytes) -> "NodeRecord":
        """The record after a holder acknowledged the deletion of the messages below a position."""
        deletions = (
            replace(one, unacknowledged=one.unacknowledged - {identity})
            if one.topic == topic and one.below <= below
            else one
            for one in self.deletions
        )
        return replace(self, deletions=_with_unacknowledged(deletions))

    # --- JSON ---

    def to_json(self) -> dict[str, Any]:
        """The value in the file."""
        return {
            "identity": self.identity.hex(),
            "incarnation": self.incarnation,
            "token": self.token.hex(),
            "previous_token": self.previous_token.hex(),
            "epoch": self.epoch,
            "highest_epoch": self.highest_epoch,
            "replicas": [[one.identity.hex(), one.address] for one in self.replicas],
            "holders": [[one.identity.hex(), one.address] for one in self.holders],
            "deletions": [
                [one.topic, one.below, sorted(each.hex() for each in one.unacknowledged)]
                for one in self.deletions
            ],
            "is_transferred": self.is_transferred,
        }

    @classmethod
    def from_json(cls, value: Any) -> "NodeRecord":
        """Read such a value. Raises KeyError, TypeError and ValueError."""
        return cls(
            _identity(value["identity"]),
            _number(value["incarnation"]),
            _identity(value["token"]),
            _identity(value["previous_token"]),
            _number(value["epoch"]),
            _number(value["highest_epoch"]),
            _holders(value["replicas"]),
            _holders(value["holders"]),
            tuple(
                Deletion(str(topic), _number(below), frozenset(map(_identity, unacknowledged)))
                for topic, below, unacknowledged in value["deletions"]
            ),
            bool(value["is_transferred"]),
        )


def _with_unacknowledged(deletions: Iterable[Deletion]) -> tuple[Deletion, ...]:
    return tuple(one for one in deletions if one.unacknowledged)


def _holders(value: Any) -> tuple[Holder, ...]:
    return tuple(
        Holder(_identity(identity) if identity else b"", str(address)) for identity, address in value
    )


class NodeRecordFile:
    """The file of one data path, and the record in it. No two threads may save at the same time."""

    def __init__(self, disk: Disk, data_path: Path, record: NodeRecord) -> None:
        """Use `load`."""
        self.record = record
        self._disk = disk
        self._path = data_path / FILE_NAME

    @classmethod
    def load(cls, disk: Disk, data_path: Path, identity: bytes) -> "NodeRecordFile":
        """Read the file of the data path that has this identity. Raises OSError and DamagedRecord.

        A copied data path has another identity than its file: it gets a new record.
        """
        path = data_path / FILE_NAME
        try:
            content = disk.read_file(path)
        except FileNotFoundError:
            return cls(disk, data_path, NodeRecord(identity))
        record = _decode(path, content, _NODE_VERSION, NodeRecord.from_json)
        if record.identity != identity:
            record = NodeRecord(identity)
        return cls(disk, data_path, record)

    def begin_incarnation(self, draw: Callable[[int], bytes]) -> None:
        """Note another start of the node, before it speaks to any other. Raises OSError.

        *draw* returns random bytes.
        """
        self.save(
            replace(
                self.record,
                incarnation=self.record.incarnation + 1,
                token=draw(IDENTITY_BYTES),
                previous_token=self.record.token,
            )
        )

    def save(self, record: NodeRecord) -> None:
        """Make a record durable; then it is that of the node. Raises OSError, and then the old one is.

        After an error the file may have either of them.
        """
        self._disk.replace(self._path, _encode(record.to_json(), _NODE_VERSION), durable=True)
        self._disk.sync_folder(self._path.parent)
        self.record = record


# --- a copy ---


@dataclass(slots=True, eq=False)
class CopyRecord:
    """A copy of a log on this node; *path* is its folder.

    *number* is never that of another copy here. *epoch* is that of the claim: of the owner that streamed it
    or, once *promoted*, of this node. *seen* is the highest epoch that is known. *index* is the index in the
    owner's list of replicas. *opened* is set when the topics were recovered here and may have checkpoints of
    this node. *holders* are the other nodes with copies, and where they were last found.
    """

    origin: bytes
    owner: bytes
    number: int
    path: Path
    origin_node_id: int = 0
    epoch: int = 0
    seen: int = 0
    index: int = 0
    holders: dict[bytes, str] = field(default_factory=dict)
    promoted: bool = False
    opened: bool = False
    # It is on disk: a new one is not before `Copies.create`.
    is_stored: bool = False
    is_dropped: bool = False

    def __repr__(self) -> str:
        return f"<CopyRecord {self.path.name} epoch {self.epoch}>"


def encode_copy(record: CopyRecord, *, promoted_from: int | None = None) -> bytes:
    """The content of the file.

    *promoted_from* is the epoch before a promotion, which counts until the folder is renamed.
    """
    fields = {
        "origin": record.origin.hex(),
        "origin_node_id": record.origin_node_id,
        "owner": record.owner.hex(),
        "number": record.number,
        "epoch": record.epoch,
        "replica_epoch": record.epoch if promoted_from is None else promoted_from,
        "seen": record.seen,
        "index": record.index,
        "opened": record.opened,
        "holders": {identity.hex(): address for identity, address in dict(record.holders).items()},
    }
    return _encode(fields, _COPY_VERSION)


def decode_copy(content: bytes, path: Path, *, promoted: bool) -> CopyRecord:
    """The record in a file of the folder *path*. Raises DamagedRecord."""
    return _decode(
        COPY_FILE_NAME, content, _COPY_VERSION, lambda fields: _copy_record(fields, path, promoted=promoted)
    )


def _copy_record(fields: dict[str, Any], path: Path, *, promoted: bool) -> CopyRecord:
    epoch = _number(fields["epoch" if promoted else "replica_epoch"])
    return CopyRecord(
        _identity(fields["origin"]),
        _identity(fields["owner"]),
        _number(fields["number"]),
        path,
        _number(fields["origin_node_id"], MAX_NODE_ID),
        epoch,
        # A promotion that was not completed has used the epoch.
        max(_number(fields["seen"]), _number(fields["epoch"])),
        _number(fields["index"]),
        {_identity(identity): str(address) for identity, address in fields["holders"].items()},
        promoted,
        bool(fields["opened"]),
        is_stored=True,
    )


# --- both ---


def _encode(fields: dict[str, Any], version: int) -> bytes:
    fields = {"version": version, **fields}
    return json.dumps(fields | {"check": _check(fields)}, indent=1).encode()


def _decode(name: object, content: bytes, version: int, read: Callable[[dict[str, Any]], _T]) -> _T:
    """What *read* makes of the fields of a file. Raises DamagedRecord."""
    try:
        fields = json.loads(content)
        found, check = fields.get("version"), fields.pop("check", "")
        if not isinstance(found, int) or found <= version:
            if check != _check(fields):
                raise ValueError("its checksum is wrong")
            return read(fields)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedRecord(f"{name} is damaged: {type(error).__name__}: {error}") from error
    raise DamagedRecord(f"{name} has version {found}, this nsqd knows {version}")


def _check(fields: dict[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(fields, sort_keys=True).encode())


def _identity(text: str) -> bytes:
    identity = bytes.fromhex(text)
    if len(identity) != IDENTITY_BYTES:
        raise ValueError(f"{text!r} is no identity")
    return identity


def _number(value: Any, limit: int = (1 << 64) - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ValueError(f"{value!r} is no number")
    return value
