"""The checkpoint of a topic: what the topic and each of its channels still owe, in one file.

The magic and the version, a line of JSON, arrays of little-endian uint64, and xxh3 of all that. What was in
flight is written as waiting, because after a restart nobody can answer for it. Messages at or after ``next``
are not mentioned: they are found in the log. Times are those of the clock on the wall.
"""

import json
import struct
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from xxhash import xxh3_64, xxh3_64_intdigest

from nsqd.engine.channel import Channel
from nsqd.engine.owed import Owed
from nsqd.engine.topic import Topic
from nsqd.storage.layout import MUST_UNDERSTAND, NewerVersion
from nsqd.storage.recovery import Mark

_MAGIC: Final = b"NSQCPT\x02\n"
_VERSION: Final = 2
# magic, version, flags, spare
_HEAD: Final = struct.Struct("<8sHHI")
_CHECK: Final = struct.Struct("<Q")
# Set on the end of a span whose messages were delivered before.
_AGAIN: Final = 1 << 63
_CRC_BYTES: Final = 4  # of version 1
_NUMBER: Final = array("Q").itemsize


class BadCheckpoint(Exception):
    """The file is damaged or not ours; the text is the reason."""


@dataclass(slots=True)
class OwedState:
    """Spans as (start, end, again), deferred as (due_ns, seq), in order."""

    spans: list[tuple[int, int, bool]]
    attempts: dict[int, int]
    deferred: list[tuple[int, int]]
    paused: bool = False
    committed: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    def fill(self, owed: Owed, offset_ns: int = 0) -> None:
        """Make *owed*, which is empty, owe this; *offset_ns* is from the engine's clock to the wall's."""
        owed.attempts.update(self.attempts)
        for start, end, again in self.spans:
            if again:
                owed.put_back(start, end)
            else:
                owed.extend(start, end)
        for due_ns, seq in self.deferred:
            owed.defer(seq, seq + 1, due_ns - offset_ns)


@dataclass(slots=True)
class TopicState:
    """What a checkpoint says."""

    serial: int
    mark: Mark
    kept_from: int
    low_water: int
    paused: bool
    held: bool
    counters: dict[str, int]
    backlog: OwedState
    channels: dict[str, OwedState]


def encoder(topic: Topic, serial: int, mark: Mark) -> Callable[[], bytes]:
    """The checkpoint of a topic as it is now; encoded when it is called, in any thread."""
    arrays: list[Callable[[], bytes]] = []
    offset_ns = topic.wall.offset_ns
    low_water = topic.low_water()
    header = {
        "topic": topic.name,
        "serial": serial,
        "next": mark.next,
        "notes": mark.notes,
        # What everybody has finished may be let go of before it is durable; it is no hole then.
        "synced": max(mark.synced, low_water),
        "end": mark.end,
        "kept_from": topic.log.kept_from,
        "low_water": low_water,
        "paused": topic.paused,
        "held": topic.held,
        "counters": {"messages": topic.message_count, "bytes": topic.message_bytes},
        "backlog": _encode_owed(topic.backlog, arrays, offset_ns),
        "channels": [
            {
                "name": channel.name,
                "paused": channel.paused,
                "committed": channel.committed,
                "counters": {
                    "messages": channel.message_count,
                    "requeued": channel.requeue_count,
                    "returned": channel.returned_count,
                    "timed_out": channel.timeout_count,
                },
                **_encode_owed(channel, arrays, offset_ns),
            }
            for channel in topic.channels.values()
            if not channel.ephemeral
        ],
    }

    def encode() -> bytes:
        line = json.dumps(header, separators=(",", ":")).encode()
        parts = [_HEAD.pack(_MAGIC, _VERSION, 0, 0), line, b"\n", *(part() for part in arrays)]
        check = xxh3_64()
        for part in parts:
            check.update(part)
        return b"".join((*parts, _CHECK.pack(check.intdigest())))

    return encode


