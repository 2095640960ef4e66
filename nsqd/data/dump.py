"""``nsqd-data dump``: the stored messages of topics, one object per line."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from nsqd.data.opened import BACKLOG, DataPathRefused, OpenedDataPath, OpenedTopic
from nsqd.log import cursor
from nsqd.log import headers as headers_of
from nsqd.log.frames import ID_SPAN, Block
from nsqd.log.gaps import EVERYTHING, CannotRead
from nsqd.log.ranges import Ranges, within

ALL: Final = EVERYTHING


@dataclass(frozen=True, slots=True)
class DumpFilter:
    """The messages to print, and their fields; *start* and *end* are sequences, times in ns since 1970."""

    start: int = 0
    end: int = ALL
    from_ns: int = 0
    to_ns: int = ALL
    channel: str = ""
    """Only the pending messages of this channel."""
    pending: bool = False
    """Say of each message on which channels it is pending."""


def messages(
    opened: OpenedDataPath, topic: str, wanted: DumpFilter, on_gap: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The messages of each topic in turn; *on_gap* is called with each loss. Raises DataPathRefused."""
    for name in opened.choose(topic):
        one = opened.topic(name)
        if wanted.channel and wanted.channel not in one.topic.channels:
            if topic:
                raise DataPathRefused(f"TOPIC({name}) has no channel {wanted.channel}")
        else:
            yield from _of_topic(one, wanted, on_gap)
        opened.release(name)


def _of_topic(
    one: OpenedTopic, wanted: DumpFilter, on_gap: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    store = one.store
    pending = one.pending_ranges()
    end = min(wanted.end, store.segments.end)
    first = max(wanted.start, store.segments.first_seq or 0)
    try:
        if wanted.from_ns:
            first = max(first, store.segments.seek(wanted.from_ns))
        for seq, stop, found in cursor.scan(store.segments, first, end):
            if isinstance(found, Block):
                yield from _of_block(one, found, seq, stop, wanted, pending)
            elif found.is_loss:
                on_gap(
                    f"TOPIC({one.topic.name}): up to {stop - seq} messages from sequence {seq} on are lost: "
                    f"{found.why.value}"
                )
    except CannotRead as error:
        raise DataPathRefused(f"TOPIC({one.topic.name}): cannot be read: {error}") from error


def _of_block(
    one: OpenedTopic, block: Block, start: int, stop: int, wanted: DumpFilter, pending: dict[str, Ranges]
) -> Iterator[dict[str, Any]]:
    of_block = {name: within(ranges, start, stop) for name, ranges in pending.items()}
    delivered = {name: who.attempts for name, who in one.backlogs().items() if who.attempts}
    asked: Ranges = of_block[wanted.channel] if wanted.channel else [(start, stop)]
    for first, last in asked:
        for seq in range(first, last):
            time_ns = block.timestamp_ns(seq)
            if wanted.from_ns <= time_ns < wanted.to_ns:
                yield _message(one, block, seq, time_ns, delivered, of_block if wanted.pending else None)


def _message(
    one: OpenedTopic,
    block: Block,
    seq: int,
    time_ns: int,
    delivered: dict[str, dict[int, int]],
    pending: dict[str, Ranges] | None,
) -> dict[str, Any]:
    frame = block.frames(seq, seq + 1)
    message: dict[str, Any] = {
        "topic": one.topic.name,
        "sequence": seq,
        "id": frame[ID_SPAN[0] : sum(ID_SPAN)].decode("ascii", "replace"),
        "timestamp": time_ns,
    }
    attempts = {name: counts[seq] for name, counts in delivered.items() if seq in counts}
    if attempts:
        message["attempts"] = attempts
    headers, body = headers_of.message(block, seq)
    if headers:
        message["headers"] = headers
    try:
        message["body"] = body.decode()
    except UnicodeDecodeError:
        message["body_base64"] = base64.b64encode(body).decode("ascii")
    if pending is not None:
        message["pending_on"] = [
            name for name, ranges in pending.items() if name != BACKLOG and _holds(ranges, seq)
        ]
        if _holds(pending[BACKLOG], seq):
            message["no_channel_yet"] = True
    return message


def _holds(ranges: Ranges, seq: int) -> bool:
    return bool(within(ranges, seq, seq + 1))
