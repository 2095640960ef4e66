"""The checkpoint of a topic: the pending messages of the topic and each of its channels, in one file.

A file is a chain of records: a whole one, then records of what was added since, as long as adding costs less
than writing all again. Each record is its head, a line of JSON, arrays of little-endian uint64 and pages of
bits, and xxh3 of all these. Messages in flight are written as delivered before, because after a restart
they cannot be answered. Messages at or after ``next`` are not mentioned: they are found in the log.
"""

import json
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from xxhash import xxh3_64, xxh3_64_intdigest

from nsqd.engine.backlog import Backlog
from nsqd.engine.channel import Channel
from nsqd.engine.journal import WIDTH
from nsqd.engine.state import CHANNEL_COUNTERS, Additions, BacklogState, TopicState, owners
from nsqd.engine.topic import Topic
from nsqd.log.gaps import EVERYTHING
from nsqd.log.layout import MUST_UNDERSTAND, NewerVersion
from nsqd.log.ranges import PAGE_BYTES, Ranges, within
from nsqd.log.tail_records import CheckpointPosition

_MAGIC: Final = b"NSQCPT\x03\n"
_VERSION: Final = 3
# magic, version, flags, spare, size of what follows up to the checksum
_HEAD: Final = struct.Struct("<8sHHIQ")
_CHECK: Final = struct.Struct("<Q")
# The record continues the one before it.
_ADDED: Final = 0x0100
_NUMBER: Final = array("Q").itemsize


class BadCheckpoint(Exception):
    """The file is damaged or not ours; the text is the reason."""


@dataclass(slots=True)
class _Facts:
    """A record's content for a backlog or channel; collected in the loop, made into bytes in a thread."""

    header: dict[str, Any]
    pages: list[tuple[int, bytes]]
    dues: "list[array[int]]"
    tries: "list[array[int]]"
    in_flight: Callable[[], Ranges]
    attempts: dict[int, int]

    def parts(self) -> list[bytes]:
        """The arrays as bytes; their sizes are noted in the header."""
        tries = array("Q")
        for start, end in self.in_flight():
            tries.extend((1, start, end))
        for seq, count in self.attempts.items():
            tries.extend((count, seq, seq + 1))
        for more in self.tries:
            tries.extend(more)
        dues = array("Q")
        for more in self.dues:
            dues.extend(more)
        numbers = array("Q")
        for number, bits in self.pages:
            numbers.extend((number, len(bits)))
        self.header |= {
            "pages": len(self.pages),
            "dues": len(dues) // WIDTH,
            "tries": len(tries) // WIDTH,
        }
        columns = [_little_endian(column).tobytes() for column in (numbers, dues, tries)]
        return columns + [bits for _, bits in self.pages]


def encoder(
    topic: Topic,
    serial: int,
    mark: CheckpointPosition,
    added: dict[Backlog, Additions] | None = None,
    alone_from: int = 0,
) -> Callable[[], bytes]:
    """A function that makes the bytes of a record of the topic as it is now, in any thread.

    With *added*, which is what changed since the record before, the loop's share of the work is in proportion
    to that. The record lists what was sent to one channel alone from *alone_from* on.
    """
    low_water = topic.low_water()
    backlog, *channels = [
        _whole(one, channel) if added is None else _added(one, channel, added.get(one) or Additions())
        for one, channel in owners(topic).items()
    ]
    if added is None:
        backlog.dues += topic.deferred.snapshot()
    header = {
        "topic": topic.name,
        "serial": serial,
        "next": mark.next,
        "notes": mark.notes,
        # Fully finished messages may be removed before they are durable; then they do not count as
        # missing.
        "synced": max(mark.synced, low_water),
        "end": mark.end,
        "synced_notes": mark.synced_notes,
        "kept_from": topic.log.log_start,
        "low_water": low_water,
        # Added to a due time, this gives the time on the wall clock.
        "offset": topic.wall.offset_ns,
        "paused": topic.paused,
        "held": topic.awaiting_registration,
        "had": topic.log.stored_ranges.ranges(mark.next),
        "gone": topic.deleted_channels.copy(),
        **({"alone": exclusive} if (exclusive := topic.exclusive.since(alone_from)) else {}),
        **({"tombstoned": True} if topic.tombstoned else {}),
        **({"elsewhere": elsewhere} if (elsewhere := _elsewhere_of(topic)) else {}),
        "counters": {
            "messages": topic.message_count,
            "bytes": topic.message_bytes,
            "dropped": topic.dropped_count,
        },
        "backlog": backlog.header,
        "channels": [facts.header for facts in channels],
    }
    flags = 0 if added is None else _ADDED

    def encode() -> bytes:
        # The sizes of the arrays get into the header.
        arrays = [part for facts in (backlog, *channels) for part in facts.parts()]
        return _sealed(flags, header, arrays)

    return encode


