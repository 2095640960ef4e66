"""Messages of all nsqds that hold a topic, as one list; reading them changes nothing."""

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from nsqadmin.collecting.answers import NODE_NOT_FOUND, Answer, UnknownError, UpstreamError
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.collector import FRESH_S
from nsqadmin.stats.messages import FoundMessage
from nsqclient.wire.names import is_valid_name
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.fanout import call_all
from nsqcore.cluster.listed_messages import ListedMessages

# A list shows at most so many messages, and at most so many bytes of each.
PAGE: Final = 50
LISTED_BODY: Final = 2048
STATES: Final = ("waiting", "in_flight", "deferred", "dead_lettering", "finished")
MESSAGE_NOT_FOUND: Final = "MESSAGE_NOT_FOUND"
# In the order of due times each node continues where it stopped, so all that it returns is shown.
_MIN_OF_NODE: Final = 5
_ABSENT: Final = frozenset({TOPIC_NOT_FOUND, CHANNEL_NOT_FOUND})


class BadSearchError(Exception):
    """No node understands the search; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """Which messages to list. *places* maps each node to where its list continues."""

    topic: str
    channel: str = ""
    state: str = ""
    newest: bool = True
    start: str = ""
    contains: str = ""
    json: str = ""
    node: str = ""
    positions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Read a search. Raises UnknownError for an invalid name."""
        topic, channel, state = (query.get(key, "") for key in ("topic", "channel", "state"))
        if not is_valid_name(topic):
            raise UnknownError(TOPIC_NOT_FOUND)
        if channel and not is_valid_name(channel):
            raise UnknownError(CHANNEL_NOT_FOUND)
        return cls(
            topic,
            channel,
            # A state belongs to a channel, so without a channel it is ignored.
            state if state in STATES and channel else "",
            query.get("order", "newest") != "oldest",
            query.get("start", "").strip(),
            query.get("contains", ""),
            query.get("json", "").strip(),
            query.get("node", ""),
        )

    @property
    def by_due_time(self) -> bool:
        return self.state == "deferred"

    @property
    def reads_bodies(self) -> bool:
        return bool(self.contains or self.json)

    @property
    def can_select_all(self) -> bool:
        """Whether a node can select all listed messages: the list goes forward from a time of publishing."""
        return not self.start or not (self.newest or self.by_due_time)

    def arguments(self, node: str, limit: int) -> dict[str, str]:
        """The arguments of the request to one node."""
        back = self.newest and not self.by_due_time
        return {
            "topic": self.topic,
            "channel": self.channel,
            "state": self.state,
            "direction": "back" if back else "forward",
            "from": self.positions.get(node) or self.start,
            "contains": self.contains,
            "json": self.json,
            "limit": str(limit),
            "max_body": str(LISTED_BODY),
        }


@dataclass(frozen=True, slots=True)
class MessageList:
    """A page of messages. *onward* maps each node to its next position; empty at the end."""

    messages: Sequence[FoundMessage]
    onward: Mapping[str, str]
    scanned: int = 0
    # Numbers of lost messages, by reason.
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeekPreview:
    """A channel's backlog on one node after a seek, and when the first message was published."""

    node: str
    unfinished: int
    first: str


