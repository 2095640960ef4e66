"""The output of nsq_stat: statistics of each nsqd, their sum, rates between two rounds, columns."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Final, TypeAlias

from nsqcore.cluster.models import ChannelStats

HEAD: Final = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of one channel on one nsqd, or their sum over all nsqd."""

    depth: int = 0
    backend_depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    requeued: int = 0
    timed_out: int = 0
    messages: int = 0
    clients: int = 0

    @classmethod
    def of(cls, channel: ChannelStats) -> "Statistics":
        return cls(
            depth=channel.depth,
            backend_depth=channel.backend_depth,
            in_flight=channel.in_flight_count,
            deferred=channel.deferred_count,
            requeued=channel.requeue_count,
            timed_out=channel.timeout_count,
            messages=channel.message_count,
            clients=channel.client_count,
        )


Snapshot: TypeAlias = Mapping[str, Statistics]
"""The statistics by the address of their nsqd."""


def total(snapshot: Snapshot) -> Statistics:
    columns = zip(*(astuple(one) for one in snapshot.values()), strict=True)
    return Statistics(*(sum(column) for column in columns))


def rates(before: Snapshot, now: Snapshot, seconds: float) -> tuple[int, int]:
    """Return messages in and out per second between two rounds that are *seconds* apart.

    Only nsqd that answered in both rounds count: an nsqd that is back after a missed round would look like a
    burst. An nsqd whose counter fell does not count either: it was restarted, and the first value of its
    counter is unknown.
    """
    came = went = 0
    for address in before.keys() & now.keys():
        old, new = before[address], now[address]
        if new.messages < old.messages:
            continue
        published = new.messages - old.messages
        came += published
        went += published - (new.depth - old.depth)
    return round(came / seconds), round(went / seconds)


def line(one: Statistics, ingress: int, egress: int) -> str:
    return (
        f"{ingress:7d} {egress:7d} | "
        f"{one.depth:7d} {one.depth - one.backend_depth:7d} {one.backend_depth:7d} "
        f"{one.in_flight:5d} {one.deferred:5d} | "
        f"{one.requeued:7d} {one.timed_out:7d} {one.messages:12d} {one.clients:7d}\n"
    )
