"""The latencies and consumers of topics and channels, with their keys in nsqadmin's JSON API; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from msgspec.structs import asdict

from nsqcore.cluster.models import ClientStats, LatencyStats, NodeInfo

ALL_NODES: Final = "*"
_NS_PER_S: Final = 1_000_000_000
# The longest latency: three hundred years.
_MAX_NS: Final = 2.0**63

JsonObject = dict[str, Any]


@dataclass(slots=True)
class PercentileRecord:
    quantile: float
    min_ns: float
    max_ns: float
    average_ns: float
    count: int


@dataclass(slots=True)
class LatencyRecord:
    """End-to-end latency; percentiles of several nodes can only be averaged, so a total is an estimate."""

    count: int = 0
    percentiles: list[PercentileRecord] = field(default_factory=list)
    topic: str = ""
    channel: str = ""
    host: str = ""

    def to_json(self) -> JsonObject:
        # A node's own entry has a value; a total has none.
        with_value = self.host != ALL_NODES
        return {
            "count": self.count,
            "percentiles": [_percentile_json(entry, with_value=with_value) for entry in self.percentiles],
            "topic": self.topic,
            "channel": self.channel,
            "host": self.host,
        }


def _percentile_json(entry: PercentileRecord, *, with_value: bool) -> JsonObject:
    shown: JsonObject = {
        "average": _whole(entry.average_ns),
        "count": entry.count,
        "max": _whole(entry.max_ns),
        "min": _whole(entry.min_ns),
        "quantile": entry.quantile,
    }
    if with_value:
        shown["value"] = _whole(entry.average_ns)
    return shown


@dataclass(slots=True)
class ClientRecord:
    node: str
    node_topology_region: str
    node_topology_zone: str
    connected_ns: int
    stats: ClientStats

    @classmethod
    def on(cls, producer: NodeInfo, stats: ClientStats, now_s: float) -> Self:
        """Make the record of one consumer's connection to one node."""
        connected_ns = max(0, int(now_s) - stats.connect_ts) * _NS_PER_S
        region, zone = producer.topology_region, producer.topology_zone
        return cls(producer.http_address, region, zone, connected_ns, stats)

    @property
    def zone_local(self) -> bool:
        return (
            self.region_local
            and bool(self.node_topology_zone)
            and (self.stats.topology_zone == self.node_topology_zone)
        )

    @property
    def region_local(self) -> bool:
        return bool(self.node_topology_region) and self.stats.topology_region == self.node_topology_region

    def to_json(self) -> JsonObject:
        shown = {
            "node": self.node,
            **asdict(self.stats),
            "connected": self.connected_ns,
            "node_topology_region": self.node_topology_region,
            "node_topology_zone": self.node_topology_zone,
        }
        return {key: value for key, value in shown.items() if value or "topology" not in key}


def by_nearness(client: ClientRecord) -> tuple[int, str, str, str, str]:
    """Sort consumers in the node's own zone first, then its region, then the rest by place."""
    nearness = 0 if client.zone_local else 1 if client.region_local else 2
    stats = client.stats
    return nearness, stats.topology_region, stats.topology_zone, stats.hostname, stats.remote_address


def latency_of(latency: LatencyStats) -> LatencyRecord:
    """Make the record of a latency that one node measured."""
    # A node that reports a negative count must not outweigh the others.
    count = max(0, latency.count)
    percentiles = []
    for entry in latency.percentiles:
        # Larger numbers have no average and cannot be written as a time.
        value_ns = min(max(entry.value_ns, -_MAX_NS), _MAX_NS)
        percentiles.append(PercentileRecord(entry.quantile, value_ns, value_ns, value_ns, count))
    return LatencyRecord(count, percentiles)


def merged(parts: Iterable[LatencyRecord | None], topic: str, channel: str) -> LatencyRecord:
    """Merge latencies: minimum and maximum are exact, the average of percentiles is weighted by count."""
    merged: dict[float, PercentileRecord] = {}
    count = 0
    for part in filter(None, parts):
        count += part.count
        for entry in part.percentiles:
            known = merged.get(entry.quantile)
            if known is None:
                merged[entry.quantile] = PercentileRecord(
                    entry.quantile, entry.min_ns, entry.max_ns, entry.average_ns, entry.count
                )
                continue
            total = known.count + entry.count
            # A node that measured nothing reports zero, which is not a latency.
            if entry.count and known.count:
                known.min_ns = min(known.min_ns, entry.min_ns)
            elif entry.count:
                known.min_ns = entry.min_ns
            known.max_ns = max(known.max_ns, entry.max_ns)
            weight = entry.count / total if total else 0.0
            known.average_ns = (
                known.average_ns + (entry.average_ns - known.average_ns) * weight if total else 0
            )
            known.count = total
    return LatencyRecord(count, list(merged.values()), topic=topic, channel=channel, host=ALL_NODES)


def _whole(value: float) -> float:
    """Write whole numbers without a fraction, as in NSQ's JSON."""
    # An int is a float to a type checker, but has no is_integer() before Python 3.12.
    return int(value) if float(value).is_integer() else value
