"""The checkpoint of a topic: what the topic and each of its channels still owe, in one file.

A JSON line, then arrays of little-endian uint64, then the crc32 of all before it. What was in flight is
written as waiting, because after a restart nobody can answer for it. Messages at or after ``next`` are not
mentioned: whoever is in the checkpoint owes them.
"""

import json
import sys
from array import array
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from nsqd.engine.channel import Channel
from nsqd.engine.owed import Owed
from nsqd.engine.topic import Topic

_VERSION: Final = 1
# Set on the end of a span whose messages were delivered before.
_AGAIN: Final = 1 << 63
_CRC_BYTES: Final = 4


class BadCheckpoint(Exception):
    """The file is damaged or not ours; the text is the reason."""


@dataclass(slots=True)
class OwedState:
    """Spans as (start, end, again), deferred as (due_ns, seq), in order."""

    spans: list[tuple[int, int, bool]]
    attempts: dict[int, int]
    deferred: list[tuple[int, int]]
    paused: bool = False
    counters: dict[str, int] = field(default_factory=dict)

    def fill(self, owed: Owed) -> None:
        """Make *owed*, which is empty, owe this."""
        owed.attempts.update(self.attempts)
        for start, end, again in self.spans:
            if again:
                owed.put_back(start, end)
            else:
                owed.extend(start, end)
        for due_ns, seq in self.deferred:
            owed.defer(seq, due_ns)


@dataclass(slots=True)
class TopicState:
    """What a checkpoint says."""

    next_seq: int
    kept_from: int
    clean: bool
    paused: bool
    counters: dict[str, int]
    backlog: OwedState
    channels: dict[str, OwedState]


def encode(topic: Topic, *, clean: bool) -> bytes:
    """The checkpoint of a topic as it is now; *clean* says that nothing happens to it afterwards."""
    arrays: list[bytes] = []
    header = {
        "version": _VERSION,
        "topic": topic.name,
        "next": topic.log.next_seq,
        "kept_from": topic.log.kept_from,
        "clean": clean,
        "paused": topic.paused,
        "counters": {"messages": topic.message_count, "bytes": topic.message_bytes},
        "backlog": _encode_owed(topic.backlog, arrays),
        "channels": [
            {
                "name": channel.name,
                "paused": channel.paused,
                "counters": {
                    "messages": channel.message_count,
                    "requeued": channel.requeue_count,
                    "timed_out": channel.timeout_count,
                },
                **_encode_owed(channel, arrays),
            }
            for channel in topic.channels.values()
            if not channel.ephemeral
        ],
    }
    content = json.dumps(header, separators=(",", ":")).encode() + b"\n" + b"".join(arrays)
    return content + crc32(content).to_bytes(_CRC_BYTES, "little")


def decode(content: bytes) -> TopicState:
    """Raises BadCheckpoint."""
    body = content[:-_CRC_BYTES]
    if crc32(body) != int.from_bytes(content[-_CRC_BYTES:], "little"):
        raise BadCheckpoint("checksum mismatch")
    line, newline, rest = body.partition(b"\n")
    try:
        header = json.loads(line)
        if not newline or header["version"] != _VERSION:
            raise BadCheckpoint(f"version {header['version']} is not known")
        numbers = _Numbers(rest)
        return TopicState(
            next_seq=header["next"],
            kept_from=header["kept_from"],
            clean=header["clean"],
            paused=header["paused"],
            counters=header["counters"],
            backlog=_decode_owed(header["backlog"], numbers),
            channels={item["name"]: _decode_owed(item, numbers) for item in header["channels"]},
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadCheckpoint(f"{type(error).__name__}: {error}") from error


def _encode_owed(owed: Owed, arrays: list[bytes]) -> dict[str, int]:
    spans = array("Q")
    if isinstance(owed, Channel):
        for start, end in owed.in_flight.ranges():
            spans.extend((start, end | _AGAIN))
    for span in owed.pending:
        spans.extend((span.start, span.end | _AGAIN if span.again else span.end))
    attempts = array("Q")
    for seq, count in owed.attempts.items():
        attempts.extend((seq, count))
    deferred = array("Q")
    for due_ns, seq in owed.deferred:
        deferred.extend((due_ns, seq))
    arrays += [_little_endian(numbers).tobytes() for numbers in (spans, attempts, deferred)]
    return {"spans": len(spans) // 2, "attempts": len(attempts) // 2, "deferred": len(deferred) // 2}


def _decode_owed(item: dict[str, Any], numbers: "_Numbers") -> OwedState:
    spans = [(start, end & ~_AGAIN, end >= _AGAIN) for start, end in numbers.pairs(item["spans"])]
    return OwedState(
        spans=spans,
        attempts=dict(numbers.pairs(item["attempts"])),
        deferred=numbers.pairs(item["deferred"]),
        paused=item.get("paused", False),
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
        taken = self._numbers[self._pos : self._pos + 2 * count]
        if len(taken) != 2 * count:
            raise ValueError("an array is cut short")
        self._pos += 2 * count
        return list(zip(taken[0::2], taken[1::2], strict=True))


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
