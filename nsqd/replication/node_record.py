"""What a node remembers of replication from one start to the next: `replication.json` in its data path.

A record is a value: a change makes another one, and `NodeRecordFile.save` makes it durable before it is the
node's record. So nothing is said to other nodes that a power cut could take back.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

from nsqd.log.disk import Disk
from nsqd.replication.frames import IDENTITY_BYTES, Holder

FILE_NAME: Final = "replication.json"
_FORMAT: Final = 2
_NO_TOKEN: Final = bytes(IDENTITY_BYTES)


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


def _identity(value: Any) -> bytes:
    found = bytes.fromhex(value)
    if len(found) != IDENTITY_BYTES:
        raise ValueError(f"{value} is no identity")
    return found


def _number(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number")
    return value


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

        A copied data path has another identity than its file: it gets a new record, which has the one in the
        file as `copied_from`.
        """
        path = data_path / FILE_NAME
        try:
            content = disk.read_file(path)
        except FileNotFoundError:
            return cls(disk, data_path, NodeRecord(identity))
        record = _decode(path, content)
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
        self._disk.replace(self._path, _encode(record), durable=True)
        self._disk.sync_folder(self._path.parent)
        self.record = record


def _encode(record: NodeRecord) -> bytes:
    value = record.to_json()
    return json.dumps({"format": _FORMAT, "check": _check(value), **value}, indent=1).encode() + b"\n"


def _decode(path: Path, content: bytes) -> NodeRecord:
    try:
        value = json.loads(content)
        found, check = value.pop("format"), value.pop("check")
        if found == _FORMAT and check != _check(value):
            raise ValueError("its checksum is wrong")
        if found == _FORMAT:
            return NodeRecord.from_json(value)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedRecord(f"{path} is damaged: {type(error).__name__}: {error}") from error
    raise DamagedRecord(f"{path} has format {found!r}, this release reads format {_FORMAT}")


def _check(value: dict[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(value, sort_keys=True).encode())
