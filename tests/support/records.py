"""Statistics of an imaginary cluster for tests of aggregation; values that are not given are zero."""

from typing import Any

from nsqadmin.stats.activity import Activity
from nsqadmin.stats.consumers import Consumer
from nsqadmin.stats.records import ClientRecord
from nsqcore.cluster.models import ChannelStats, ClientStats, NodeInfo, TopicStats


def producer(port: int = 4151, hostname: str = "vm", **fields: Any) -> NodeInfo:
    record = {
        "broadcast_address": "127.0.0.1",
        "hostname": hostname,
        "tcp_port": port - 1,
        "http_port": port,
        "version": "1.3.0",
    }
    return NodeInfo.from_json({**record, **fields})


def topic_stats(name: str = "orders", *channels: dict[str, Any], **fields: Any) -> TopicStats:
    return TopicStats.from_json({"topic_name": name, "channels": list(channels), **fields})


def channel_json(name: str = "billing", **fields: Any) -> dict[str, Any]:
    return {"channel_name": name, **fields}


def channel_stats(name: str = "billing", **fields: Any) -> ChannelStats:
    return ChannelStats.from_json(channel_json(name, **fields))


def latency_json(count: int, **values_ns: int) -> dict[str, Any]:
    """Return the JSON of LatencyStats with percentiles such as ``p99=1_000_000``."""
    percentiles = [{"quantile": int(name[1:]) / 100, "value": value} for name, value in values_ns.items()]
    return {"count": count, "percentiles": percentiles}


def consumer(
    name: str = "app",
    in_flight: int = 0,
    ready: int = 1,
    silent_s: float | None = 0.0,
    rate: float | None = 1.0,
) -> Consumer:
    """Return a connection of the consumer *name* to one node."""
    stats = ClientStats.from_json({"client_id": name, "in_flight_count": in_flight, "ready_count": ready})
    return Consumer("orders", "billing", ClientRecord.on(producer(), stats, 0.0), Activity(rate, silent_s))