class Sealed:
    """A checkpoint that is whole. Of two only the one that counts is looked into."""

    __slots__ = ("_header", "_rest", "serial")

    def __init__(self, content: bytes) -> None:
        """Raises BadCheckpoint, and NewerVersion."""
        body = content[: -_CHECK.size]
        if len(body) < _HEAD.size or xxh3_64_intdigest(body) != _CHECK.unpack_from(content, len(body))[0]:
            raise BadCheckpoint("checksum mismatch")
        magic, version, flags, _ = _HEAD.unpack_from(body)
        if magic != _MAGIC or version != _VERSION or flags & MUST_UNDERSTAND:
            raise NewerVersion(f"checkpoint format {version} with flags {flags:#06x} is not known")
        line, _, self._rest = body[_HEAD.size :].partition(b"\n")
        try:
            self._header = json.loads(line)
            self.serial: int = self._header["serial"]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadCheckpoint(f"{type(error).__name__}: {error}") from error

    def state(self) -> TopicState:
        """Raises BadCheckpoint."""
        header = self._header
        try:
            mark = Mark(header["next"], header["notes"], header["synced"], header["end"])
            return _state(header, self._rest, self.serial, mark, header["low_water"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadCheckpoint(f"{type(error).__name__}: {error}") from error


def decode(content: bytes) -> TopicState:
    """Raises BadCheckpoint, and NewerVersion."""
    return _decode_version_1(content) if content.startswith(b"{") else Sealed(content).state()


def _decode_version_1(content: bytes) -> TopicState:
    """As stage one of this project wrote it: the line, the arrays, and a crc32."""
    body = content[:-_CRC_BYTES]
    if crc32(body) != int.from_bytes(content[-_CRC_BYTES:], "little"):
        raise BadCheckpoint("checksum mismatch")
    line, _, rest = body.partition(b"\n")
    try:
        header = json.loads(line)
        return _state(header, rest, 0, Mark(header["next"], 0, header["next"], 0), 0)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadCheckpoint(f"{type(error).__name__}: {error}") from error


def _state(header: dict[str, Any], rest: bytes, serial: int, mark: Mark, low_water: int) -> TopicState:
    numbers = _Numbers(rest)
    return TopicState(
        serial=serial,
        mark=mark,
        kept_from=header["kept_from"],
        low_water=low_water,
        paused=header["paused"],
        held=header.get("held", False),
        counters=header["counters"],
        backlog=_decode_owed(header["backlog"], numbers),
        channels={item["name"]: _decode_owed(item, numbers) for item in header["channels"]},
    )


def _encode_owed(owed: Owed, arrays: list[Callable[[], bytes]], offset_ns: int) -> dict[str, int]:
    """Note the numbers in *arrays*; returns how many there are."""
    spans = array("Q")
    if isinstance(owed, Channel):
        for start, end in owed.in_flight.ranges():
            spans.extend((start, end | _AGAIN))
    for span in owed.pending:
        spans.extend((span.start, span.end | _AGAIN if span.again else span.end))
    attempts = array("Q")
    for seq, count in owed.attempts.items():
        attempts.extend((seq, count))
    # A copy is quick; there may be a million deferred ones, and that is left to the thread.
    runs = owed.deferred.snapshot()
    arrays += [
        lambda: _little_endian(spans).tobytes(),
        lambda: _little_endian(attempts).tobytes(),
        lambda: _encode_deferred(runs, offset_ns),
    ]
    return {"spans": len(spans) // 2, "attempts": len(attempts) // 2, "deferred": len(owed.deferred)}


def _encode_deferred(runs: "array[int]", offset_ns: int) -> bytes:
    """Due time and sequence of each message."""
    dues: array[int] = array("Q")
    seqs: array[int] = array("Q")
    for due_ns, start, end in zip(runs[0::3], runs[1::3], runs[2::3], strict=True):
        if end - start == 1:
            dues.append(due_ns + offset_ns)
            seqs.append(start)
        else:
            dues.extend(array("Q", (due_ns + offset_ns,)) * (end - start))
            seqs.extend(range(start, end))
    pairs = array("Q", bytes(2 * _NUMBER * len(dues)))
    pairs[0::2] = dues
    pairs[1::2] = seqs
    return _little_endian(pairs).tobytes()


def _decode_owed(item: dict[str, Any], numbers: "_Numbers") -> OwedState:
    spans = [(start, end & ~_AGAIN, end >= _AGAIN) for start, end in numbers.pairs(item["spans"])]
    return OwedState(
        spans=spans,
        attempts=dict(numbers.pairs(item["attempts"])),
        deferred=numbers.pairs(item["deferred"]),
        paused=item.get("paused", False),
        committed=item.get("committed", 0),
        counters=item.get("counters", {}),
    )


class _Numbers:
    """Reads the arrays in the order in which they were written."""

    def __init__(self, raw: bytes) -> None:
        numbers = array("Q")
        numbers.frombytes(raw)
        self._numbers = _little_endian(numbers)
        self._pos = 0

    def pairs(self, count: int) -> list[tuple[int, int]]:
        if not count:
            # Usual: most channels have nothing deferred, or nothing delivered before.
            return []
        taken = self._numbers[self._pos : self._pos + 2 * count]
        if len(taken) != 2 * count:
            raise ValueError("an array is cut short")
        self._pos += 2 * count
        return list(zip(taken[0::2], taken[1::2], strict=True))


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
