"""Changes to the cluster, made on every node that they concern."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from nsqadmin.changes.audit import DONE, outcome, unknown_in
from nsqadmin.collecting.answers import UnknownError, UpstreamError, warning
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.known import NODE_NOT_FOUND
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.fanout import ask_all
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.nsqd_api import NsqdApi

Target = TypeVar("Target", NsqdApi, LookupdApi)

# So long a node that is drained accepts publishes, while producers move to other nodes.
DRAIN_GRACE_MS: Final = 5000

# The answers of nodes that have nothing to change, the more exact one first.
_ABSENT: Final = (CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND)


class QueueAction(Enum):
    """What can be done to the queue of a topic or channel; values are the words of the API."""

    PAUSE = "pause"
    UNPAUSE = "unpause"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Done:
    """What an action achieved: how many nsqds and nsqlookupds did it, and who failed, stage by stage.

    ``silent`` are nsqds that hold the topic or channel and did not get the request. ``results`` gives the
    outcome for each node, in words. ``refusing`` are nsqds that answered with an error.
    """

    nsqds: int
    lookupds: int
    stages: tuple[tuple[NodeError, ...], ...]
    silent: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    refusing: tuple[str, ...] = ()
    # Why the audit lacks this change; it is added later.
    audit_problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether an nsqd did it, or none was concerned: nsqlookupd only registers what nsqds have."""
        return self.nsqds > 0 or not (self.refusing or self.silent or self.unknown)

    @property
    def unknown(self) -> list[str]:
        """The nodes that got the request, did not answer in time, and may still carry it out."""
        return unknown_in(dict(self.results))

    @property
    def errors(self) -> tuple[NodeError, ...]:
        return tuple(error for stage in self.stages for error in stage)

    @property
    def message(self) -> str:
        told = warning(self.stages)
        if not self.audit_problem:
            return told
        return f"{told}; {self.audit_problem}" if told else f"WARNING: {self.audit_problem}"


class Actions:
    """Creates, pauses, empties, deletes and tombstones across the cluster.

    Each step asks its nodes in parallel, and the next step begins when all have answered. nsqlookupds come
    first, so that no consumer is sent to an nsqd for something that is about to be deleted. An action that
    succeeded nowhere raises UpstreamError, or UnknownError if the nodes agree that its object does not exist.

    A node gets one change at a time, in order. After a change whose outcome is unknown it gets no other until
    :meth:`settled` is called for it.
    """

    def __init__(self, cluster: Cluster, unsettled: Sequence[str] = ()) -> None:
        self._cluster = cluster
        self.order = _Order(set(unsettled))

    def settled(self, node: str) -> None:
        """Send changes to *node* again: the outcome of its last one is established."""
        self.order.unsettled.discard(node)

    async def create_topic(self, topic: str) -> Done:
        steps = _Steps(self.order)
        if self._cluster.uses_lookupd:
            await steps.each(self._cluster.lookupds(), lambda lookupd: lookupd.create_topic(topic))
        else:
            await steps.each(self._cluster.nsqds(), lambda nsqd: nsqd.create_topic(topic))
        return steps.done(self._cluster.discovery.asks)

    async def create_channel(self, topic: str, channel: str) -> Done:
        """Create *channel*, and *topic* if needed, on the nsqlookupds and on all producers of the topic."""
        steps = _Steps(self.order)
        if not self._cluster.uses_lookupd:
            nsqds = self._cluster.nsqds()
            await steps.each(nsqds, lambda nsqd: nsqd.create_topic(topic))
            await steps.each(nsqds, lambda nsqd: nsqd.create_channel(topic, channel))
            return steps.done("nsqd")
        lookupds = self._cluster.lookupds()
        await steps.each(lookupds, lambda lookupd: lookupd.create_topic(topic))
        await steps.each(lookupds, lambda lookupd: lookupd.create_channel(topic, channel))
        # If every nsqlookupd fails, nobody can name the producers.
        steps.done("nsqlookupd")
        holders = await self._cluster.holders_of(topic)
        steps.stages.extend(holders.stages)
        await steps.each(holders.value, lambda nsqd: nsqd.create_channel(topic, channel))
        return steps.done("nsqlookupd")

    async def change_topic(self, topic: str, action: QueueAction) -> Done:
        calls: dict[QueueAction, Callable[[NsqdApi], Awaitable[None]]] = {
            QueueAction.PAUSE: lambda nsqd: nsqd.pause_topic(topic),
            QueueAction.UNPAUSE: lambda nsqd: nsqd.unpause_topic(topic),
            QueueAction.EMPTY: lambda nsqd: nsqd.empty_topic(topic),
        }
        steps, nsqds = await self._begin(topic)
        await steps.each(nsqds, calls[action])
        return steps.done("nsqd")

    async def change_channel(self, topic: str, channel: str, action: QueueAction) -> Done:
        calls: dict[QueueAction, Callable[[NsqdApi], Awaitable[None]]] = {
            QueueAction.PAUSE: lambda nsqd: nsqd.pause_channel(topic, channel),
            QueueAction.UNPAUSE: lambda nsqd: nsqd.unpause_channel(topic, channel),
            QueueAction.EMPTY: lambda nsqd: nsqd.empty_channel(topic, channel),
        }
        steps, nsqds = await self._begin(topic)
        await steps.each(nsqds, calls[action])
        return steps.done("nsqd")

    async def delete_topic(self, topic: str) -> Done:
        # The holders are looked up first: after the deletion no nsqlookupd knows them.
        steps, nsqds = await self._begin(topic)
        await steps.each(self._cluster.lookupds(), lambda lookupd: lookupd.delete_topic(topic))
        await steps.each(nsqds, lambda nsqd: nsqd.delete_topic(topic))
        return steps.done(self._cluster.discovery.asks)

    async def delete_channel(self, topic: str, channel: str) -> Done:
        steps, nsqds = await self._begin(topic)
        await steps.each(self._cluster.lookupds(), lambda lookupd: lookupd.delete_channel(topic, channel))
        await steps.each(nsqds, lambda nsqd: nsqd.delete_channel(topic, channel))
        return steps.done(self._cluster.discovery.asks)

    async def drain(self, node: str, *, cancel: bool) -> Done:
        """Make the nsqd at *node* refuse publishes after the grace time, or accept them again (*cancel*)."""
        if not self._cluster.is_there(node):
            raise UnknownError(NODE_NOT_FOUND)
        steps = _Steps(self.order)
        await steps.each(
            [self._cluster.nsqd(node)], lambda nsqd: nsqd.drain(cancel=cancel, grace_ms=DRAIN_GRACE_MS)
        )
        return steps.done("nsqd")

    async def tombstone(self, topic: str, node: str) -> Done:
        """Hide *topic* on the nsqd at *node* from consumers and delete it there, including its messages."""
        producers = await self._cluster.producers()
        # Only listed nodes are contacted: this request must not become a way to POST to any address.
        if all(producer.http_address != node for producer in producers.value):
            raise UnknownError(NODE_NOT_FOUND)
        steps = _Steps(self.order, stages=list(producers.stages))
        await steps.each(self._cluster.lookupds(), lambda lookupd: lookupd.tombstone(topic, node))
        await steps.each([self._cluster.nsqd(node)], lambda nsqd: nsqd.delete_topic(topic))
        failed = steps.stages[-1]
        if failed and failed[0].unreachable:
            raise UpstreamError("nsqd", failed)
        return steps.done("nsqd")

    async def _begin(self, topic: str) -> tuple["_Steps", list[NsqdApi]]:
        """Return the nsqds to tell about *topic*; those that cannot be told are noted in the steps."""
        holders = await self._cluster.holders_of(topic)
        silent = self._cluster.queues.silent_holders(topic)
        return _Steps(self.order, silent, list(holders.stages)), holders.value


