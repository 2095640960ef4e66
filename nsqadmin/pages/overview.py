"""The first page and the list of topics, which show the whole cluster; the history and the counter."""

import time
from typing import Any

from nsqadmin.collecting.answers import Answer
from nsqadmin.collecting.members import unregistered
from nsqadmin.collecting.views import Overview, lacks
from nsqadmin.history.recorder import age_of
from nsqadmin.history.recorder import topic as history_topic
from nsqadmin.pages import columns
from nsqadmin.pages.glance import by_zone, incident, tops, verdict
from nsqadmin.pages.history_charts import name_of
from nsqadmin.pages.paging import window
from nsqadmin.pages.replies import Pages, rows_json, wants_json
from nsqadmin.pages.tables import Table
from nsqadmin.pages.topics import IDLE_AGE_S
from nsqadmin.stats.incidents import incidents
from nsqadmin.stats.sums import TopicSum
from nsqcore.http.api import Request, Response, json_reply, plain_reply
from nsqcore.http.router import Route


class OverviewPages(Pages):
    """``/``, ``/topics``, ``/counter`` and ``/history``; ``/lookup`` is also the list of topics."""

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

    async def _registrations(self, request: Request, seen: Overview) -> dict[str, Any]:
        """Return the differences between the lists of nsqlookupd and the topics of nsqds."""
        names = window(seen.sum.idle, request.query.get("idle", ""))
        channels = await self._cluster.registrations.channels_of(names.items, age_s=IDLE_AGE_S)
        return {
            "names": names,
            "idle": channels.value,
            "unregistered": unregistered(seen.nodes),
            "wants_registrations": request.target.partition("?")[0].endswith("/lookup"),
        }

    async def _topics(self, request: Request, template: str) -> Response:
        seen = (await self._cluster.overview()).value
        total, problems = seen.sum, seen.problems
        node_count, nodes_up = len(seen.nodes) + len(seen.missing), sum(node.answers for node in seen.nodes)
        overview = template == "overview.html"
        if request.query.get("format") == "text":
            sums = total.totals
            return plain_reply(incident(problems, sums.depth, time.time(), sums.oldest_ns, seen.away))
        table = Table(columns.TOPICS, request.query, lambda row: row.names)
        found = await self._cluster.ordered(table.apply)
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
                "nodes": node_count,
                "nodes_up": nodes_up,
                "incidents": [card.to_json() for card in incidents(problems)],
                "problems": [problem.to_json() for problem in problems],
                **rows_json("topics", rows, TopicSum.to_json),
            },
            lists={"": (table, found)},
            rows=rows,
            table=table,
            topic_count=len(total.rows),
            sum=total.totals,
            cards=incidents(problems),
            verdict=verdict(
                [one for one in problems if not self._runner.scene.alerts.muted_until(one)],
                total.totals.depth,
                time.time(),
                total.totals.oldest_ns,
                seen.away,
            ),
            picking=not overview,
            charts=self._history.charts(span=request.query.get("span", "hour")) if overview else (),
            span=request.query.get("span", "hour"),
            sparks=self._history.sparks([history_topic(row.name) for row in rows.items]),
            tops=tops(total) if overview else (),
            zones=by_zone(seen.nodes, seen.missing) if overview else (),
            node_count=node_count,
            nodes_up=nodes_up,
            away=lacks(seen.lacking),
            oldest_s=age_of(total.totals.oldest_ns, time.time()) if total.totals.oldest_ns else None,
            timeline=self._history.timeline(span=request.query.get("span", "hour")) if overview else (),
            **({} if overview else await self._registrations(request, seen)),
        )

    async def history(self, request: Request) -> Response:
        """Reply with the history of a topic, channel, node or the totals, for the script that draws it."""
        span = request.query.get("span", "hour")
        return json_reply(self._history.columns(name_of(request.query), span))

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
