"""The page of all nodes and the page of one."""

import time
from collections.abc import Sequence
from heapq import nlargest
from typing import Final

from msgspec import to_builtins

from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.consumers import LARGE_PATIENCE_S, PAGE_PATIENCE_S
from nsqadmin.collecting.members import Member
from nsqadmin.history.recorder import node as history_node
from nsqadmin.pages import columns
from nsqadmin.pages.paging import PageWindow, window
from nsqadmin.pages.replies import Pages, rows_json, topic_json
from nsqadmin.pages.tables import Table
from nsqadmin.stats.activity import UNKNOWN
from nsqadmin.stats.consumers import Consumer
from nsqadmin.stats.incidents import incidents
from nsqadmin.stats.problems import problem_of_missing
from nsqadmin.stats.records import ClientRecord
from nsqadmin.stats.sums import on_node
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import ChannelStats, ClientStats
from nsqcore.http.api import Request, Response
from nsqcore.http.router import Route

# More consumers than this are megabytes.
_MANY_CONSUMERS: Final = 1000
# For a draining node so many channels are named that are not empty.
_MAX_REMAINING: Final = 20
# At most so many nodes are shown whose topics differ from their registrations.
_MAX_DIFFERING: Final = 10


class NodePages(Pages):
    """``/nodes`` and ``/nodes/:node``."""

    def routes(self) -> list[Route]:
        return self.routes_of([("/nodes", self.nodes), ("/nodes/:node", self.node)])

    async def nodes(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value
        # Until a reader sorts, the worst come first, because readers search for down nodes.
        usual = {"sort": "urgency", "dir": "desc"} if "sort" not in request.query else {}
        table = Table(columns.NODES, {**request.query, **usual}, lambda row: row.names)
        if not self._cluster.membership.uses_lookupd:
            table.columns = [column for column in table.columns if column.key != "listed"]
        found = table.apply(seen.nodes)
        rows = window(found, request.query.get("page", ""))
        return self.page(
            request,
            "nodes.html",
            overview,
            shown=lambda: {
                "missing": [one.address for one in seen.missing],
                "nsqlookupds": [
                    {"address": one.address, "answers": one.error is None} for one in seen.lookupds
                ],
                **rows_json("nodes", rows, Member.to_json),
            },
            lists={"": (table, found)},
            rows=rows,
            table=table,
            node_count=len(seen.nodes),
            silent=[node.address for node in seen.nodes if node.error is not None],
            missing=[(one, problem_of_missing(one, instant())) for one in seen.missing],
            lookupds=seen.lookupds,
            differing=[row for row in found if row.differences][:_MAX_DIFFERING],
            known=[node.error for node in seen.nodes if node.error],
        )

    async def node(self, request: Request) -> Response:
        address = request.params["node"]
        view = await self._cluster.node_view(address)
        row = view.value
        held = row.snapshot.topics if row.snapshot is not None else {}
        names = window(sorted(held), request.query.get("page", ""))
        now_s = int(time.time())
        topics = [
            on_node(row.producer, row.snapshot.share(name, address), now_s)
            for name in names.items
            if row.snapshot is not None
        ]
        consumer_table = Table(
            columns.CONSUMERS,
            {"consumers-cols": _NODES_CONSUMERS, **request.query},
            lambda one: one.names,
            prefix="consumers-",
            sort="none",
        )
        connections, unknown = await self._connections(view.value)
        replication = await self._cluster.replication.of(address)

        def consumer(one: tuple[str, str, ClientStats]) -> Consumer:
            topic, channel, stats = one
            return Consumer(topic, channel, ClientRecord.on(row.producer, stats, now_s), UNKNOWN)

        found: Sequence[Consumer] = ()
        page = window(connections, request.query.get("consumers", ""))
        if consumer_table.filter or consumer_table.sort != "none" or request.query.get("format") == "csv":
            found = consumer_table.apply([consumer(one) for one in connections])
            consumers = window(found, request.query.get("consumers", ""))
        else:
            # Of thousands only the shown ones are made into rows.
            consumers = PageWindow([consumer(one) for one in page.items], page.total, page.number)
        return self.page(
            request,
            "node.html",
            view,
            shown=lambda: {
                **row.to_json(),
                "replication": to_builtins(replication.status) if replication.status is not None else None,
                **rows_json("topics", PageWindow(topics, names.total, names.number), topic_json),
                **rows_json("clients", consumers, Consumer.to_json),
            },
            lists={"consumers-": (consumer_table, found)},
            row=row,
            cards=incidents(self._cluster.problems_of(nodes={address})),
            topics=topics,
            names=names,
            consumers=consumers,
            consumer_table=consumer_table,
            consumer_count=len(connections),
            consumers_unknown=unknown,
            replication=replication.status,
            replication_unknown=replication.unknown,
            address_of=self._cluster.replication.address_of,
            left=_remaining(row) if row.drained is not None else (),
            charts=self._history.charts(history_node(address), request.query.get("span", "hour")),
            span=request.query.get("span", "hour"),
            timeline=self._history.timeline(history_node(address), request.query.get("span", "hour")),
            known=[row.error] if row.error is not None else [],
        )

    async def _connections(self, view: Member) -> tuple[list[tuple[str, str, ClientStats]], str]:
        """Return a node's consumers, each with topic and channel; and the reason if they are not known."""
        many = view.snapshot is not None and view.snapshot.load.consumers > _MANY_CONSUMERS
        patience_s = LARGE_PATIENCE_S if many else PAGE_PATIENCE_S
        stats = await self._cluster.node_consumers(view.address, patience_s)
        if stats is None:
            return [], "it was asked just now"
        if isinstance(stats, NodeError):
            return [], stats.reason
        return [
            (topic.topic_name, channel.channel_name, client)
            for topic in stats.topics
            for channel in topic.channels
            for client in channel.clients
        ], ""


# The columns of consumers that are shown until a reader chooses.
_NODES_CONSUMERS: Final = "channel,address,agent,attributes,in_flight,ready,finished,requeued,connected"


def _remaining(row: Member) -> list[tuple[str, ChannelStats]]:
    """Return the channels that are not empty on a draining node, the largest backlog first."""
    topics = row.snapshot.topics.values() if row.snapshot is not None else ()
    found = [(topic.topic_name, one) for topic in topics for one in topic.channels if one.unfinished]
    return nlargest(_MAX_REMAINING, found, key=lambda one: one[1].unfinished)
