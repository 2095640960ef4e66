"""Files as version 1 of the storage wrote them, made from what was written down of its format."""

import json
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

from nsqd.engine.block import Block


def version_1_checkpoint(
    channels: Iterable[dict[str, Any]] = (), numbers: Iterable[int] = (), **header: Any
) -> bytes:
    """A line of JSON, arrays of little-endian uint64, and crc32 of both."""
    line = {
        "next": 2000,
        "clean": False,
        "kept_from": 1000,
        "paused": False,
        "counters": {"messages": 5, "bytes": 50},
        "backlog": {"spans": 0, "attempts": 0, "deferred": 0},
        "channels": list(channels),
    } | header
    body = json.dumps(line).encode() + b"\n" + array("Q", numbers).tobytes()
    return body + struct.pack("<I", crc32(body))


def version_1_segment(folder: Path, blocks: list[Block], *, first: int = -1, generation: int = 0) -> Path:
    """A data file of frames and an index with an entry for each append; returns the data file."""
    first = blocks[0].first if first < 0 else first
    name = f"{first:016x}" + (f".{generation}" if generation else "")
    data, index = b"", b"NSQIDX1\n"
    for block in blocks:
        data += block.data
        fields = struct.pack("<QQQI", len(data), block.next, block.due_ns, block.next - block.first)
        index += fields + struct.pack("<I", crc32(fields, crc32(block.data)))
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.log"
    path.write_bytes(data)
    path.with_name(f"{name}.index").write_bytes(index)
    return path
