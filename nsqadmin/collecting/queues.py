"""Queries about one topic or channel: the statistics of each of its nodes, and the unreachable nodes."""

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

from nsqadmin.collecting.answers import Answer, UnknownError, UpstreamError
from nsqadmin.collecting.collector import FRESH_S, Collector
from nsqadmin.collecting.consumers import API_PATIENCE_S, CHANNEL_AGE_S, Consumers
from nsqadmin.collecting.members import Member, errors_of
from nsqadmin.collecting.views import StaleTopic, TopicView
from nsqadmin.stats.sums import ChannelSum, Share, TopicSum, on_node, over_nodes
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError

# The page of an unknown topic reloads itself; the cluster is polled for the topic at most this often.
UNKNOWN_S: Final = 5.0

_UNKNOWN_TOPIC: Final = b'{"message":"TOPIC_NOT_FOUND"}'


class Queues:
    """Topics and channels, each with the statistics of all its nodes."""

    def __init__(self, collector: Collector, consumers: Consumers) -> None:
        self._collector = collector
        self._membership = collector.membership
        self._consumers = consumers

    async def topic_now(self, topic: str) -> Answer[TopicView]:
        """Return *topic* as it is at this moment, for a caller that is about to change it."""
        return await self.topic_view(topic, FRESH_S)

    async def topic(self, topic: str) -> Answer[TopicSum]:
        """Return the total of *topic* at this moment, with nodes and channels but without consumers."""
        view = await self.topic_view(topic, 0.0)
        return Answer(view.value.total, view.stages)

    async def topic_view(self, topic: str, age_s: float | None = None) -> Answer[TopicView]:
        """Return all that is known of *topic* except its consumers, with statistics not older than *age_s*.

        Without *age_s* they are those of the last round. Raises UnknownError if no node knows the topic.
        """
        collector = self._collector
        await collector.ready()
        if not self._is_known(topic):
            # It may have been created since the last round, so the list is requested again. Only the page of
            # an unknown topic, which reloads itself, takes one that is a little older.
            if age_s is not None:
                age_s = 0.0
            await collector.fresh_list(UNKNOWN_S if age_s is None else age_s)
        if age_s is not None:
            await collector.fresh_topic(topic, age_s, everyone=not self._is_known(topic))
        lookup_stage = self._topic_lookups(topic)
        holders = self._holders(topic)
        silent = errors_of(holders)
        left = self._departed_with(topic)
        if not self._is_known(topic) and not silent and not left:
            # If no nsqlookupd answers, this raises UpstreamError: the topic may exist.
            _ = self._membership.require_register()
            raise UnknownError(TOPIC_NOT_FOUND)
        # Without *age_s* the statistics are those of the sums, so that a page shows one number for one thing.
        looks = {
            one.address: one.snapshot if age_s is not None or one.added is None else one.added
            for one in holders
        }
        shares = {
            address: look.share(topic, address)
            for member in holders
            if member.answers and (look := looks[address := member.address]) and topic in look.topics
        }
        parts = [self._part(member, shares[member.address]) for member in holders if member.address in shares]
        total = over_nodes(topic, parts, shares.values(), time.time())
        # The problems come from the evaluation of the whole cluster, so that all pages agree.
        judged = collector.adder.sum.topics.get(topic)
        total.show(judged.problems if judged is not None else ())
        absent = (*(member for member in holders if member.error is not None), *left)
        view = TopicView(
            total,
            shares,
            tuple(
                StaleTopic(
                    one.address,
                    one.producer.hostname,
                    one.snapshot.topics[topic],
                    one.snapshot.at_s,
                    not one.listed,
                    tuple(address for address, _ in one.owners),
                )
                for one in absent
                if one.snapshot is not None and topic in one.snapshot.topics
            ),
        )
        return Answer(view, (lookup_stage, silent))

    async def channel(
        self, topic: str, channel: str, patience_s: float = API_PATIENCE_S, *, as_summed: bool = False
    ) -> Answer[ChannelSum]:
        """Return the total of *channel*, with its consumers; *as_summed* with the statistics of the sums."""
        age_s = CHANNEL_AGE_S if as_summed else 0.0
        view = await self.topic_view(topic, None if as_summed else age_s)
        members = self._answering_holders(topic)
        if not any(self._holds(member, topic, channel) for member in members):
            # It may have been created since the last round.
            view = await self.topic_view(topic, FRESH_S)
            members = self._answering_holders(topic)
        answers = await asyncio.gather(
            *(self._consumers.of_channel(one, topic, channel, patience_s, age_s) for one in members)
        )
        parts: list[TopicSum] = []
        shares: list[Share] = []
        failed: list[NodeError] = []
        for member, answer in zip(members, answers, strict=True):
            share = view.value.shares.get(member.address)
            known = share is not None and any(one.channel_name == channel for one in share[0].channels)
            asked: TopicSum | None = None
            if isinstance(answer, NodeError):
                failed.append(answer)
            elif answer is not None and answer.topics:
                asked_share = answer.topics[0], *(share[1:] if share else ((), 0, member.address))
                asked = self._part(member, asked_share)
                if asked.channel(channel) is not None and not (as_summed and known):
                    parts.append(asked)
                    shares.append(asked_share)
                    continue
            if share is not None and known:
                # The statistics are those of the sums; only the consumers are newer.
                part = self._part(member, share)
                newer = asked.channel(channel) if asked is not None else None
                for one in part.channels:
                    one.clients = newer.clients if newer is not None else ()
                parts.append(part)
                shares.append(share)
        errors = tuple(dict.fromkeys((*view.stages[-1], *failed)))
        if not parts and errors:
            raise UpstreamError("nsqd", errors)
        found = over_nodes(topic, parts, shares).channel(channel)
        if found is None:
            raise UnknownError(CHANNEL_NOT_FOUND)
        found.problems = [one for one in view.value.total.problems if one.channel == channel]
        return Answer(found, (*view.stages[:-1], errors))

    async def holders_besides(self, known: Collection[str], topic: str) -> list[str]:
        """Return the listed nsqds that hold *topic* at this moment and are not among the *known* ones."""

        def others() -> list[Member]:
            return [one for one in self._answering_holders(topic) if one.address not in known]

        # A node that just lost the topic, or does not answer now, is no longer a holder.
        await asyncio.gather(*(self._collector.asker.topic(one, topic) for one in others()))
        return [one.address for one in others()]

    def silent_holders(self, topic: str) -> list[str]:
        """Return the nsqds that hold *topic* and get no changes: they are unreachable, or not listed.

        A node that answers but is not listed is left alone, because it may have moved to another cluster.
        """
        silent = [member for member in self._holders(topic) if member.error is not None]
        return sorted({member.address for member in (*silent, *self._apart_with(topic))})

    def state(self, topic: str, channel: str) -> dict[str, Any]:
        """Return the few numbers of a topic or channel for the audit; empty if it does not exist.

        Depths include the last known ones of unreachable nodes: that a node is away changes no queue.
        """
        found = self._collector.adder.sum.topics.get(topic)
        if found is None:
            return {}
        away = [
            member.snapshot.topics[topic]
            for member in self._membership.everyone()
            if member.is_unreached and member.snapshot is not None and topic in member.snapshot.topics
        ]
        if not channel:
            depth = sum(one.depth + sum(each.depth for each in one.channels) for one in away)
            return {"depth": found.depth + depth, "channels": len(found.channels), "paused": found.paused}
        one = found.channel(channel)
        if one is None:
            return {}
        same = [each for stats in away for each in stats.channels if each.channel_name == channel]
        return {
            "depth": one.depth + sum(each.depth for each in same),
            "in_flight": one.in_flight_count + sum(each.in_flight_count for each in same),
            "paused": one.paused,
        }

    # -- inside --------------------------------------------------------------------

    def _is_known(self, topic: str) -> bool:
        membership = self._membership
        if any(topic in one.topics for one in membership.registers.values()):
            return True
        return any(
            member.snapshot is not None and topic in member.snapshot.topics
            for member in membership.members.values()
        )

    def _topic_lookups(self, topic: str) -> tuple[NodeError, ...]:
        """Return the errors of the nsqlookupds that do not answer, or that do not know the topic."""
        errors: list[NodeError] = []
        registers = self._membership.register_lists
        somewhere = any(topic in one.topics for one in registers)
        for one in registers:
            if one.error is not None:
                errors.append(one.error)
            elif somewhere and topic not in one.topics:
                url = f"http://{one.address}/lookup?topic={topic}"
                errors.append(NodeError.from_status("GET", url, one.address, 404, _UNKNOWN_TOPIC))
        return tuple(errors)

    def _holders(self, topic: str) -> list[Member]:
        """Return the nsqds that offer *topic* to consumers, or would if they answered."""
        return [
            member
            for member in self._membership.sorted_members
            if topic not in member.tombstoned
            and (
                (member.snapshot is not None and topic in member.snapshot.topics)
                or (member.error is not None and self._may_hold(member, topic))
            )
        ]

    def _answering_holders(self, topic: str) -> list[Member]:
        return [
            member
            for member in self._holders(topic)
            if member.answers and member.snapshot and topic in member.snapshot.topics
        ]

    def _holds(self, member: Member, topic: str, channel: str) -> bool:
        look = member.snapshot
        return look is not None and any(one.channel_name == channel for one in look.topics[topic].channels)

    def _may_hold(self, member: Member, topic: str) -> bool:
        if not self._membership.uses_lookupd or not member.is_described:
            return True
        return any(entry.topic == topic for entry in member.producer.topics)

    def _part(self, member: Member, share: Share) -> TopicSum:
        return on_node(member.producer, share, time.time())

    def _departed_with(self, topic: str) -> list[Member]:
        """Return the nsqds that are down and held *topic*."""
        return [member for member in self._apart_with(topic) if not member.answers]

    def _apart_with(self, topic: str) -> list[Member]:
        """Return the nsqds that hold *topic* as far as known, and that no nsqlookupd lists."""
        apart = self._membership.unlisted.values()
        return [member for member in apart if member.snapshot is not None and topic in member.snapshot.topics]
