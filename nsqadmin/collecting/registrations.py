"""Topics and channels that are registered with nsqlookupd, whether or not an nsqd has them."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from nsqadmin.collecting.answers import Answer
from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.members import (
    errors_of,
    errors_of_lookupds,
    listed_now,
    registered_topics,
    require_one,
)
from nsqclient.wire.node_error import NodeError

# The channels of idle topics are requested topic by topic, at most so many at a time.
_CONCURRENCY: Final = 16


class Registrations:
    """Topics and channels as they are registered; without nsqlookupd, as nsqds have them."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._membership = collector.membership
        # Channels of idle topics, with the time of the request.
        self._channels: dict[str, tuple[float, list[str]]] = {}

    def forget(self, topic: str) -> None:
        """Drop the stored answers about *topic*, because it was changed."""
        self._channels.pop(topic, None)

    async def topics(self) -> Answer[list[str]]:
        await self._collector.ready()
        if not self._membership.uses_lookupd:
            members = self._membership.sorted_members
            require_one(members)
            names = {
                name
                for member in members
                if member.answers and member.snapshot
                for name in member.snapshot.topics
            }
            return Answer(sorted(names), (errors_of(members),))
        lists = self._membership.require_lookupd()
        return Answer(
            sorted(registered_topics(one for one in lists if one.error is None)),
            (errors_of_lookupds(lists, "/topics"),),
        )

    async def channels_of(self, topics: Iterable[str], *, age_s: float = 0.0) -> Answer[dict[str, list[str]]]:
        """Return the channels that are registered for each of *topics*, at most *age_s* old.

        Unreachable nodes get no request, and are no error of this answer.
        """
        gate = asyncio.Semaphore(_CONCURRENCY)
        now = time.monotonic()
        known = {key: value for key, value in self._channels.items() if now - value[0] < age_s}
        discovery = self._membership.prompt_discovery

        async def ask(topic: str) -> tuple[str, list[str], tuple[NodeError, ...]]:
            if topic in known:
                return topic, known[topic][1], ()
            async with gate:
                found = await discovery.channels(topic)
            # Answers of the others are cached, or each page would wait for a node that stops answering.
            if found.targets and not found.failed:
                known[topic] = now, found.value
            return topic, found.value, found.errors

        answers = await asyncio.gather(*(ask(topic) for topic in topics))
        self._channels = known
        errors = tuple(error for _, _, errors in answers for error in errors)
        return Answer({topic: channels for topic, channels, _ in answers}, (errors,))

    async def idle(self) -> Answer[dict[str, list[str]]]:
        """Return the topics that no nsqd offers to consumers, with the channels registered for them."""
        names = await self._idle_names()
        channels = await self.channels_of(names.value)
        return Answer(channels.value, (*names.stages, *channels.stages))

    async def _idle_names(self) -> Answer[list[str]]:
        if not self._membership.uses_lookupd:
            return Answer([])
        names = await self.topics()
        offered = {
            entry.topic
            for producer in listed_now(self._membership.require_lookupd())
            for entry in producer.topics
            if not entry.tombstoned
        }
        return Answer([name for name in names.value if name not in offered], names.stages)