class MessageReader:
    """Reads messages from the nodes that hold a topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def holders(self, topic: str) -> Answer[list[str]]:
        """Return the nsqds that hold *topic* and answer; only these get requests for messages."""
        view = await self._cluster.queues.topic_view(topic, FRESH_S)
        return Answer(sorted(view.value.shares), view.stages[-1:])

    async def page(self, search: MessageSearch) -> Answer[MessageList]:
        """Return one page. Raises BadSearchError if no node understands the search."""
        holders = await self.holders(search.topic)
        nodes = await self._meant(holders.value, search.node)
        if search.positions:
            nodes = [node for node in nodes if node in search.positions]
        limit = max(_MIN_OF_NODE, PAGE // max(1, len(nodes))) if search.by_due_time else PAGE
        answers = await call_all(
            nodes, lambda node: self._cluster.messages(node).browse(search.arguments(node, limit))
        )
        errors = tuple(error for error in answers.errors if error.code not in _ABSENT)
        if not answers.value and errors:
            raise _refusal(errors)
        if not answers.value and answers.errors:
            raise UnknownError(answers.errors[0].code)
        # A position may exist on one node only: the other nodes do not know its id.
        errors = tuple(error for error in errors if not error.code.startswith("INVALID_ARG_FROM"))
        found = _together(search, answers.value)
        return Answer(found, (*holders.stages, errors))

    async def one(
        self, topic: str, channel: str, node: str, message_id: str, *, exact: bool = False
    ) -> FoundMessage:
        """Return one message in full. Raises UnknownError if it does not exist."""
        (node,) = await self._meant((await self.holders(topic)).value, node)
        wanted = {
            "topic": topic,
            "channel": channel,
            "from": f"id:{message_id}",
            "limit": "1",
            "exact": "true" if exact else "",
        }
        try:
            found = await self._cluster.messages(node).browse(wanted)
        except NodeError as error:
            if error.code.startswith("INVALID_ARG"):
                raise UnknownError(MESSAGE_NOT_FOUND) from error
            if error.code in _ABSENT:
                raise UnknownError(error.code) from error
            raise UpstreamError("nsqd", [error]) from error
        for one in found.messages:
            if one.id == message_id:
                return FoundMessage(node, one)
        raise UnknownError(MESSAGE_NOT_FOUND)

    async def neighbours(self, search: MessageSearch, found: FoundMessage) -> tuple[str, str]:
        """Return the ids of the messages before and after *found* on its node; empty if there is none.

        With the state of *search* only messages in that state count.
        """

        async def ask(direction: str) -> str:
            wanted = {
                "topic": search.topic,
                "channel": search.channel,
                # Deferred messages are listed by their due times only.
                "state": "" if search.by_due_time else search.state,
                "from": str(found.listed.sequence),
                "direction": direction,
                "limit": "2",
                "max_body": "1",
            }
            try:
                answer = await self._cluster.messages(found.node).browse(wanted)
            except NodeError:
                return ""
            return next((one.id for one in answer.messages if one.id != found.listed.id), "")

        before, after = await asyncio.gather(ask("back"), ask("forward"))
        return before, after

    async def seek_preview(
        self, topic: str, channel: str, to: str, node: str = ""
    ) -> Answer[list[SeekPreview]]:
        """Return the backlog of *channel* on each node after a seek to the position *to*."""
        holders = await self.holders(topic)
        nodes = await self._meant(holders.value, node)
        wanted = {"topic": topic, "from": to, "limit": "1", "max_body": "1"}

        async def ask(node: str) -> SeekPreview:
            messages = self._cluster.messages(node)
            answer = await messages.browse(wanted)
            first = answer.messages[0] if answer.messages else None
            position = first.sequence if first is not None else answer.end
            unfinished = await messages.count_from(topic, channel, position)
            return SeekPreview(node, unfinished, first.time if first is not None else "")

        answers = await call_all(nodes, ask)
        if not answers.value and answers.errors:
            raise _refusal(answers.errors)
        return Answer([preview for _, preview in answers.value], (*holders.stages, answers.errors))

    async def _meant(self, holders: Sequence[str], node: str) -> list[str]:
        if node and node not in holders:
            raise UnknownError(NODE_NOT_FOUND)
        return [node] if node else list(holders)


def _refusal(errors: Sequence[NodeError]) -> Exception:
    """Return the error for a search without any answer: a bad search, or nodes that could not answer."""
    said = [error for error in errors if error.code.startswith("INVALID_ARG")]
    if said and len(said) == len(errors):
        return BadSearchError(said[0].code.partition(": ")[2] or said[0].code)
    return UpstreamError("nsqd", errors)


def _together(search: MessageSearch, answers: Sequence[tuple[str, ListedMessages]]) -> MessageList:
    """Merge the lists of the nodes by time; each node's own order is preserved."""
    by_node = {node: [FoundMessage(node, one) for one in answer.messages] for node, answer in answers}

    def order(one: FoundMessage) -> str | int:
        if search.by_due_time:
            return one.listed.until
        return -one.listed.timestamp if search.newest else one.listed.timestamp

    merged = list(heapq.merge(*by_node.values(), key=order))
    shown = merged if search.by_due_time else merged[:PAGE]
    onward: dict[str, str] = {}
    lost: dict[str, int] = {}
    for node, answer in answers:
        rest = by_node[node][sum(one.node == node for one in shown) :]
        if rest:
            onward[node] = str(rest[0].listed.sequence)
        elif answer.more and answer.next is not None:
            onward[node] = answer.next
        for gap in answer.gaps:
            if gap.why in {"damaged", "removed"}:
                lost[gap.why] = lost.get(gap.why, 0) + gap.end - gap.start
    return MessageList(shown, onward, sum(answer.scanned for _, answer in answers), lost)