def _elsewhere_of(topic: Topic) -> list[list[Any]]:
    return [[*key, ranges.copy()] for key, ranges in topic.finished_elsewhere.items()]


def _sealed(flags: int, header: dict[str, Any], arrays: list[bytes]) -> bytes:
    """A record with its checksum."""
    line = json.dumps(header, separators=(",", ":")).encode()
    size = len(line) + 1 + sum(map(len, arrays))
    parts = [_HEAD.pack(_MAGIC, _VERSION, flags, 0, size), line, b"\n", *arrays]
    check = xxh3_64()
    for part in parts:
        check.update(part)
    return b"".join((*parts, _CHECK.pack(check.intdigest())))


def _whole(backlog: Backlog, channel: Channel | None) -> _Facts:
    finished = backlog.finished
    return _Facts(
        _header(backlog, channel),
        [(number, finished.page(number)) for number in finished.pages()],
        backlog.deferred.snapshot(),
        [],
        backlog.in_flight.snapshot(),
        backlog.attempts.copy(),
    )


def _added(backlog: Backlog, channel: Channel | None, change: Additions) -> _Facts:
    finished = backlog.finished
    return _Facts(
        _header(backlog, channel),
        # The floor has passed the other changed pages.
        [(number, finished.page(number)) for number in change.pages & finished.pages()],
        [journal.dues for journal in change.journals],
        [journal.tries for journal in change.journals],
        list,
        {},
    )


def _header(backlog: Backlog, channel: Channel | None) -> dict[str, Any]:
    header: dict[str, Any] = {
        "end": backlog.end,
        "floor": backlog.finished.floor,
        "runs": [list(run) for run in backlog.finished.runs],
    }
    if channel is not None:
        # Positions below the floor are never needed, and would be written again with every record.
        channel.absent = within(channel.absent, backlog.finished.floor, EVERYTHING)
        header |= {
            "name": channel.name,
            "generation": channel.generation,
            "ahead": channel.ahead,
            "paused": channel.paused,
            "committed": channel.committed,
            **({"absent": channel.absent} if channel.absent else {}),
            "counters": {name: getattr(channel, field) for name, field in CHANNEL_COUNTERS.items()},
        }
    return header


class Sealed:
    """The complete records at the beginning of a file. Only the file that counts of the two is decoded."""

    __slots__ = ("_records", "serial", "trailing_bytes")

    def __init__(self, content: bytes, topic_name: str = "") -> None:
        """Raises BadCheckpoint when there is no such record, or one of another topic, and NewerVersion."""
        self._records: list[tuple[dict[str, Any], bytes]] = []
        self.serial = -1
        at = 0
        while at < len(content):
            found = _record(content, at, first=not at)
            if found is None:
                break
            header, rest, at = found
            if topic_name and header.get("topic", topic_name) != topic_name:
                raise BadCheckpoint(f"it is of the topic {header['topic']!r}")
            self._records.append((header, rest))
            self.serial = header["serial"]
        if not self._records:
            raise BadCheckpoint("checksum mismatch")
        # Bytes behind these records that were not written completely or are no longer valid.
        self.trailing_bytes = len(content) - at

    def state(self) -> TopicState:
        """What the records say. Raises BadCheckpoint."""
        state: TopicState | None = None
        try:
            for header, rest in self._records:
                state = _state(header, rest, state)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise BadCheckpoint(f"{type(error).__name__}: {error}") from error
        return cast("TopicState", state)


def with_serial(content: bytes, serial: int) -> bytes:
    """The same records under another serial number. Raises BadCheckpoint, and NewerVersion."""
    parts: list[bytes] = []
    at = 0
    while (found := _record(content, at, first=not at)) is not None:
        flags = _HEAD.unpack_from(content, at)[2]
        header, rest, at = found
        parts.append(_sealed(flags, header | {"serial": serial}, [rest]))
    return b"".join(parts)


def decode(content: bytes) -> TopicState:
    """What the content of a checkpoint file says. Raises BadCheckpoint, and NewerVersion."""
    return Sealed(content).state()


