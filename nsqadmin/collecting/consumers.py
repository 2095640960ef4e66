"""Connected consumers: requested from an nsqd only while somebody looks at them, once for all readers."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.members import Member
from nsqadmin.figures.activity import consumers_in
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeStats
from nsqcore.cluster.nsqd_api import stats_params

# A node has many consumers, a channel few, so those of a node are requested less often.
CHANNEL_AGE_S: Final = 1.0
NODE_AGE_S: Final = 5.0
# A page shows what has arrived and reloads; a program asks once and waits for the whole answer.
PAGE_PATIENCE_S: Final = 0.5
# All consumers of a large node are megabytes: if they do not arrive at once, the next reload shows them.
LARGE_PATIENCE_S: Final = 0.2
API_PATIENCE_S: Final = 30.0
# Answers that nobody has asked for in this time are dropped.
FORGET_S: Final = 30.0
# All consumers of a node are several megabytes, and somebody may open the pages of all nodes in turn.
MOST_NODES: Final = 2

Key = tuple[str, str, str]


@dataclass(slots=True)
class _Answer:
    asked_at: float
    task: asyncio.Task[None]
    # The last good answer, which may be older than the question.
    stats: NodeStats | None = None
    error: NodeError | None = None
    wanted_at: float = field(default_factory=time.monotonic)


class Consumers:
    """``/stats`` with consumers, of a channel or of a whole node."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._answers: dict[Key, _Answer] = {}

    async def of_channel(
        self, member: Member, topic: str, channel: str, patience_s: float, age_s: float = CHANNEL_AGE_S
    ) -> NodeStats | NodeError | None:
        return await self._share((member.asked_at, topic, channel), member, age_s, patience_s)

    async def of_node(self, member: Member, patience_s: float) -> NodeStats | NodeError | None:
        found = await self._share((member.asked_at, "", ""), member, NODE_AGE_S, patience_s)
        whole = [key for key, answer in self._answers.items() if not key[1] and answer.task.done()]
        whole.sort(key=lambda key: self._answers[key].wanted_at)
        for key in whole[: max(0, len(whole) - MOST_NODES)]:
            del self._answers[key]
        return found

    async def _share(
        self, key: Key, member: Member, age_s: float, patience_s: float
    ) -> NodeStats | NodeError | None:
        """Return a recent answer to *key*, or None if none has arrived yet.

        A question that has been out for longer than *patience_s* is not waited for.
        """
        now = time.monotonic()
        self._forget(now)
        known = self._answers.get(key)
        if known is not None and not age_s and not known.task.done():
            # It was sent before the figures are wanted.
            await asyncio.wait({known.task}, timeout=patience_s)
            known = self._answers.get(key)
        if known is None or (known.task.done() and known.asked_at < now - age_s):
            known = self._ask(key, member, known)
        known.wanted_at = now
        if now - known.asked_at < patience_s:
            await asyncio.wait({known.task}, timeout=patience_s)
        if known.task.done() and known.error is not None:
            return known.error
        return known.stats

    def _ask(self, key: Key, member: Member, known: _Answer | None) -> _Answer:
        answer = _Answer(time.monotonic(), self._collector.work.start(self._fetch(key, member), "consumers"))
        if known is not None:
            answer.stats = known.stats
        self._answers[key] = answer
        return answer

    async def _fetch(self, key: Key, member: Member) -> None:
        _, topic, channel = key
        params = stats_params(topic=topic, channel=channel)
        nsqd = self._collector.asker.nsqd(member)
        try:
            async with nsqd.stats_body(params) as body:
                stats = await self._collector.work.for_reader(lambda: nsqd.read_stats(body, params))
        except NodeError as error:
            self._answers[key].error = error
        else:
            member.pace.consumers |= consumers_in(stats.topics, time.time())
            self._answers[key].stats = stats

    def forget(self, topic: str) -> None:
        """Drop the answers that include *topic*, because it was changed."""
        for key in [key for key in self._answers if key[1] in {topic, ""}]:
            answer = self._answers[key]
            answer.asked_at = 0.0
            if answer.task.done():
                del self._answers[key]

    def _forget(self, now: float) -> None:
        stale = [
            key
            for key, answer in self._answers.items()
            if answer.task.done() and now - answer.wanted_at > FORGET_S
        ]
        for key in stale:
            del self._answers[key]
