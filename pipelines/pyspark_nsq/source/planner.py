"""Decides which messages the next batch has, and how it is cut into partitions. Pure.

The offset alone determines what a batch reads, so a batch that is repeated after a failure has the same
messages in the same partitions. Therefore a new log is not read in the batch that finds it: that batch only
records where the next one starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapreplace
from typing import Final

from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.errors import DataLossError
from pyspark_nsq.source.offsets import Offset, Offsets, nsqd_of, topic_of

# A smaller part is not worth a task of its own, unless more partitions are requested.
WORTH_A_TASK_BYTES: Final = 4 << 20
# Cores have about the same work if none has more than this beyond its share; to reach that, a batch is cut
# into at most so many partitions for each core.
_EVEN: Final = 1.1
_MAX_TURNS: Final = 4


@dataclass(frozen=True, slots=True)
class LogRange:
    """The messages ``start <= sequence < end`` of one log."""

    producer: str
    """The name of the log."""
    start: int
    end: int
    ahead: int = 0
    """Nothing below this position was pending when the query began: such messages may be finished."""
    address: str = ""
    """Where the log is now, if that is not in its name."""
    data_path: str = ""
    count: int | None = None
    """How many messages there were when the range was planned."""
    from_log_start: bool = False
    """The range begins where the log begins when it is read: messages below that position are no loss."""

    @property
    def topic(self) -> str:
        return topic_of(self.producer)

    @property
    def nsqd(self) -> str:
        """The address that rows have in the column nsqd; it stays the same when the nsqd moves."""
        return nsqd_of(self.producer)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits for a batch and its partitions."""

    rows: int | None = None
    size: int | None = None
    """In bytes; how large messages are is known as an average of each log."""
    partitions: int | None = None
    """At least so many; None: as many as there are cores, if that is worth it."""
    partition_rows: int | None = None
    """At most so many messages in a partition."""
    cores: int = 1
    turn: int = 0
    """The number of the batch: logs whose messages do not fit into one batch take turns."""


def next_positions(
    start: Offsets,
    bounds: Mapping[str, Bounds],
    limits: BatchLimits,
    sizes: Mapping[str, float],
    *,
    fail_on_data_loss: bool,
) -> Offsets:
    """Return where the batch that begins at *start* ends; *sizes* are average bytes of each log's messages.

    A log without bounds stays where it is. Raises DataLossError if *fail_on_data_loss* is set.
    """
    end = dict(start)
    available: dict[str, int] = {}
    for name, position in start.items():
        log = bounds.get(name)
        if log is None:
            continue
        if fail_on_data_loss:
            check_available(name, position, log)
        if position > log.end:
            # The log was replaced. As with a new log, the next batch starts to read it.
            end[name] = log.first
        else:
            available[name] = log.count(position)
    messages = share(available, limits.rows)
    if limits.size is not None:
        messages = within_size(messages, limits.size, sizes, limits.turn)
    for name, count in messages.items():
        end[name] = bounds[name].advance(start[name], count)
    return end


def check_available(name: str, position: int, log: Bounds) -> None:
    """Raise DataLossError if messages from *position* on no longer exist."""
    if lost := loss_reason(position, log):
        raise DataLossError(
            f"the query has read nsqd {nsqd_of(name)} up to {position}, but the log there {lost} "
            f"(failOnDataLoss=false continues with what there is)"
        )


def loss_reason(position: int, log: Bounds) -> str | None:
    """Explain why messages of a log from *position* on no longer exist; None if they exist.

    nsqd never reports unused numbers as removed: below ``first`` there was a message.
    """
    if position > log.end:
        return f"ends at {log.end}: its topic or its data was replaced"
    if position < log.first:
        return f"is kept from {log.first} on only: what lies between is gone"
    return None


def check_not_skipped(name: str, position: int, log: Bounds, channel: str, ahead: int = 0) -> None:
    """Raise DataLossError if messages are no longer pending on the channel that the query has yet to read.

    nsqd may remove such messages at any moment, and the query would miss them without noticing. The channel
    may be ahead of the query up to the position *ahead*.
    """
    stands = log.acknowledged.get(channel)
    if stands is None or stands <= ahead:
        return
    skipped = log.count(position) - log.count(stands)
    if skipped > 0:
        raise DataLossError(
            f"the query has read nsqd {nsqd_of(name)} up to {position}, but channel {channel!r} there stands "
            f"at {stands}: another query or a consumer uses the channel, or an operator emptied it "
            f"or made it again; {skipped} messages may be missing "
            "(failOnDataLoss=false continues with what there is)"
        )


