"""One open file, to which records are added and synced."""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Records are collected up to this size and then written in one call, always whole, so that two processes that
# append to one file do not mix their lines.
BUFFER_BYTES: Final = 1 << 18

_GZIP_FORMAT: Final = 31  # zlib's number for gzip headers and trailers, and windows of 32 KiB
_GZIP_BEGINNING: Final = b"\x1f\x8b\x08"

# How much of a compressed file is read at a time: it may decompress to a thousand times as much.
_COMPRESSED_BYTES: Final = 1 << 14


class RecordFile:
    """Appends records to a file. ``size`` counts them before compression."""

    def __init__(self, path: Path, fd: int, gzip_level: int | None) -> None:
        self.path = path
        self.fd = fd
        self._gzip_level = gzip_level
        self._member: zlib._Compress | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._in_folder = False  # whether the folder's entry for it is synced
        self.size = os.fstat(fd).st_size
        if self.size and gzip_level is None and os.pread(fd, 1, self.size - 1) != b"\n":
            # The last run ended in the middle of a record. That message was not finished and is delivered
            # again, but the next record must not continue its line.
            self._raw(b"\n")
            self.size += 1

    def add(self, body: bytes) -> None:
        """Add one record; it is safe after the next sync."""
        self._pending.append(body)
        self._pending.append(b"\n")
        self._pending_bytes += len(body) + 1
        self.size += len(body) + 1
        if self._pending_bytes >= BUFFER_BYTES:
            self.flush()

    @property
    def is_removed(self) -> bool:
        """Whether the file has no name any more, such as after `rm`; a renamed file has one."""
        return os.fstat(self.fd).st_nlink == 0

    def sync(self) -> None:
        """Return when all records are on disk, and readable even if later data is damaged."""
        self.flush()
        if self._member is not None:
            self._raw(self._member.flush())
            self._member = None
        os.fsync(self.fd)
        if not self._in_folder:
            sync_folder(self.path.parent)
            self._in_folder = True

    def finish(self) -> None:
        """Sync the last records; afterwards only the descriptor is open."""
        if self._gzip_level is not None and not self.size:
            self._compressor()  # an empty .gz needs an empty member, or gzip refuses it
        self.sync()

    def flush(self) -> None:
        """Write the added records, so that others can read them (compressed records only at the sync)."""
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._raw(data if self._gzip_level is None else self._compressor().compress(data))

    def _compressor(self) -> "zlib._Compress":
        if self._member is None:
            self._member = zlib.compressobj(self._gzip_level or 0, zlib.DEFLATED, _GZIP_FORMAT)
        return self._member

    def _raw(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder: without it a synced file can still be lost with its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file: lines or members of gzip, and how many bytes of them are complete."""

    gzip: bool
    complete: int


def content_of(path: Path, *, gzip: bool) -> Content:
    """Judge a file by its content; *gzip* is the expected kind and decides only if that is ambiguous.

    Bodies may be compressed themselves. So a file that begins like gzip is lines if other bytes follow its
    first member. If that is uncertain, all bytes count that are complete as either kind.
    """
    members, ends_well = _complete_members(path)
    lines = _complete_lines(path)
    with path.open("rb") as file:
        beginning = file.read(len(_GZIP_BEGINNING))
        file.seek(members)
        following = file.read(2)
    if members and _GZIP_BEGINNING[:2].startswith(following):  # nothing follows, or a member that is torn
        return Content(True, members)
    if gzip and not members and ends_well and beginning == _GZIP_BEGINNING:
        return Content(True, 0)
    return Content(False, max(lines, members))


def _complete_lines(path: Path) -> int:
    whole = at = 0
    with path.open("rb") as file:
        while piece := file.read(BUFFER_BYTES):
            if (end := piece.rfind(b"\n")) >= 0:
                whole = at + end + 1
            at += len(piece)
    return whole


def _complete_members(path: Path) -> tuple[int, bool]:
    """The bytes of members with their trailer, and whether only a torn member follows."""
    whole = at = 0
    with path.open("rb") as file:
        member = zlib.decompressobj(_GZIP_FORMAT)
        while piece := file.read(_COMPRESSED_BYTES):
            while piece:
                try:
                    member.decompress(piece)
                except zlib.error:
                    return whole, False
                at += len(piece) - len(member.unused_data)
                piece = member.unused_data
                if member.eof:
                    whole = at
                    member = zlib.decompressobj(_GZIP_FORMAT)
    return whole, True
