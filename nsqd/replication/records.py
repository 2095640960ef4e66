"""The records on disk: `replication.json` of the node, and `copy.json` of each copy.

A node record is a value: a change makes another one, and `NodeRecordFile.save` makes it durable before it is
the node's record. So nothing is sent to other nodes that a power cut could take back.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from xxhash import xxh3_64_hexdigest

from nsqd.log.disk import Disk
from nsqd.replication.fields import IDENTITY_BYTES
from nsqd.replication.frames import Holder
from nsqd.replication.local_copy import LocalCopy

FILE_NAME: Final = "replication.json"
COPY_FILE_NAME: Final = "copy.json"
_NODE_VERSION: Final = 2
_COPY_VERSION: Final = 1
_NO_TOKEN: Final = bytes(IDENTITY_BYTES)


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
    # In the order of their places.
    replicas: tuple[Holder, ...] = ()
    holders: tuple[Holder, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    # All logs were transferred to other nodes: the next start delivers none of the messages here.
    is_transferred: bool = False

    def with_deletion(self, topic: str, below: int) -> "NodeRecord":
        """The record after messages of a topic were deleted: each holder has to acknowledge that."""
        new = Deletion(topic, below, frozenset(one.identity for one in self.holders))
        others = tuple(one for one in self.deletions if one.topic != topic)
        return replace(self, deletions=(*others, new) if self.holders else others)

    def with_acknowledged(self, identity: bytes, topic: str = "", below: int = 0) -> "NodeRecord":
        """The record after a holder acknowledged that messages below a position, or all, were deleted."""
        deletions = (
            replace(one, unacknowledged=one.unacknowledged - {identity})
            if not topic or (one.topic == topic and one.below <= below)
            else one
            for one in self.deletions
        )
        return replace(self, deletions=tuple(one for one in deletions if one.unacknowledged))

    def without_holder(self, identity: bytes) -> "NodeRecord":
        """The record after a holder dropped its copy, or was forgotten."""
        holders = tuple(one for one in self.holders if one.identity != identity)
        return replace(self.with_acknowledged(identity), holders=holders)


class NodeRecordFile:
    """The file of one data path, and the record in it."""

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
        record = NodeRecord(**_decode(path, content, _NODE_VERSION, NodeRecord))
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
        self._disk.replace(self._path, _encode(_fields_of(record), _NODE_VERSION), durable=True)
        self._disk.sync_folder(self._path.parent)
        self.record = record


# --- a copy ---


# The content of the file; the folder says the rest. Before a promotion is complete, *replica_epoch* counts.
_COPY_FIELDS: Final = (
    "origin",
    "owner",
    "number",
    "origin_node_id",
    "epoch",
    "seen",
    "index",
    "holders",
    "opened",
)


def encode_copy(copy: LocalCopy, epoch: int | None = None) -> bytes:
    """The content of the file of a copy; with the *epoch* of a promotion that is about to be completed."""
    fields = {name: _to_json(getattr(copy, name)) for name in _COPY_FIELDS}
    fields["replica_epoch"] = copy.epoch
    if epoch is not None:
        fields |= {"epoch": epoch, "seen": max(copy.seen, epoch)}
    return _encode(fields, _COPY_VERSION)


def decode_copy(content: bytes, path: Path, *, promoted: bool) -> LocalCopy:
    """The copy whose record is in a file in the folder *path*. Raises DamagedRecord."""
    found = _decode(COPY_FILE_NAME, content, _COPY_VERSION, LocalCopy, (*_COPY_FIELDS, "replica_epoch"))
    replica_epoch = found.pop("replica_epoch")
    # Also a promotion that was not completed has used the epoch.
    found["seen"] = max(found["seen"], found["epoch"])
    found["epoch"] = found["epoch"] if promoted else replica_epoch
    return LocalCopy(path=path, promoted=promoted, is_stored=True, **found)


# --- both ---


def _encode(fields: dict[str, Any], version: int) -> bytes:
    fields = {"version": version, **fields}
    return json.dumps(fields | {"check": _check(fields)}, indent=1).encode()


def _decode(
    name: object, content: bytes, version: int, kind: type[Any], names: Iterable[str] = ()
) -> dict[str, Any]:
    """The fields of a record in a file: all, or those of these names. Raises DamagedRecord."""
    types = get_type_hints(kind)
    try:
        fields = json.loads(content)
        found, check = fields.get("version"), fields.pop("check", "")
        if not isinstance(found, int) or found <= version:
            if check != _check(fields):
                raise ValueError("its checksum is wrong")
            return {one: _from_json(types.get(one, int), fields[one]) for one in names or types}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedRecord(f"{name} is damaged: {type(error).__name__}: {error}") from error
    raise DamagedRecord(f"{name} has version {found}, this nsqd knows {version}")


def _check(fields: dict[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(fields, sort_keys=True).encode())


def _fields_of(record: Any) -> dict[str, Any]:
    return {one.name: _to_json(getattr(record, one.name)) for one in dataclasses.fields(record)}


def _to_json(value: Any) -> Any:
    """Identities become hexadecimal digits, and records in a list become lists of their fields."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {_to_json(key): each for key, each in dict(value).items()}
    if isinstance(value, tuple):
        return list(map(_to_json, value))
    if isinstance(value, frozenset):
        return sorted(map(_to_json, value))
    return list(_fields_of(value).values()) if dataclasses.is_dataclass(value) else value


def _from_json(kind: Any, value: Any) -> Any:
    """A value of this type. Raises KeyError, TypeError and ValueError."""
    if kind is bytes:
        identity = bytes.fromhex(value)
        if len(identity) != IDENTITY_BYTES:
            raise ValueError(f"{value!r} is no identity")
        return identity
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise ValueError(f"{value!r} is no number")
        return value
    if kind in (str, bool):
        return kind(value)
    if dataclasses.is_dataclass(kind):
        types, make = get_type_hints(kind).values(), cast("type[Any]", kind)
        return make(*(_from_json(one, each) for one, each in zip(types, value, strict=True)))
    form, one = get_origin(kind), get_args(kind)[0]
    if form is dict:
        return {_from_json(one, key): str(each) for key, each in value.items()}
    return form(_from_json(one, each) for each in value)
