"""Finds the nsqds, topics and channels of a cluster, from nsqlookupds or from a fixed list of nsqds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.fanout import Partial, call_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.models import NodeInfo, Registration
from nsqcore.cluster.nsqd_api import NsqdApi


class Discovery(Protocol):
    """One of the two ways to find the members of the cluster."""

    # The kind of node that gets the requests, for error texts: "nsqlookupd" or "nsqd".
    kind: str

    async def topics(self) -> Partial[list[str]]:
        """Return the sorted names of all topics, including known topics without a producer."""
        ...

    async def channels(self, topic: str) -> Partial[list[str]]:
        """Return the sorted names of the channels that are registered for *topic*."""
        ...

    async def producers(self) -> Partial[list[NodeInfo]]:
        """Return all nsqds."""
        ...

    async def producers_of(self, topic: str) -> Partial[list[NodeInfo] | None]:
        """Return the nsqds that consumers of *topic* should read from; None when no such topic exists."""
        ...


class LookupdDiscovery:
    """The cluster is everything that any of these nsqlookupds lists."""

    kind = "nsqlookupd"

    def __init__(self, http: ClusterHttp, addresses: Sequence[str]) -> None:
        self._lookupds = [LookupdApi(http, address) for address in addresses]

    async def topics(self) -> Partial[list[str]]:
        answers = await call_all(self._lookupds, LookupdApi.topics)
        return answers.map(lambda found: _union(names for _, names in found))

    async def channels(self, topic: str) -> Partial[list[str]]:
        answers = await call_all(self._lookupds, lambda lookupd: lookupd.channels(topic))
        return answers.map(lambda found: _union(names for _, names in found))

    async def producers(self) -> Partial[list[NodeInfo]]:
        answers = await call_all(self._lookupds, LookupdApi.nodes)
        return answers.map(
            lambda found: merge_nodes((lookupd.address, producers) for lookupd, producers in found)
        )

    async def producers_of(self, topic: str) -> Partial[list[NodeInfo] | None]:
        answers = await call_all(self._lookupds, lambda lookupd: lookupd.lookup(topic))
        if answers.failed and all(_is_unknown_topic(error) for error in answers.errors):
            return Partial(None, (), answers.targets)
        return answers.map(lambda found: merge_lookups(lookup.producers for _, lookup in found))


class StaticDiscovery:
    """The cluster is this fixed list of nsqds."""

    kind = "nsqd"

    def __init__(self, http: ClusterHttp, addresses: Sequence[str]) -> None:
        self._nsqds = [NsqdApi(http, address) for address in addresses]

    async def topics(self) -> Partial[list[str]]:
        answers = await call_all(self._nsqds, lambda nsqd: nsqd.stats(include_clients=False))
        return answers.map(
            lambda found: _union((topic.topic_name for topic in stats.topics) for _, stats in found)
        )

    async def channels(self, topic: str) -> Partial[list[str]]:
        answers = await call_all(self._nsqds, lambda nsqd: nsqd.stats(topic=topic, include_clients=False))
        return answers.map(
            lambda found: _union(
                (channel.channel_name for channel in stats_topic.channels)
                for _, stats in found
                for stats_topic in stats.topics
            )
        )

    async def producers(self) -> Partial[list[NodeInfo]]:
        answers = await call_all(self._nsqds, _describe)
        return answers.map(lambda found: [producer for _, producer in found])

    async def producers_of(self, topic: str) -> Partial[list[NodeInfo] | None]:
        answers = await call_all(self._nsqds, lambda nsqd: _describe(nsqd, topic))
        having = [producer for _, producer in answers.value if producer.topics]
        if not having and not answers.errors:
            return Partial(None, (), answers.targets)
        return Partial(having, answers.errors, answers.targets)


async def _describe(nsqd: NsqdApi, topic: str = "") -> NodeInfo:
    """Query an nsqd, and describe it as nsqlookupd would."""
    info = await nsqd.info()
    stats = await nsqd.stats(topic=topic, include_clients=False)
    host, _, port = nsqd.address.rpartition(":")
    host = host.strip("[]")
    # An old nsqd does not report its address, so the address of the request is used.
    if not info.broadcast_address:
        info = replace(info, broadcast_address=host, http_port=int(port))
    if not info.hostname:
        info = replace(info, hostname=host)
    return replace(info, topics=tuple(Registration(topic.topic_name) for topic in stats.topics))


def merge_nodes(answers: Iterable[tuple[str, Iterable[NodeInfo]]]) -> list[NodeInfo]:
    """Merge ``/nodes`` answers: the first that lists an nsqd describes it, each notes that it lists it."""
    merged: dict[str, NodeInfo] = {}
    for lookupd_address, producers in answers:
        for producer in producers:
            known = merged.get(producer.tcp_address)
            if known is None:
                merged[producer.tcp_address] = producer.listed_by(lookupd_address)
            else:
                seen = producer.listed_by(lookupd_address).remote_addresses
                merged[producer.tcp_address] = replace(
                    known, remote_addresses=(*known.remote_addresses, *seen)
                )
    return list(merged.values())


def merge_lookups(answers: Iterable[Iterable[NodeInfo]]) -> list[NodeInfo]:
    """Merge ``/lookup`` answers; an nsqd that reconnected may be listed twice, but counts once."""
    merged: dict[str, NodeInfo] = {}
    for producers in answers:
        for producer in producers:
            merged.setdefault(producer.http_address, producer)
    return list(merged.values())


def _is_unknown_topic(error: NodeError) -> bool:
    return error.code == TOPIC_NOT_FOUND


def _union(name_lists: Iterable[Iterable[str]]) -> list[str]:
    return sorted({name for names in name_lists for name in names})