class _Order:
    """Sends changes to each node one after the other, and none while the outcome of the last is unknown."""

    def __init__(self, unsettled: set[str]) -> None:
        self.unsettled = unsettled
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(self, target: Target, tell: Callable[[Target], Awaitable[None]]) -> None:
        lock = self._locks.setdefault(target.address, asyncio.Lock())
        async with lock:
            if target.address in self.unsettled:
                raise NodeError(
                    "POST",
                    f"http://{target.address}",
                    target.address,
                    "the outcome of an earlier change is unknown",
                )
            try:
                await tell(target)
            except NodeError as error:
                if error.may_happen and isinstance(target, NsqdApi):
                    self.unsettled.add(target.address)
                raise


class _Steps:
    """Counts what the nodes answered during one action."""

    def __init__(
        self, order: _Order, silent: Sequence[str] = (), stages: list[tuple[NodeError, ...]] | None = None
    ) -> None:
        self._order = order
        self.stages: list[tuple[NodeError, ...]] = stages if stages is not None else []
        self._silent = set(silent)
        self._refused: list[NodeError] = []
        self._refusing: set[str] = set()
        self._told: dict[str, str] = {}
        self._nsqds: set[str] = set()
        self._lookupds: set[str] = set()
        self._asked = 0

    async def each(self, targets: Sequence[Target], tell: Callable[[Target], Awaitable[None]]) -> None:
        told = await ask_all(targets, lambda target: self._order.send(target, tell))
        self.stages.append(told.errors)
        self._refused.extend(told.errors)
        self._asked += told.asked
        nsqds = {one.address for one in targets if isinstance(one, NsqdApi)}
        unreachable = {error.address for error in told.errors if error.unreachable}
        self._silent |= nsqds & unreachable
        self._refusing |= (
            nsqds & {one.address for one in told.errors if one.code not in _ABSENT} - unreachable
        )
        for target, _ in told.value:
            (self._nsqds if isinstance(target, NsqdApi) else self._lookupds).add(target.address)
            self._told.setdefault(target.address, DONE)
        for error in told.errors:
            self._told[error.address] = outcome(error)

    def done(self, kind: str) -> Done:
        if self._asked and len(self._refused) == self._asked:
            for code in _ABSENT:
                if any(error.code == code for error in self._refused) and not any(
                    error.unreachable for error in self._refused
                ):
                    raise UnknownError(code)
            raise UpstreamError(kind, self._refused)
        refused = {error.address for error in self._refused}
        return Done(
            len(self._nsqds - refused),
            len(self._lookupds - refused),
            tuple(self.stages),
            tuple(sorted(self._silent - self._nsqds - set(unknown_in(self._told)))),
            tuple(self._told.items()),
            tuple(sorted(self._refusing)),
        )
