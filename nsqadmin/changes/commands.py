"""Carries out changes to the cluster on every node that they affect."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from nsqadmin.changes.audit import DONE, outcome, unknown_in
from nsqadmin.changes.policies import OnNode, PolicyChange
from nsqadmin.collecting.answers import NODE_NOT_FOUND, UnknownError, UpstreamError, warning
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.messages import MessageReader, MessageSearch
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.fanout import call_all
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqcore.cluster.nsqd_messages import NsqdMessages

Node = TypeVar("Node", NsqdApi, LookupdApi, NsqdMessages)
T = TypeVar("T")

# So long a node that is drained accepts publishes, while producers move to other nodes.
DRAIN_GRACE_MS: Final = 5000
# The errors of nodes that have nothing to change, the more exact one first.
_ABSENT: Final = (CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND)
# One request handles a limited number of messages; so many requests are made before the caller asks again.
_ROUNDS: Final = 20
_LETTERS: Final = 1000


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action: how many nsqds and nsqlookupds did it, and which failed, by stage.

    ``silent`` are nsqds that hold the topic or channel and did not get the request. ``results`` gives the
    outcome for each node, in words. ``refusing`` are nsqds that answered with an error. ``counts`` are the
    messages that each node handled, or would in a dry run, of ``found``; ``left`` counts dead letters that
    could not be sent, by reason; ``unfinished`` says that there are more.
    """

    nsqds: int = 0
    lookupds: int = 0
    stages: tuple[tuple[NodeError, ...], ...] = ()
    silent: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    refusing: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    found: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    unfinished: bool = False
    # Why the audit lacks this change; it is added later.
    audit_problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether an nsqd did it, or none was affected: nsqlookupd only registers the topics of nsqds."""
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
        text = warning(self.stages)
        if not self.audit_problem:
            return text
        return f"{text}; {self.audit_problem}" if text else f"WARNING: {self.audit_problem}"

    @property
    def total(self) -> int:
        """The messages that were handled on all nodes."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected messages: one by its node and id, or all results of a search."""

    search: MessageSearch
    message_id: str = ""
    defer_ms: int = 0

    def asked(self, place: str) -> dict[str, str]:
        search = self.search
        if self.message_id:
            return {"topic": search.topic, "channel": search.channel, "id": self.message_id}
        filters = {"state": search.state, "contains": search.contains, "json": search.json}
        return {"topic": search.topic, "channel": search.channel, "from": place or search.start, **filters}


@dataclass(slots=True)
class _Share:
    """The part of the work on messages that one node did."""

    count: int = 0
    found: int = 0
    left: Counter[str] = field(default_factory=Counter)
    unfinished: bool = False
    # Why it stopped half-way.
    error: NodeError | None = None


