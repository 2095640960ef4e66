"""Typed calls to the HTTP port of one nsqlookupd."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from nsqcore import fields
from nsqcore.cluster.http import ClusterHttp, read_object
from nsqcore.cluster.models import Lookup, NodeInfo, read_nodes, read_topics_by_node

T = TypeVar("T")


class LookupdApi:
    """The HTTP side of the nsqlookupd at ``address`` (``host:port``)."""

    def __init__(self, http: ClusterHttp, address: str) -> None:
        self._http = http
        self.address = address

    async def topics(self) -> tuple[str, ...]:
        return await self._http.get(
            self.address, "/topics", (), lambda answer: fields.names(answer, "topics")
        )

    async def channels(self, topic: str) -> tuple[str, ...]:
        params = [("topic", topic)]
        return await self._http.get(
            self.address, "/channels", params, lambda answer: fields.names(answer, "channels")
        )

    async def lookup(self, topic: str) -> Lookup:
        """Return the nsqds that have *topic*; an unknown topic is a NodeError with TOPIC_NOT_FOUND."""
        return await self._http.get(self.address, "/lookup", [("topic", topic)], Lookup.from_json)

    async def nodes(self) -> tuple[NodeInfo, ...]:
        found = await self._http.get(self.address, "/nodes", (), Lookup.from_json)
        return found.producers

    async def with_identities(self, identities: Iterable[str]) -> tuple[NodeInfo, ...]:
        """Return the nsqds with these identities; of one identity, the last one to connect comes first.

        The original answers 404, as it does to :meth:`replica_candidates`.
        """
        params = [("identity", ",".join(identities))]
        return await self._http.get(self.address, "/lookup/nodes", params, read_nodes)

    async def replica_candidates(self) -> tuple[NodeInfo, ...]:
        """Return the nsqds that accept replicas of the logs of others, without their topics."""
        return await self._http.get(self.address, "/lookup/nodes", (), read_nodes)

    async def topics_by_node(self) -> dict[tuple[str, int, int], frozenset[str]]:
        """Return the topics of each nsqd; its key is broadcast address, TCP port and HTTP port."""
        # A fleet has a million pairs of nsqd and topic, so they are read without a record for each.
        return await self._http.get(self.address, "/nodes", (), read_topics_by_node)

    async def ready(self) -> None:
        """Check that its answers can be trusted; raises NodeError if not, with 404 if it is too old."""
        await self._http.probe(self.address, "/ready")

    async def fetch(self, path: str) -> bytes:
        """Return an answer unparsed, for callers that compare it with the one before."""
        return await self._http.fetch(self.address, path, ())

    def read(self, path: str, body: bytes, change: Callable[[Mapping[str, Any]], T]) -> T:
        """Parse an answer that :meth:`fetch` returned."""
        return read_object(self.address, path, (), body, change)

    async def create_topic(self, topic: str) -> None:
        await self._http.post(self.address, "/topic/create", [("topic", topic)])

    async def delete_topic(self, topic: str) -> None:
        await self._http.post(self.address, "/topic/delete", [("topic", topic)])

    async def create_channel(self, topic: str, channel: str) -> None:
        await self._http.post(self.address, "/channel/create", [("topic", topic), ("channel", channel)])

    async def delete_channel(self, topic: str, channel: str) -> None:
        await self._http.post(self.address, "/channel/delete", [("topic", topic), ("channel", channel)])

    async def tombstone(self, topic: str, node: str) -> None:
        """Hide *topic* of the nsqd at *node* (``broadcast_address:http_port``) from consumers for a while."""
        await self._http.post(self.address, "/topic/tombstone", [("topic", topic), ("node", node)])
