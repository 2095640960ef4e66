"""What is done to messages on every nsqd that holds them: handling, sending back, seeking, publishing."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from nsqadmin.changes.actions import Done
from nsqadmin.changes.audit import DONE, outcome
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.known import NODE_NOT_FOUND
from nsqadmin.collecting.messages import MessageReader, MessageSearch
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.fanout import Partial, ask_all

T = TypeVar("T")

# One request handles a limited number of messages; so many requests are made before the caller asks again.
_ROUNDS: Final = 20
_LETTERS: Final = 1000
_ABSENT: Final = frozenset({TOPIC_NOT_FOUND, CHANNEL_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class Which:
    """The messages that are meant: a single one by its node and id, or all that a search finds."""

    search: MessageSearch
    message_id: str = ""
    defer_ms: int = 0

    def asked(self, place: str) -> dict[str, str]:
        search = self.search
        if self.message_id:
            return {"topic": search.topic, "channel": search.channel, "id": self.message_id}
        filters = {"state": search.state, "contains": search.contains, "json": search.json}
        return {"topic": search.topic, "channel": search.channel, "from": place or search.start, **filters}


@dataclass(frozen=True, slots=True)
class Handled(Done):
    """The number of messages of each node that were handled, or would be in a dry run.

    ``left`` counts dead letters that could not be sent, by reason; ``unfinished`` says that there are more.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    found: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    unfinished: bool = False

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(slots=True)
class _Share:
    """The part of the work that one node did."""

    count: int = 0
    found: int = 0
    left: Counter[str] = field(default_factory=Counter)
    unfinished: bool = False
    # Why it stopped half-way.
    error: NodeError | None = None


class MessageActions:
    """Carries out actions on all nsqds that hold the topic, or on the named one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reader = MessageReader(cluster)

    async def handle(self, action: str, which: Which, *, dry: bool) -> Handled:
        """Finish, requeue, send or cancel the messages."""

        async def on(node: str) -> _Share:
            share, place = _Share(), ""
            for _ in range(_ROUNDS):
                wanted = which.asked(place)
                if not which.message_id and not any(wanted[key] for key in ("state", "contains", "json")):
                    wanted["all"] = "true"
                if which.defer_ms:
                    wanted["defer"] = str(which.defer_ms)
                answer = await self._step(
                    share, self._cluster.messages(node).handle(action, _dry(wanted, dry))
                )
                if answer is None:
                    return share
                share.count += answer.count
                if not answer.more:
                    return share
                place = answer.next
            share.unfinished = True
            return share

        return await self._everywhere(which.search, on)

    async def send_back(self, which: Which, *, dry: bool) -> Handled:
        """Send dead letters back to the channels they came from."""

        async def on(node: str) -> _Share:
            share, place = _Share(), ""
            for _ in range(_ROUNDS):
                wanted = which.asked(place)
                # Dead letters are sent back whatever their state on the channels of the topic they wait in.
                for name in ("channel", "state"):
                    wanted.pop(name, None)
                if not which.message_id:
                    wanted["limit"] = str(_LETTERS)
                answer = await self._step(share, self._cluster.messages(node).send_back(_dry(wanted, dry)))
                if answer is None:
                    return share
                share.found += answer.found
                share.count += answer.found if dry else answer.sent
                share.left.update(answer.left)
                if which.message_id or answer.next is None:
                    return share
                place = answer.next
            share.unfinished = True
            return share

        return await self._everywhere(which.search, on)

    async def seek(self, topic: str, channel: str, to: str, node: str) -> Handled:
        """Make the channel deliver everything from the place *to* on."""

        async def on(address: str) -> _Share:
            return _Share(await self._cluster.messages(address).seek(topic, channel, to))

        return await self._everywhere(MessageSearch(topic, channel, node=node), on)

    async def publish(
        self, topic: str, node: str, content: bytes, headers: Mapping[str, str], defer_ms: int
    ) -> Done:
        """Publish one message on *node*, which need not have the topic yet."""
        if not self._cluster.is_there(node):
            raise UnknownError(NODE_NOT_FOUND)
        try:
            await self._cluster.messages(node).publish(topic, content, headers=headers, defer_ms=defer_ms)
        except NodeError as error:
            raise UpstreamError("nsqd", [error]) from error
        return Done(1, 0, (), results=((node, DONE),))

    async def _step(self, share: _Share, asked: Awaitable[T]) -> T | None:
        """Ask the node once; a failure after some messages were handled is kept in *share*, not raised."""
        try:
            return await asked
        except NodeError as error:
            if not share.count:
                raise
            share.error = error
            return None

    async def _everywhere(self, search: MessageSearch, on: Callable[[str], Awaitable[_Share]]) -> Handled:
        holders = (await self._reader.holders(search.topic)).value
        if search.node and search.node not in holders:
            raise UnknownError(NODE_NOT_FOUND)
        silent = [] if search.node else self._cluster.queues.silent_holders(search.topic)
        told: Partial[list[tuple[str, _Share]]] = await ask_all([search.node] if search.node else holders, on)
        if told.failed:
            if all(error.code in _ABSENT for error in told.errors):
                raise UnknownError(told.errors[0].code)
            raise UpstreamError("nsqd", told.errors)
        # A place may exist on one node only, as in a list: the other nodes do not know its id.
        errors = [
            error
            for error in told.errors
            if error.code not in _ABSENT and not error.code.startswith("INVALID_ARG_FROM")
        ]
        errors += [share.error for _, share in told.value if share.error is not None]
        left: Counter[str] = Counter()
        for _, share in told.value:
            left.update(share.left)
        results = {node: f"{DONE}: {share.count}" for node, share in told.value}
        results |= {error.address: outcome(error) for error in errors}
        return Handled(
            len(told.value),
            0,
            (tuple(errors),),
            tuple(silent),
            tuple(results.items()),
            counts={node: share.count for node, share in told.value},
            found=sum(share.found for _, share in told.value),
            left=left,
            unfinished=any(share.unfinished for _, share in told.value),
        )


def _dry(wanted: dict[str, str], dry: bool) -> dict[str, str]:
    return wanted | {"dry_run": "true"} if dry else wanted
