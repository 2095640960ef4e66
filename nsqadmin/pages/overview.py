"""The first page and the list of topics, which show the whole cluster; the history and the counter."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nsqadmin.collecting.answers import Answer
from nsqadmin.collecting.views import Lacking, lacks
from nsqadmin.history.recorder import age_of
from nsqadmin.history.recorder import topic as topic_course
from nsqadmin.pages import columns
from nsqadmin.pages.glance import NodeTile, by_zone, incident, tops, verdict
from nsqadmin.pages.history_charts import name_of
from nsqadmin.pages.paging import window
from nsqadmin.pages.replies import Pages, rows_json, wants_json
from nsqadmin.pages.rows import NodeRow, unregistered
from nsqadmin.pages.snapshot_cache import SnapshotCache
from nsqadmin.pages.tables import Table
from nsqadmin.pages.topics import IDLE_AGE_S
from nsqadmin.stats.attention import Concern
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.incidents import incidents
from nsqadmin.stats.sums import TopicSum
from nsqcore.http.api import Request, Response, json_reply, plain_reply
from nsqcore.http.router import Route


class OverviewPages(Pages):
    """``/``, ``/topics``, ``/counter`` and ``/history``; ``/lookup`` is also the list of topics."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._kept: SnapshotCache[_Index] = SnapshotCache()

    def routes(self) -> list[Route]:
        table = [
            ("/", self.overview),
            ("/topics", self.topics),
            ("/lookup", self.lookup),
            ("/counter", self.counter),
            ("/history", self.history),
        ]
        return self.routes_of(table)

    async def overview(self, request: Request) -> Response:
        return await self._topics(request, "overview.html")

    async def topics(self, request: Request) -> Response:
        return await self._topics(request, "topics.html")

    async def lookup(self, request: Request) -> Response:
        """Show the list of topics with the registrations that differ; as JSON only the latter."""
        if not wants_json(request):
            return await self._topics(request, "topics.html")
        overview = await self._cluster.overview()
        names = window(overview.value.sum.idle, request.query.get("page", ""))
        channels = await self._cluster.registrations.channels_of(names.items, age_s=IDLE_AGE_S)
        return self.page(
            request,
            "topics.html",
            overview,
            shown=lambda: {
                "nsqlookupds": [
                    {"address": one.address, "answers": one.error is None} for one in overview.value.lookupds
                ],
                "unregistered": [
                    {"topic": topic, "nodes": nodes} for topic, nodes in unregistered(overview.value.nodes)
                ],
                **rows_json(
                    "inactive", names, lambda name: {"topic": name, "channels": channels.value[name]}
                ),
            },
        )

    async def _registrations(self, request: Request, total: ClusterSum) -> dict[str, Any]:
        """Return the differences between the lists of nsqlookupd and the topics of nsqds."""
        names = window(total.idle, request.query.get("idle", ""))
        channels = await self._cluster.registrations.channels_of(names.items, age_s=IDLE_AGE_S)
        nodes = (await self._cluster.overview()).value.nodes
        return {
            "names": names,
            "idle": channels.value,
            "unregistered": unregistered(nodes),
            "wants_registrations": request.target.partition("?")[0].endswith("/lookup"),
        }

    async def _topics(self, request: Request, template: str) -> Response:
        index, figures = await self._snapshot(request.query.get("held", ""))
        total, concerns = index.sum, index.concerns
        overview = template == "overview.html"
        if request.query.get("format") == "text":
            sums = total.totals
            return plain_reply(incident(concerns, sums.depth, time.time(), sums.oldest_ns, index.away))
        table = Table(columns.TOPICS, request.query, lambda row: row.names)
        found = await self._cluster.ordered(total, table.order, table.apply)
        rows = window(found, request.query.get("page", ""))
        return self.page(
            request,
            template,
            Answer(None),
            shown=lambda: {
                "messages_per_second": total.totals.rate,
                "depth": total.totals.depth,
                "in_flight_count": total.totals.in_flight,
                "deferred_count": total.totals.deferred,
                "client_count": total.totals.consumers,
                "channel_message_count": total.totals.channel_messages,
                "nodes": index.node_count,
                "nodes_up": index.nodes_up,
                "incidents": [card.to_json() for card in incidents(concerns)],
                "concerns": [concern.to_json() for concern in concerns],
                **rows_json("topics", rows, TopicSum.to_json),
            },
            lists={"": (table, found)},
            rows=rows,
            table=table,
            topic_count=len(total.rows),
            sum=total.totals,
            cards=incidents(concerns),
            verdict=verdict(
                [one for one in concerns if not self._runner.scene.alerts.muted_until(one)],
                total.totals.depth,
                time.time(),
                total.totals.oldest_ns,
                index.away,
            ),
            picking=not overview,
            charts=self._courses.charts(span=request.query.get("span", "hour")) if overview else (),
            span=request.query.get("span", "hour"),
            sparks=self._courses.sparks([topic_course(row.name) for row in rows.items]),
            tops=tops(total) if overview else (),
            zones=index.zones if overview else (),
            node_count=index.node_count,
            nodes_up=index.nodes_up,
            away=lacks(index.lacking),
            oldest_s=age_of(total.totals.oldest_ns, time.time()),
            timeline=self._courses.timeline(span=request.query.get("span", "hour")) if overview else (),
            at_s=index.at_s,
            figures=figures,
            **({} if overview else await self._registrations(request, total)),
        )

    async def _snapshot(self, held: str) -> tuple["_Index", str]:
        """Return the current statistics, or those of a reader's paused page, and their number."""
        now_s = time.monotonic()
        if held and (kept := self._kept.pin(held, now_s)) is not None:
            return kept, held
        overview = await self._cluster.overview()
        seen = overview.value
        # Unreachable nodes are among the problems, so they need no further warning.
        index = _Index(
            seen.sum,
            seen.problems,
            len(seen.nodes) + len(seen.missing),
            sum(node.answers for node in seen.nodes),
            self._cluster.stats_time_s,
            by_zone([NodeRow(node) for node in seen.nodes], seen.missing),
            seen.lacking,
        )
        return index, self._kept.add(index, seen.sum, now_s)

    async def history(self, request: Request) -> Response:
        """Reply with the history of a topic, channel, node or the totals, for the script that draws it."""
        span = request.query.get("span", "hour")
        return json_reply(self._courses.columns(name_of(request.query), span))

    async def counter(self, request: Request) -> Response:
        overview = await self._cluster.overview()
        seen = overview.value.sum.totals
        return self.page(
            request,
            "counter.html",
            overview,
            shown=lambda: {"message_count": seen.channel_messages, "messages_per_second": seen.channel_rate},
            total=seen.channel_messages,
            rate=seen.channel_rate,
        )


@dataclass(frozen=True, slots=True)
class _Index:
    """The statistics of the first page. They are cached, so they refer to no node's statistics."""

    sum: ClusterSum
    concerns: Sequence[Concern]
    # All nodes, including those that are down; and those that are up.
    node_count: int
    nodes_up: int
    at_s: float
    zones: list[tuple[str, list[NodeTile]]]
    lacking: Sequence[Lacking]

    @property
    def away(self) -> int:
        """The backlog on unreachable nodes, as far as known."""
        return sum(one.messages for one in self.lacking)