def _record(content: bytes, at: int, *, first: bool) -> tuple[dict[str, Any], bytes, int] | None:
    """The header, the arrays and the end of the record at this place; None when there is no complete one."""
    if at + _HEAD.size > len(content):
        return None
    magic, version, flags, _, size = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + size
    if end + _CHECK.size > len(content):
        return None
    if xxh3_64_intdigest(memoryview(content)[at:end]) != _CHECK.unpack_from(content, end)[0]:
        return None
    if magic != _MAGIC or version != _VERSION or flags & MUST_UNDERSTAND:
        raise NewerVersion(f"checkpoint format {version} with flags {flags:#06x} is not known")
    if first is bool(flags & _ADDED):
        return None
    line, _, rest = content[at + _HEAD.size : end].partition(b"\n")
    try:
        header = json.loads(line)
        int(header["serial"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadCheckpoint(f"{type(error).__name__}: {error}") from error
    return header, rest, end + _CHECK.size


def _state(header: dict[str, Any], rest: bytes, before: TopicState | None) -> TopicState:
    """What a record says; an added record continues the state *before* it."""
    arrays = _Arrays(rest, header["offset"])
    backlog = _decode_backlog(header["backlog"], arrays, before.backlog if before else None)
    known = before.channels if before else {}
    exclusive = [(first, end, name) for first, end, name in header.get("alone", ())]
    return TopicState(
        serial=header["serial"],
        checkpoint_position=CheckpointPosition(
            header["next"],
            header["notes"],
            header["synced"],
            header["end"],
            header["synced_notes"],
        ),
        log_start=header["kept_from"],
        low_water=header["low_water"],
        paused=header["paused"],
        awaiting_registration=header["held"],
        counters=header["counters"],
        backlog=backlog,
        channels={
            item["name"]: _decode_backlog(item, arrays, known.get(item["name"]))
            for item in header["channels"]
        },
        stored_ranges=_ranges(header["had"]),
        deleted_channels={str(name): int(number) for name, number in header["gone"].items()},
        exclusive=(before.exclusive if before else []) + exclusive,
        tombstoned=bool(header.get("tombstoned", False)),
        finished_elsewhere={
            (str(name), int(generation)): _ranges(ranges)
            for name, generation, ranges in header.get("elsewhere", ())
        },
    )


def _decode_backlog(item: dict[str, Any], arrays: "_Arrays", before: BacklogState | None) -> BacklogState:
    generation = item.get("generation", 0)
    # A channel that was deleted and created again under its name takes over nothing.
    state = before if before is not None and before.generation == generation else BacklogState()
    state.generation = generation
    state.end = item["end"]
    state.ahead = _ranges(item.get("ahead", ()))
    state.paused = item.get("paused", False)
    state.committed = item.get("committed", 0)
    state.absent = _ranges(item.get("absent", ()))
    state.counters = item.get("counters", {})
    numbers = arrays.numbers(2 * item["pages"])
    state.dues.extend(arrays.dues(item["dues"]))
    state.tries.extend(arrays.numbers(WIDTH * item["tries"]))
    for number, size in zip(numbers[0::2], numbers[1::2], strict=True):
        state.finished.set_page(number, arrays.bits(size))
    for first, end in item["runs"]:
        state.finished.add_run(int(first), int(end))
    state.finished.raise_floor(item["floor"])
    return state


def _ranges(noted: Iterable[Sequence[int]]) -> Ranges:
    return [(int(first), int(end)) for first, end in noted]


class _Arrays:
    """Reads the arrays and pages in the order in which they were written."""

    def __init__(self, raw: bytes, offset_ns: int) -> None:
        self._raw = raw
        self._offset_ns = offset_ns
        self._at = 0

    def bits(self, size: int) -> bytes:
        if size not in (0, PAGE_BYTES):
            raise ValueError(f"a page of {size} bytes")
        return self._take(size)

    def numbers(self, count: int) -> "array[int]":
        numbers = array("Q")
        numbers.frombytes(self._take(_NUMBER * count))
        return _little_endian(numbers)

    def dues(self, count: int) -> "array[int]":
        """Runs of due times, converted to times on the wall clock."""
        facts = self.numbers(WIDTH * count)
        offset_ns = self._offset_ns
        facts[0::WIDTH] = array("Q", [due_ns + offset_ns for due_ns in facts[0::WIDTH]])
        return facts

    def _take(self, size: int) -> bytes:
        taken = self._raw[self._at : self._at + size]
        if size < 0 or len(taken) != size:
            raise ValueError("an array is cut short")
        self._at += size
        return taken


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
