"""The cost of the daemons during a run, their backlog, and their problems at its end."""

import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from load.daemons import Backlog, DaemonUsage, ListedNsqd
from load.finding import ClusterAsker, Unreachable


class Watch:
    """Samples the cost of every daemon and the backlog; the caller calls ``sample`` once a second."""

    def __init__(
        self, asker: ClusterAsker, nsqds: Iterable[ListedNsqd], others: dict[str, str], topics: list[str]
    ) -> None:
        """*others* maps names of nsqlookupd and nsqadmin to their addresses."""
        self._asker = asker
        self.nsqds = list(nsqds)
        self._topics = topics
        self._addresses = {f"nsqd {nsqd.http}": nsqd.http for nsqd in self.nsqds} | others
        self.usages = {name: DaemonUsage(name) for name in self._addresses}
        self.depths: list[tuple[float, int]] = []

    def sample(self) -> None:
        for name, address in self._addresses.items():
            if (cost := self._asker.cost_of(address)) is not None:
                self.usages[name].samples.append((time.time(), cost))
        self.depths.append((time.time(), self.backlog().messages))

    def backlog(self) -> Backlog:
        by_channel: dict[str, int] = {}
        unreachable: dict[str, str] = {}
        problems: list[str] = []
        oldest_ns = 0
        for nsqd in self.nsqds:
            try:
                found = (
                    [self._stats(nsqd, topic) for topic in self._topics]
                    if len(self._topics) <= 5
                    else [self._stats(nsqd, None)]
                )
            except Unreachable as error:
                unreachable[nsqd.http] = str(error)
                continue
            if (health := found[0].get("health", "OK")) != "OK":
                problems.append(f"nsqd {nsqd.http} says of itself: {health}")
            for topic in (topic for stats in found for topic in stats["topics"] or []):
                name = topic["topic_name"]
                if name not in self._topics:
                    continue
                if topic["paused"]:
                    problems.append(f"topic {name} is paused on {nsqd.http}")
                if topic["depth"]:
                    by_channel[name] = by_channel.get(name, 0) + topic["depth"]
                for channel in topic["channels"] or []:
                    key = f"{name} {channel['channel_name']}"
                    pending = channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
                    if channel["paused"]:
                        where = f"channel {channel['channel_name']} of topic {name}"
                        problems.append(f"{where} is paused on {nsqd.http}")
                    if pending:
                        by_channel[key] = by_channel.get(key, 0) + pending
                        published = channel.get("oldest_message_time") or 0
                        oldest_ns = min(filter(None, (oldest_ns, published)), default=0)
        oldest_s = max(0.0, time.time() - oldest_ns / 1e9) if oldest_ns else 0.0
        return Backlog(sum(by_channel.values()), oldest_s, by_channel, unreachable, problems)

    def _stats(self, nsqd: ListedNsqd, topic: str | None) -> dict[str, Any]:
        only = f"&topic={quote(topic, safe='')}" if topic else ""
        stats: dict[str, Any] = self._asker.get_json(
            nsqd.http, f"/stats?format=json&include_clients=false&include_mem=false{only}"
        )
        return stats