class Commands:
    """Sends changes to the nodes that they affect.

    Each step asks its nodes in parallel, and the next step begins when all have answered. nsqlookupds come
    first, so that no consumer is sent to an nsqd for something that is about to be deleted. A change that
    succeeded nowhere raises UpstreamError, or UnknownError if the nodes agree that its object does not exist.

    A node gets one change at a time, in order. After a change whose outcome is unknown it gets no other until
    :meth:`settled` is called for it.
    """

    def __init__(self, cluster: Cluster, unsettled: Iterable[str] = ()) -> None:
        self.cluster = cluster
        self.reader = MessageReader(cluster)
        self._unsettled = set(unsettled)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def resume(self, node: str) -> None:
        """Send changes to *node* again: the outcome of its last one is established."""
        self._unsettled.discard(node)

    async def send(self, node: Node, command: Callable[[Node], Awaitable[T]]) -> T:
        """Send one change to *node*, after those that were sent before."""
        async with self._locks.setdefault(node.address, asyncio.Lock()):
            if node.address in self._unsettled:
                reason = "the outcome of an earlier change is unknown"
                raise NodeError("POST", f"http://{node.address}", node.address, reason)
            try:
                return await command(node)
            except NodeError as error:
                if error.may_happen and not isinstance(node, LookupdApi):
                    self._unsettled.add(node.address)
                raise

    # -- topics and channels ------------------------------------------------------------

    async def create(self, topic: str, channel: str = "") -> ActionResult:
        """Create a topic, and *channel* if named, on the nsqlookupds and on all producers of the topic."""
        steps, cluster = _Steps(self.send), self.cluster
        if not cluster.membership.uses_lookupd:
            await steps.each(cluster.nsqds(), lambda nsqd: nsqd.create_topic(topic))
            if channel:
                await steps.each(cluster.nsqds(), lambda nsqd: nsqd.create_channel(topic, channel))
            return steps.done("nsqd")
        lookupds = cluster.lookupds()
        await steps.each(lookupds, lambda lookupd: lookupd.create_topic(topic))
        if channel:
            await steps.each(lookupds, lambda lookupd: lookupd.create_channel(topic, channel))
            # If every nsqlookupd fails, the producers are unknown.
            steps.done("nsqlookupd")
            holders = await cluster.holders_of(topic)
            steps.stages.extend(holders.stages)
            await steps.each(holders.value, lambda nsqd: nsqd.create_channel(topic, channel))
        return steps.done("nsqlookupd")

    async def on_holders(self, topic: str, command: Callable[[NsqdApi], Awaitable[None]]) -> ActionResult:
        """Send a change of *topic* to the nsqds that hold it."""
        steps, nsqds = await self._begin(topic)
        await steps.each(nsqds, command)
        return steps.done("nsqd")

    async def delete(self, topic: str, channel: str = "") -> ActionResult:
        """Delete *topic*, or its *channel*, on every nsqlookupd and nsqd."""
        # The holders are looked up first: after the deletion no nsqlookupd knows them.
        steps, nsqds = await self._begin(topic)

        def command(node: LookupdApi | NsqdApi) -> Awaitable[None]:
            return node.delete_channel(topic, channel) if channel else node.delete_topic(topic)

        await steps.each(self.cluster.lookupds(), command)
        await steps.each(nsqds, command)
        return steps.done(self.cluster.membership.discovery.kind)

    async def tombstone(self, topic: str, node: str) -> ActionResult:
        """Hide *topic* on the nsqd at *node* from consumers and delete it there, including its messages."""
        producers = await self.cluster.producers()
        # Only listed nodes are contacted: this request must not become a way to POST to any address.
        if all(producer.http_address != node for producer in producers.value):
            raise UnknownError(NODE_NOT_FOUND)
        steps = _Steps(self.send, stages=list(producers.stages))
        await steps.each(self.cluster.lookupds(), lambda lookupd: lookupd.tombstone(topic, node))
        await steps.each([self.cluster.nsqd(node)], lambda nsqd: nsqd.delete_topic(topic))
        failed = steps.stages[-1]
        if failed and failed[0].unreachable:
            raise UpstreamError("nsqd", failed)
        return steps.done("nsqd")

    async def _begin(self, topic: str) -> tuple["_Steps", list[NsqdApi]]:
        """Return the nsqds that receive a change of *topic*; unreachable ones are noted in the steps."""
        holders = await self.cluster.holders_of(topic)
        silent = self.cluster.queues.silent_holders(topic)
        return _Steps(self.send, silent, list(holders.stages)), holders.value

    # -- nodes ----------------------------------------------------------------------------

    async def drain(self, node: str, *, cancel: bool) -> ActionResult:
        """Make the nsqd at *node* refuse publishes after the grace time, or accept them again (*cancel*)."""
        self._check_node(node)
        steps = _Steps(self.send)
        await steps.each(
            [self.cluster.nsqd(node)], lambda nsqd: nsqd.drain(cancel=cancel, grace_ms=DRAIN_GRACE_MS)
        )
        return steps.done("nsqd")

    async def change_policies(
        self, change: PolicyChange, nodes: Sequence[OnNode], *, apply: bool
    ) -> ActionResult:
        """Make the change on all nodes; *nodes* is their present state. *apply* lets it delete messages."""
        content, name = json.dumps(change.definition).encode(), change.name
        if change.kind == "copy":
            source = next((one for one in nodes if one.node == change.node), None)
            if source is None:
                raise UnknownError(NODE_NOT_FOUND)
            content, name = json.dumps({"policies": list(source.policies.policies)}).encode(), ""

        async def command(nsqd: NsqdApi) -> None:
            if change.kind == "delete":
                await nsqd.delete_policy(name, apply=apply)
            else:
                await nsqd.put_policies(content, name=name, apply=apply)

        nsqds = await self.cluster.nsqds_now()
        steps = _Steps(self.send, stages=list(nsqds.stages))
        await steps.each(nsqds.value, command)
        return steps.done("nsqd")

    def _check_node(self, node: str) -> None:
        if self.cluster.membership.member(node) is None:
            raise UnknownError(NODE_NOT_FOUND)

    # -- messages ---------------------------------------------------------------------------

    async def handle(self, action: str, which: Selection, *, dry: bool) -> ActionResult:
        """Finish, requeue, send or cancel the messages."""

        async def ask(node: NsqdMessages, share: _Share, place: str) -> str | None:
            wanted = which.asked(place)
            if not which.message_id and not any(wanted[key] for key in ("state", "contains", "json")):
                wanted["all"] = "true"
            if which.defer_ms:
                wanted["defer"] = str(which.defer_ms)
            answer = await node.handle(action, _dry(wanted, dry))
            share.count += answer.count
            return answer.next if answer.more else None

        return await self._everywhere(which.search, _in_rounds(ask), dry=dry)

    async def send_back(self, which: Selection, *, dry: bool) -> ActionResult:
        """Send dead letters back to the channels they came from."""

        async def ask(node: NsqdMessages, share: _Share, place: str) -> str | None:
            wanted = which.asked(place)
            # Dead letters are sent back in any state on the channels of the topic that holds them.
            for name in ("channel", "state"):
                wanted.pop(name, None)
            if not which.message_id:
                wanted["limit"] = str(_LETTERS)
            answer = await node.send_back(_dry(wanted, dry))
            share.found += answer.found
            share.count += answer.found if dry else answer.sent
            share.left.update(answer.left)
            return None if which.message_id else answer.next

        return await self._everywhere(which.search, _in_rounds(ask), dry=dry)

    async def seek(self, topic: str, channel: str, to: str, node: str) -> ActionResult:
        """Make the channel deliver everything from the position *to* on."""

        async def on(one: NsqdMessages) -> _Share:
            return _Share(await one.seek(topic, channel, to))

        return await self._everywhere(MessageSearch(topic, channel, node=node), on)

    async def publish(
        self, topic: str, node: str, content: bytes, headers: Mapping[str, str], defer_ms: int
    ) -> ActionResult:
        """Publish one message on *node*, which need not have the topic yet."""
        self._check_node(node)
        try:
            await self.send(
                self.cluster.messages(node),
                lambda one: one.publish(topic, content, headers=headers, defer_ms=defer_ms),
            )
        except NodeError as error:
            raise UpstreamError("nsqd", [error]) from error
        return ActionResult(1, results=((node, DONE),))

    async def _everywhere(
        self, search: MessageSearch, on: Callable[[NsqdMessages], Awaitable[_Share]], *, dry: bool = False
    ) -> ActionResult:
        """Process the messages of all nsqds that hold the topic, or of the named one."""
        holders = (await self.reader.holders(search.topic)).value
        if search.node and search.node not in holders:
            raise UnknownError(NODE_NOT_FOUND)
        silent = [] if search.node else self.cluster.queues.silent_holders(search.topic)
        nodes = [self.cluster.messages(node) for node in ([search.node] if search.node else holders)]
        answers = await call_all(nodes, on if dry else lambda node: self.send(node, on))
        if answers.failed:
            if all(error.code in _ABSENT for error in answers.errors):
                raise UnknownError(answers.errors[0].code)
            raise UpstreamError("nsqd", answers.errors)
        # A position may exist on one node only, as in a list: the other nodes do not know its id.
        errors = [
            error
            for error in answers.errors
            if error.code not in _ABSENT and not error.code.startswith("INVALID_ARG_FROM")
        ]
        shares = {node.address: share for node, share in answers.value}
        errors += [share.error for share in shares.values() if share.error is not None]
        left: Counter[str] = Counter()
        for share in shares.values():
            left.update(share.left)
        results = {node: f"{DONE}: {share.count}" for node, share in shares.items()}
        results |= {error.address: outcome(error) for error in errors}
        return ActionResult(
            len(shares),
            stages=(tuple(errors),),
            silent=tuple(silent),
            results=tuple(results.items()),
            counts={node: share.count for node, share in shares.items()},
            found=sum(share.found for share in shares.values()),
            left=left,
            unfinished=any(share.unfinished for share in shares.values()),
        )


