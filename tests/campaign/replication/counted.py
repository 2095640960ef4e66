"""A replication node that counts its decisions: the ledger of the campaign."""

from collections import Counter
from typing import Final
from weakref import WeakSet

from nsqd.replication.jobs import Jobs
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import LogState
from nsqd.replication.log_stream import LogStream, StreamState
from nsqd.replication.node import ReplicationNode
from nsqd.replication.node_state import NodeState

# How often 1,000 histories of all profiles have to see each event.
MIN_PER_1000: Final[dict[str, int]] = {
    "failover": 250,
    "transfer": 120,
    "promotion of a tail": 45,
    "raised epoch": 200,
    "second with a yield": 10000,
    "suspension noticed": 170,
    "owner dropped, finished": 280,
    "owner dropped, messages elsewhere": 90,
    "replica dropped, finished": 800,
    "replica dropped, messages elsewhere": 300,
    "stream resumed": 1800,
    "new copy because of a conflict": 40,
    "decommissioned": 70,
    "killed at a call": 100,
    "power cut": 130,
    "lost disk": 150,
    "copy": 35,
    "half_open": 250,
    "rotate": 150,
    "stranger": 130,
    "version": 50,
    "full": 90,
    "slow": 90,
    "jump": 60,
    "lie": 100,
    "restart of all": 80,
}


class CountedJobs(Jobs):
    """Jobs that are counted."""

    events: Counter[str]

    def promote(self, log: LogState, copy: LocalCopy, epoch: int, *, failover: bool) -> None:
        transfer = bool(copy.take_over_epoch)
        self.events["failover" if failover else "transfer" if transfer else "promotion of a tail"] += 1
        super().promote(log, copy, epoch, failover=failover)

    def raise_epoch(self, log: LogState, copy: LocalCopy, epoch: int) -> None:
        self.events["raised epoch"] += 1
        super().raise_epoch(log, copy, epoch)

    def drop(self, log: LogState, copy: LocalCopy) -> None:
        if not copy.is_origin:
            kind = "owner" if copy.is_owner else "replica"
            pending = log.pending(copy)
            self.events[f"{kind} dropped, {'messages elsewhere' if pending else 'finished'}"] += 1
        super().drop(log, copy)


class CountedNode(ReplicationNode):
    """See the module."""

    def __init__(self, state: NodeState, events: Counter[str]) -> None:
        jobs = CountedJobs(state)
        super().__init__(state, jobs)
        self.events = jobs.events = events
        self.began: WeakSet[LogStream] = WeakSet()

    def stream_began(self, link: PeerLink) -> None:
        for stream in link.streams.values():
            if stream.state is StreamState.STREAMING and stream not in self.began:
                self.began.add(stream)
                self.events[_kind_of(stream)] += 1
        super().stream_began(link)

    def _ask_again(self, now_ns: int) -> None:
        self.events["suspension noticed"] += 1
        super()._ask_again(now_ns)

    def tick(self, now_ns: int) -> None:
        super().tick(now_ns)
        if self.yielded():
            self.events["second with a yield"] += 1


def _kind_of(stream: LogStream) -> str:
    if stream.resumed:
        return "stream resumed"
    has_copy = any(one.has_reported_files for one in stream._numbers.values())
    return "new copy because of a conflict" if has_copy else "new copy"


def shortfalls(events: Counter[str], histories: int) -> list[str]:
    """The events that were seen too rarely in so many histories, equally many of each profile."""
    return [
        f"{name}: {events[name]} times, at least {least * histories // 1000} are wanted"
        for name, least in MIN_PER_1000.items()
        if events[name] < least * histories // 1000
    ]
