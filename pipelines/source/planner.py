"""Which messages the next batch consists of, and how it is cut into partitions. Pure.

What a batch reads follows from its two offsets alone, so a batch that is repeated after a failure has the
same messages. A new producer is therefore not read in the batch that finds it: that batch only notes where
the next one starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.source.bounds import Bounds
from pipelines.source.errors import DataLossError
from pipelines.source.offsets import Offsets, ordered


@dataclass(frozen=True, slots=True)
class LogRange:
    """The messages ``start <= sequence < end`` of one producer."""

    producer: str
    start: int
    end: int
    ahead: int = 0
    """The channel owed nothing below this position when the query began: such messages may be finished."""


def next_offsets(
    start: Offsets,
    bounds: Mapping[str, Bounds],
    limit: int | None,
    *,
    fail_on_data_loss: bool,
    channel: str = "",
    ahead: Mapping[str, int] | None = None,
) -> Offsets:
    """Where the batch ends that begins at *start* and has at most *limit* messages.

    A producer without bounds stays where it is. *channel* is the channel of the query; it may be ahead of the
    query up to the positions in *ahead*.
    """
    end = dict(start)
    available: dict[str, int] = {}
    for producer, position in start.items():
        log = bounds.get(producer)
        if log is None:
            continue
        if fail_on_data_loss:
            check_kept(producer, position, log)
            check_not_skipped(producer, position, log, channel, (ahead or {}).get(producer, 0))
        if position > log.end:
            # The log was replaced. As with a new producer, the next batch starts to read it.
            end[producer] = log.first
        else:
            available[producer] = log.count(position)
    for producer, messages in share(available, limit).items():
        end[producer] = bounds[producer].advance(start[producer], messages)
    return ordered(end)


def check_kept(producer: str, position: int, log: Bounds) -> None:
    """Raise DataLossError when messages from *position* on are gone."""
    if position > log.end:
        lost = f"ends at {log.end}: its topic or its data was replaced"
    elif position < log.first:
        lost = f"is kept from {log.first} on only: what lies between is gone"
    else:
        return
    raise DataLossError(
        f"the query has read nsqd {producer} up to {position}, but the log there {lost} "
        f"(failOnDataLoss=false goes on with what there is)"
    )


def check_not_skipped(producer: str, position: int, log: Bounds, channel: str, ahead: int = 0) -> None:
    """Raise DataLossError when the channel no longer owes messages that the query has yet to read.

    nsqd may remove such messages at any moment, and the query would miss them without noticing. The channel
    may be ahead of the query up to the position *ahead*.
    """
    stands = log.acknowledged.get(channel)
    if stands is None or stands <= ahead:
        return
    skipped = log.count(position) - log.count(stands)
    if skipped > 0:
        raise DataLossError(
            f"the query has read nsqd {producer} up to {position}, but channel {channel!r} there stands at "
            f"{stands}: somebody else emptied or read it, {skipped} messages may be missing "
            f"(failOnDataLoss=false goes on with what there is)"
        )


def share(available: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many messages each producer contributes: equal shares, and what one lacks comes from the others."""
    if limit is None or sum(available.values()) <= limit:
        return dict(available)
    shares: dict[str, int] = {}
    # Begin with the producer that has the fewest messages: what it leaves over is shared by the others.
    waiting = sorted(available, key=lambda producer: (available[producer], producer))
    for index, producer in enumerate(waiting):
        shares[producer] = min(available[producer], limit // (len(waiting) - index))
        limit -= shares[producer]
    return shares


def plan_ranges(
    start: Offsets, end: Offsets, min_partitions: int, ahead: Mapping[str, int] | None = None
) -> list[LogRange]:
    """Cut what lies between two offsets into ranges, at least *min_partitions* if there is enough to read."""
    ahead = ahead or {}
    whole = [
        LogRange(producer, start[producer], position)
        for producer, position in ordered(end).items()
        if producer in start and start[producer] < position
    ]
    total = sum(part.end - part.start for part in whole)
    ranges: list[LogRange] = []
    for part in whole:
        size = part.end - part.start
        # Rounded up, so that all producers together have at least as many pieces as asked for.
        pieces = min(size, max(1, -(-min_partitions * size // total)))
        cuts = [part.start + size * piece // pieces for piece in range(pieces + 1)]
        ranges += [
            LogRange(part.producer, cuts[i], cuts[i + 1], ahead.get(part.producer, 0)) for i in range(pieces)
        ]
    return ranges
