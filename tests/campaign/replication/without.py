"""The rules, syncs and notes of replication, each of which can be left out: the campaign has to notice.

A part is left out by replacing a function of the product while histories run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from nsqd.engine import finished_ranges
from nsqd.engine.topic import Topic
from nsqd.log.ranges import merged, without
from nsqd.replication import dropping, exchange, jobs, log_state, node, rules, yielding
from nsqd.replication.claims import Claim
from nsqd.replication.exchange import Checkpointing, Exchange
from nsqd.replication.jobs import Jobs
from nsqd.replication.log_state import LogState, PeerCopy
from nsqd.replication.log_stream import LogStream
from nsqd.replication.node import ReplicationNode
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary, Replicated
from nsqd.replication.topic_stream import TopicStream
from tests.campaign.replication import node as simulated_node
from tests.campaign.replication.node import SimulatedNode
from tests.support.simulated_disk import SimulatedDisk

# An owner, the name of an attribute, and what makes its replacement of the original.
Patch = tuple[Any, str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Part:
    """A part of replication, and how it is left out. That shows in a stage or profile, *history*."""

    rule: int
    text: str
    history: str
    patches: tuple[Patch, ...]


def _returns(value: Any) -> Callable[[Any], Any]:
    return lambda _original: lambda *_args, **_more: value


def _begin_in_sync(original: Any) -> Any:
    def begin(self: LogStream, stream: TopicStream) -> None:
        original(self, stream)
        self._set_in_sync(stream)

    return begin


def _merge_absent(original: Any) -> Any:
    def merge(broker: Any, topic: Topic, state: Any) -> bool:
        finished = (
            without(finished_ranges.stored_ranges(topic), merged(list(state.pending)))
            if state.channel
            else []
        )
        return original(broker, topic, replace(state, finished=tuple(merged([*state.finished, *finished]))))

    return merge


def _merge_any_generation(original: Any) -> Any:
    def merge(broker: Any, topic: Topic, state: Any) -> bool:
        channel = topic.channels.get(state.channel)
        if channel is not None:
            state = replace(state, generation=channel.generation)
        return original(broker, topic, state)

    return merge


def _no_deletions(original: Any) -> Any:
    def states(*args: Any) -> Iterator[Any]:
        return (state for state in original(*args) if state.live)

    return states


def _no_new_channels(original: Any) -> Any:
    def merge(broker: Any, topic: Topic, state: Any) -> bool:
        if state.channel and state.live and state.channel not in topic.channels:
            return False
        return original(broker, topic, state)

    return merge


def _yields_on_any_channel(original: Any) -> Any:
    def set_yielded(log: LogState, copy: Any, others: Any) -> None:
        spread = []
        for other in others:
            found: Any = {}
            for topic, channels in log.pending(copy).items():
                ranges = merged([part for one in other.get(topic, {}).values() for part in one])
                found[topic] = dict.fromkeys(channels, ranges)
            spread.append(found)
        original(log, copy, spread)

    return set_yielded


def _only_failovers(original: Any) -> Any:
    def promote(self: Any, log: Any, copy: Any, epoch: int, *, failover: bool) -> None:
        if failover or copy.take_over_epoch:
            original(self, log, copy, epoch, failover=failover)

    return promote


def _next_epoch(original: Any) -> Any:
    def promote(self: Any, log: Any, copy: Any, epoch: int, *, failover: bool) -> None:
        if not (failover or copy.take_over_epoch):
            epoch = max(epoch, copy.seen) + 1
        original(self, log, copy, epoch, failover=failover)

    return promote


def _said(**values: Any) -> Callable[[Any], Any]:
    def change(original: Any) -> Any:
        def take(self: PeerCopy, status: Any, states: Any, now_ns: int) -> None:
            original(self, replace(status, **values), states, now_ns)

        return take

    return change


def _without_sync(path: str) -> tuple[Patch, ...]:
    """Files and folders with this text in their paths are never synced by what follows."""

    def unsynced(original: Any) -> Any:
        def sync(self: SimulatedDisk, target: Any) -> None:
            name = self._entry(target).path if isinstance(target, int) else str(target)
            if path not in name:
                original(self, target)

        return sync

    return (SimulatedDisk, "sync", unsynced), (SimulatedDisk, "sync_folder", unsynced)


def _patches(*patches: Patch) -> tuple[Patch, ...]:
    return patches


PARTS: Final[dict[str, Part]] = {
    "acknowledgements": Part(
        1, "OK waits for the replicas in sync", "lost owner", _patches((Primary, "wait", _returns(None)))
    ),
    "snapshot": Part(
        2,
        "in sync counts from the snapshot",
        "snapshot",
        _patches((LogStream, "_begin", _begin_in_sync)),
    ),
    "positive state": Part(
        3,
        "nothing is concluded from 'not pending'",
        "raised epoch",
        _patches((log_state, "merge", _merge_absent)),
    ),
    "generation": Part(
        3,
        "state counts for one generation",
        "generation",
        _patches((log_state, "merge", _merge_any_generation)),
    ),
    "deletions": Part(
        3,
        "a deletion is channel state",
        "deletion",
        _patches((log_state, "states_of", _no_deletions), (exchange, "states_of", _no_deletions)),
    ),
    "new channels": Part(
        4,
        "a topic without channels creates those that it hears of",
        "first channel",
        _patches((log_state, "merge", _no_new_channels)),
    ),
    "conflicts": Part(
        5,
        "no stream enters a copy with pending messages that its owner lacks",
        "lost tail",
        _patches((jobs, "may_resume", _returns(True)), (TopicStream, "conflicts", _returns(False))),
    ),
    "order": Part(
        6,
        "claims are ordered",
        "starving channel",
        _patches((Claim, "__gt__", lambda _: lambda self, other: self != other)),
    ),
    "yield": Part(
        7,
        "the lower claim yields",
        "raised epoch",
        _patches((yielding, "_set_yielded", _returns(None))),
    ),
    "channel": Part(
        7,
        "it yields on the same channel and generation only",
        "starving channel",
        _patches((yielding, "_set_yielded", _yields_on_any_channel)),
    ),
    "failover timeout": Part(
        7,
        "a silent owner counts for T only",
        "lost owner",
        _patches((LogState, "is_fresh", _returns(True))),
    ),
    "wait": Part(
        8,
        "a replica waits T",
        "restarted nodes",
        _patches((rules, "takeover_wait_ns", _returns(0))),
    ),
    "raise": Part(
        8,
        "an owner raises its epoch over a silent higher one",
        "raised epoch",
        _patches((rules, "_raise_epoch", _returns(None)), (yielding, "_is_stale", _returns(False))),
    ),
    "tail": Part(
        9,
        "a replica with messages that its owner lacks is promoted",
        "lost tail",
        _patches((Jobs, "promote", _only_failovers)),
    ),
    "same epoch": Part(9, "under the same epoch", "lost tail", _patches((Jobs, "promote", _next_epoch))),
    "ask": Part(
        10,
        "an owner that starts or takes over asks first",
        "returned origin",
        _patches((yielding, "await_statuses", _returns(None)), (node, "await_statuses", _returns(None))),
    ),
    "suspended": Part(
        10,
        "one that was suspended asks first",
        "suspended origin",
        _patches((ReplicationNode, "_ask_again", _returns(None))),
    ),
    "fully replicated": Part(
        11,
        "a copy is dropped for a fully replicated owner",
        "replica without room",
        _patches((PeerCopy, "take", _said(fully_replicated=True))),
    ),
    "synced": Part(
        11,
        "fully replicated means synced",
        "replica that is not needed",
        _patches((Replicated, "look", lambda _: _done), (SimulatedNode, "sync", _returns(None))),
    ),
    "state there": Part(
        11,
        "the owner has this copy's channel state",
        "state of a returned origin",
        _patches((Exchange, "has_state_of", _returns(True))),
    ),
    "checkpointed": Part(
        11,
        "in a checkpoint",
        "state of a returned origin",
        _patches((Checkpointing, "is_done", lambda _: property(lambda _self: True))),
    ),
    "state kept": Part(
        12,
        "channel state outlives the messages",
        "returned origin",
        _patches((dropping, "_has_state", _returns(True))),
    ),
    "holders": Part(
        12,
        "status and stream carry the holders",
        "holder of a copied data path",
        _patches((NodeState, "learn_holders", _returns(None))),
    ),
    "in flight": Part(
        13,
        "a transfer waits for messages in flight",
        "consumers during a transfer",
        _patches((yielding, "in_flight", _returns(False))),
    ),
    "suspension of delivery": Part(
        13,
        "and suspends delivery",
        "consumers during a transfer",
        _patches((yielding, "suspend", _returns(None))),
    ),
    "copied data path": Part(
        0,
        "topics of a copied data path become a promoted copy",
        "copied data path",
        _patches((simulated_node, "promote_copied_log", _returns(0))),
    ),
    "sync of owned/": Part(
        0, "renames and records of promoted copies are synced", "new owner", _without_sync("/owned")
    ),
    "sync of copies": Part(0, "files of replicas are synced", "strict replica", _without_sync("/replicas")),
    "sync of replication.json": Part(
        0, "the node record is synced", "power", _without_sync("replication.json")
    ),
}


def _done(self: Replicated) -> bool:
    self.is_done = True
    return True


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """Run without one part; with an empty name nothing is left out."""
    saved = []
    for owner, attribute, change in PARTS[name].patches if name else ():
        # A method is replaced in the class that defines it.
        for one in getattr(owner, "__mro__", ()):
            if attribute in vars(one):
                owner = one
                break
        original = vars(owner)[attribute]
        saved.append((owner, attribute, original))
        setattr(owner, attribute, change(original))
    try:
        yield
    finally:
        for owner, attribute, original in saved:
            setattr(owner, attribute, original)
