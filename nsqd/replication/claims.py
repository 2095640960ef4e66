"""Which node delivers, takes over or drops a copy: rules 6 to 9 and 11 as functions of values. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nsqd.log.ranges import Ranges, merged, size_of, without

# A channel and its generation. An empty name stands for messages that no channel has yet.
ChannelKey: TypeAlias = tuple[str, int]
# Messages of a log, by topic and channel.
Pending: TypeAlias = dict[str, dict[ChannelKey, Ranges]]

NO_CHANNEL: Final[ChannelKey] = ("", 0)
# A replica waits so much longer for each replica before it in the owner's list.
STAGGER_NS: Final = 5_000_000_000


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """The right to deliver a log. Claims have a total order; the owner with the lower claim yields."""

    epoch: int
    is_origin: bool
    node: bytes
    copy: int


def subtract(pending: Mapping[str, Mapping[ChannelKey, Ranges]], others: Iterable[Pending]) -> Pending:
    """The *pending* messages without those that others have pending on the same channel."""
    others = list(others)
    left: Pending = {}
    for topic, channels in pending.items():
        for key, ranges in channels.items():
            covered = [part for other in others for part in other.get(topic, {}).get(key, ())]
            rest = without(ranges, merged(covered)) if covered else list(ranges)
            if rest:
                left.setdefault(topic, {})[key] = rest
    return left


def count(pending: Mapping[str, Mapping[ChannelKey, Ranges]]) -> int:
    """How many messages are pending; one that is pending on two channels counts twice."""
    return sum(size_of(ranges) for channels in pending.values() for ranges in channels.values())


def takeover_wait_ns(failover_ns: int, index: int) -> int:
    """How long a replica without a stream waits for an owner before it takes over (rule 8)."""
    return failover_ns + STAGGER_NS * index
