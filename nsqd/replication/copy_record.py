"""The record of a copy of a log, ``copy.json``: its origin, its owner, its claim, and the other holders."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

from nsqd.log.ids import MAX_NODE_ID
from nsqd.replication.frames import IDENTITY_BYTES

VERSION: Final = 1
FILE: Final = "copy.json"


class BadRecord(Exception):
    """The record cannot be used; the text says why, in one sentence."""


@dataclass(slots=True, eq=False)
class CopyRecord:
    """A copy of a log on this node; *path* is its folder.

    *number* is never that of another copy here. *epoch* is that of the claim: of the owner that streamed it
    or, once *promoted*, of this node. *seen* is the highest epoch that is known. *place* is the place in the
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
    place: int = 0
    holders: dict[bytes, str] = field(default_factory=dict)
    promoted: bool = False
    opened: bool = False
    # It is on disk: a new one is not before `Copies.create`.
    is_stored: bool = False
    is_dropped: bool = False

    def __repr__(self) -> str:
        return f"<CopyRecord {self.path.name} epoch {self.epoch}>"


def encode(record: CopyRecord, *, promoted_from: int | None = None) -> bytes:
    """The content of the file.

    *promoted_from* is the epoch before a promotion, which counts until the folder is renamed.
    """
    fields = {
        "version": VERSION,
        "origin": record.origin.hex(),
        "origin_node_id": record.origin_node_id,
        "owner": record.owner.hex(),
        "number": record.number,
        "epoch": record.epoch,
        "replica_epoch": record.epoch if promoted_from is None else promoted_from,
        "seen": record.seen,
        "place": record.place,
        "opened": record.opened,
        "holders": {identity.hex(): address for identity, address in dict(record.holders).items()},
    }
    return json.dumps(fields | {"check": _check(fields)}, indent=1).encode()


def decode(content: bytes, path: Path, *, promoted: bool) -> CopyRecord:
    """The record in a file of the folder *path*. Raises BadRecord."""
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise BadRecord(f"{FILE} is damaged: {error}") from error
    if not isinstance(fields, dict):
        raise BadRecord(f"{FILE} is damaged: it is no object")
    version = fields.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BadRecord(f"{FILE} has version {version}, this nsqd knows {VERSION}")
    if fields.pop("check", "") != _check(fields):
        raise BadRecord(f"{FILE} is damaged: its checksum is wrong")
    try:
        return _record(fields, path, promoted=promoted)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRecord(f"{FILE} is damaged: {type(error).__name__}: {error}") from error


def _check(fields: dict[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(fields, sort_keys=True).encode())


def _record(fields: dict[str, Any], path: Path, *, promoted: bool) -> CopyRecord:
    """Raises KeyError, TypeError, ValueError and AttributeError."""
    epoch = _number(fields, "epoch" if promoted else "replica_epoch")
    return CopyRecord(
        _identity(fields["origin"]),
        _identity(fields["owner"]),
        _number(fields, "number"),
        path,
        _number(fields, "origin_node_id", MAX_NODE_ID),
        epoch,
        # A promotion that was not completed has used the epoch.
        max(_number(fields, "seen"), _number(fields, "epoch")),
        _number(fields, "place"),
        {_identity(identity): str(address) for identity, address in fields["holders"].items()},
        promoted,
        bool(fields["opened"]),
        is_stored=True,
    )


def _number(fields: dict[str, Any], name: str, limit: int = (1 << 64) - 1) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ValueError(f"{name} is {value!r}")
    return value


def _identity(text: str) -> bytes:
    identity = bytes.fromhex(text)
    if len(identity) != IDENTITY_BYTES:
        raise ValueError(f"{text!r} is no identity")
    return identity
