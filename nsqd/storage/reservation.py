"""The reservation: the sequence numbers this data path may use, noted durably before any of them is used.

It is one file with two slots of a sector each, which are overwritten in turn. So one of them is whole at any
moment, and no space is needed on a full disk. The file also says which data path this is: a copy of it has
another inode, and continues with its own numbers.
"""

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.engine.numbering import Sequences
from nsqd.log.disk import Disk
from nsqd.log.layout import MUST_UNDERSTAND, NewerVersion

FILE_NAME: Final = "reservation"
# So many numbers are reserved at a time: a sync every few seconds at the highest rate.
STRIDE: Final = 1 << 24
# A copy skips ahead by a number from this range: years of messages, which the copied path never reaches.
_JUMP: Final = (1 << 40, 1 << 46)
_MAGIC: Final = b"NSQRSV\x02\n"
_VERSION: Final = 2
# magic, version, flags, spare, serial, reserved, inode, identity
_SLOT: Final = struct.Struct("<8sHHIQQQ16s")
_CHECK: Final = struct.Struct("<Q")
_SLOT_BYTES: Final = 512


class Reservation:
    """The file of one data path. :meth:`extend` may be called in any thread."""

    def __init__(self, disk: Disk, data_path: Path, sequences: Sequences) -> None:
        self.path = data_path / FILE_NAME
        self.sequences = sequences
        # 16 random bytes that name the data path; empty until it is opened.
        self.identity = b""
        # Draws random identities and jumps; tests replace it.
        self.draw: Callable[[int], bytes] = os.urandom
        self._disk = disk
        self._serial = 0
        self._inode = 0
        self._lock = threading.Lock()

    def load(self, warn: Callable[[str], None]) -> tuple[int, int]:
        """Read the file: the sequence below which numbers may have been used, and how far to jump from there.

        Raises OSError, and NewerVersion.
        """
        (self._serial, reserved, inode, self.identity), is_damaged = self._newest()
        jump = 0
        if not self.identity:
            if is_damaged:
                warn(f"{self.path} is damaged: new message ids start far above all that are on disk")
                jump = self._far()
            return 0, jump
        if inode != self._disk.identity(self.path):
            warn(
                f"{self.path.parent} is a copy of another data path: new message ids start far above its own"
            )
            self.identity = b""
            jump = self._far()
        elif is_damaged:
            # The damaged slot may have been the newer one, with more numbers reserved.
            jump = 2 * STRIDE
        return reserved, jump

    def _far(self) -> int:
        return _JUMP[0] + int.from_bytes(self.draw(8)) % (_JUMP[1] - _JUMP[0])

    def named(self) -> bytes:
        """The identity that the file gives, also in a copy of the data path; empty without a file.

        Raises OSError, and NewerVersion.
        """
        return self._newest()[0][3]

    def copied_from(self) -> bytes:
        """The identity of the data path of which this one is a copy; empty if it is none.

        Raises OSError, and NewerVersion.
        """
        (_, _, inode, identity), _ = self._newest()
        return identity if identity and inode != self._disk.identity(self.path) else b""

    def _newest(self) -> tuple[tuple[int, int, int, bytes], bool]:
        """Serial, reserved, inode and identity of the newest slot, and whether a slot is damaged."""
        try:
            content = self._disk.read_file(self.path)
        except FileNotFoundError:
            content = b""
        raw = [content[at : at + _SLOT_BYTES] for at in (0, _SLOT_BYTES)]
        slots = {slot: _decode(slot) for slot in raw if slot.strip(b"\0")}
        newest = max((slot for slot in slots.values() if slot is not None), default=(0, 0, 0, b""))
        return newest, None in slots.values()

    def open(self, floor: int) -> None:
        """Start a new run of the node: no number below *floor* is used any more. Raises OSError."""
        self.sequences.used = floor
        self.identity = self.identity or self.draw(16)
        fd = self._disk.open_write(self.path)
        try:
            self._disk.allocate(fd, 2 * _SLOT_BYTES)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_folder(self.path.parent)
        self._inode = self._disk.identity(self.path)
        self.sequences.reserved = 0
        self.extend(floor)

    def extend(self, end: int) -> None:
        """Reserve all below *end* and a stride more. Raises OSError; then nothing more is reserved."""
        with self._lock:
            if self.sequences.reserved > end + STRIDE // 2:
                return
            reserved = end + STRIDE
            serial = self._serial + 1
            fields = _SLOT.pack(_MAGIC, _VERSION, 0, 0, serial, reserved, self._inode, self.identity)
            slot = (fields + _CHECK.pack(xxh3_64_intdigest(fields))).ljust(_SLOT_BYTES, b"\0")
            fd = self._disk.open_write(self.path)
            try:
                self._disk.write_at(fd, slot, serial % 2 * _SLOT_BYTES)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            self._serial = serial
            self.sequences.reserved = reserved

    @property
    def wants_more(self) -> bool:
        """Whether less than half a stride is left."""
        return self.sequences.reserved - self.sequences.used < STRIDE // 2


def _decode(slot: bytes) -> tuple[int, int, int, bytes] | None:
    fields = slot[: _SLOT.size]
    if len(slot) < _SLOT.size + _CHECK.size:
        return None
    if xxh3_64_intdigest(fields) != _CHECK.unpack_from(slot, _SLOT.size)[0]:
        return None
    magic, version, flags, _, serial, reserved, inode, identity = _SLOT.unpack(fields)
    if magic != _MAGIC or version != _VERSION or flags & MUST_UNDERSTAND:
        raise NewerVersion(f"reservation format {version} with flags {flags:#06x} is not known")
    return serial, reserved, inode, identity