class _Steps:
    """Adds up the answers of the nodes during one action."""

    def __init__(
        self, send: Any, silent: Sequence[str] = (), stages: list[tuple[NodeError, ...]] | None = None
    ) -> None:
        self._send = send
        self.stages: list[tuple[NodeError, ...]] = stages if stages is not None else []
        self._silent = set(silent)
        self._refused: list[NodeError] = []
        self._refusing: set[str] = set()
        self._accepted: dict[str, str] = {}
        self._nsqds: set[str] = set()
        self._lookupds: set[str] = set()
        self._requests = 0

    async def each(self, targets: Sequence[Node], command: Callable[[Node], Awaitable[None]]) -> None:
        answers = await call_all(targets, lambda target: self._send(target, command))
        self.stages.append(answers.errors)
        self._refused.extend(answers.errors)
        self._requests += answers.targets
        nsqds = {one.address for one in targets if isinstance(one, NsqdApi)}
        unreachable = {error.address for error in answers.errors if error.unreachable}
        self._silent |= nsqds & unreachable
        self._refusing |= (
            nsqds & {one.address for one in answers.errors if one.code not in _ABSENT} - unreachable
        )
        for target, _ in answers.value:
            (self._nsqds if isinstance(target, NsqdApi) else self._lookupds).add(target.address)
            self._accepted.setdefault(target.address, DONE)
        for error in answers.errors:
            self._accepted[error.address] = outcome(error)

    def done(self, kind: str) -> ActionResult:
        if self._requests and len(self._refused) == self._requests:
            for code in _ABSENT:
                if any(error.code == code for error in self._refused) and not any(
                    error.unreachable for error in self._refused
                ):
                    raise UnknownError(code)
            raise UpstreamError(kind, self._refused)
        refused = {error.address for error in self._refused}
        return ActionResult(
            len(self._nsqds - refused),
            len(self._lookupds - refused),
            tuple(self.stages),
            tuple(sorted(self._silent - self._nsqds - set(unknown_in(self._accepted)))),
            tuple(self._accepted.items()),
            tuple(sorted(self._refusing)),
        )


def _in_rounds(
    ask: Callable[[NsqdMessages, _Share, str], Awaitable[str | None]],
) -> Callable[[NsqdMessages], Awaitable[_Share]]:
    """Return a loop of requests to a node: *ask* returns where to continue, or None at the end."""

    async def on(node: NsqdMessages) -> _Share:
        share, place = _Share(), ""
        for _ in range(_ROUNDS):
            try:
                onward = await ask(node, share, place)
            except NodeError as error:
                # A failure after some messages were handled is recorded.
                if not share.count:
                    raise
                share.error = error
                return share
            if onward is None:
                return share
            place = onward
        share.unfinished = True
        return share

    return on


def _dry(wanted: dict[str, str], dry: bool) -> dict[str, str]:
    return wanted | {"dry_run": "true"} if dry else wanted