def share(available: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Return how many messages each log contributes: equal shares; what one log lacks, others fill."""
    if limit is None or sum(available.values()) <= limit:
        return dict(available)
    shares: dict[str, int] = {}
    # Begin with the log that has the fewest messages: the others share the remainder.
    waiting = sorted(available, key=lambda name: (available[name], name))
    for index, name in enumerate(waiting):
        shares[name] = min(available[name], limit // (len(waiting) - index))
        limit -= shares[name]
    return shares


def within_size(
    messages: Mapping[str, int], size: int, sizes: Mapping[str, float], turn: int = 0
) -> dict[str, int]:
    """Reduce *messages* to *size* bytes. Only a message that is larger is read nevertheless, and alone.

    Where the first messages of all logs are too large for one batch, *turn* chooses the log that begins, so
    that each log advances.
    """
    weights = {name: max(1.0, sizes.get(name, 1)) for name in messages}
    allowed = dict.fromkeys(messages, 0)
    left = float(size)
    waiting = sorted(name for name, count in messages.items() if count)
    at = turn % max(1, len(waiting))
    waiting = [*waiting[at:], *waiting[:at]]
    for name in waiting:
        if name == waiting[0] or weights[name] <= left:
            allowed[name] = 1
            left -= weights[name]
    unread = {name: round((messages[name] - allowed[name]) * weights[name]) for name in waiting}
    shares = share(unread, max(0, int(left)))
    for name in waiting:
        allowed[name] = min(messages[name], allowed[name] + int(shares[name] / weights[name]))
    # The remainder of a share is less than a message; together the remainders may be enough for some.
    left = size - sum(allowed[name] * weights[name] for name in waiting)
    for name in waiting:
        more = min(messages[name] - allowed[name], int(max(0.0, left) / weights[name]))
        allowed[name] += more
        left -= more * weights[name]
    return allowed


def split(
    start: Offsets,
    end: Offsets,
    bounds: Mapping[str, Bounds],
    limits: BatchLimits,
    sizes: Mapping[str, float],
) -> dict[str, list[int]]:
    """Return where each partition of a batch begins; all have about the same bytes, cut between messages."""
    messages = {
        name: bounds[name].count(start[name], position)
        for name, position in end.items()
        if name in start and name in bounds and start[name] < position
    }
    weights = {name: count * max(1, sizes.get(name, 1)) for name, count in messages.items()}
    pieces = _pieces(messages, weights, limits)
    if limits.partition_rows is not None:
        most = limits.partition_rows
        pieces = {name: max(count, -(-messages[name] // most)) for name, count in pieces.items()}
    cuts: dict[str, list[int]] = {}
    for name, count in messages.items():
        log = bounds[name]
        cuts[name] = [start[name]] + [
            log.advance(start[name], count * piece // pieces[name]) for piece in range(1, pieces[name])
        ]
    return cuts


def _pieces(messages: Mapping[str, int], weights: Mapping[str, float], limits: BatchLimits) -> dict[str, int]:
    """Return into how many partitions each log is cut.

    Without a requested number there are as many as cores, or more if the cores would otherwise have uneven
    work: with three partitions on two cores, one core has two of them.
    """
    if limits.partitions is not None:
        return _distribute(messages, weights, limits.partitions)
    most = max(1, int(sum(weights.values()) / WORTH_A_TASK_BYTES))
    wanted = min(limits.cores, most)
    best, least = _distribute(messages, weights, wanted), 0.0
    for times in range(1, _MAX_TURNS + 1):
        pieces = _distribute(messages, weights, times * wanted)
        if times > 1 and sum(pieces.values()) > most:
            break
        longest = _longest(pieces, weights, limits.cores)
        if times == 1 or longest < least:
            best, least = pieces, longest
        if least <= _EVEN * sum(weights.values()) / limits.cores:
            break
    return best


def _distribute(messages: Mapping[str, int], weights: Mapping[str, float], wanted: int) -> dict[str, int]:
    """Distribute the *wanted* parts over the logs by weight."""
    total = sum(weights.values())
    return {
        # Rounded up, so that all logs together have at least the requested number of parts.
        name: min(count, max(1, -int(-wanted * weights[name] // total))) if count else 1
        for name, count in messages.items()
    }


def _longest(pieces: Mapping[str, int], weights: Mapping[str, float], cores: int) -> float:
    """Return the work of the busiest core, if each core takes the next partition when it is free."""
    busy = [0.0] * cores
    for name in sorted(pieces):
        for _ in range(pieces[name]):
            heapreplace(busy, busy[0] + weights[name] / pieces[name])
    return max(busy)


def counts(cuts: Mapping[str, list[int]], end: Offsets, bounds: Mapping[str, Bounds]) -> dict[str, list[int]]:
    """Return how many messages each partition has."""
    return {
        name: [
            bounds[name].count(first, stop)
            for first, stop in zip(begins, [*begins[1:], end[name]], strict=True)
        ]
        for name, begins in cuts.items()
    }


def plan_ranges(start: Offset, end: Offset, addresses: Mapping[str, str] | None = None) -> list[LogRange]:
    """Return the ranges of the batch that ends at *end*; *addresses* are where logs are now.

    When the first batch of a query is repeated, its start may have changed, so the cuts in *end* count.
    Offsets of versions without cuts lack them; then *start* counts.
    """
    if start == end:
        return []
    uncut = {
        name: [first]
        for name, first in start.positions.items()
        if name not in end.cuts and first < end.positions.get(name, 0)
    }
    ranges: list[LogRange] = []
    for name, begins in sorted({**uncut, **end.cuts}.items()):
        known: list[int | None] = [*end.counts.get(name, ())]
        ranges += [
            LogRange(
                name,
                first,
                stop,
                end.ahead.get(name, 0),
                (addresses or {}).get(name) or end.address(name),
                end.data_paths.get(name, ""),
                count,
            )
            for first, stop, count in zip(
                begins, [*begins[1:], end.positions[name]], known or [None] * len(begins), strict=True
            )
            if first < stop
        ]
    return ranges
