"""The metrics of nsqlookupd for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqlookupd.readiness import Readiness
from nsqlookupd.registry import Registry
from nsqlookupd.tcp import NsqdConnections


class NsqlookupdCollector(Collector):
    def __init__(self, registry: Registry, readiness: Readiness, connections: NsqdConnections) -> None:
        self._registry = registry
        self._readiness = readiness
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        counts = self._registry.counts()
        yield GaugeMetricFamily(
            "nsqlookupd_ready",
            "1 when the nsqds known before the start have reconnected",
            int(self._readiness.ready),
        )
        yield GaugeMetricFamily(
            "nsqlookupd_unavailable_peers",
            "nsqd connections that take no publishes (draining, unhealthy)",
            counts["unavailable"],
        )
        # One sample for each metric: labels for topics and nodes would grow without bound.
        yield GaugeMetricFamily("nsqlookupd_peers", "nsqd connections that identified", counts["peers"])
        yield GaugeMetricFamily("nsqlookupd_topics", "topics known", counts["topics"])
        yield GaugeMetricFamily("nsqlookupd_channels", "channels known", counts["channels"])
        yield GaugeMetricFamily(
            "nsqlookupd_registrations", "pairs of topic and nsqd connection", counts["registrations"]
        )
        yield GaugeMetricFamily(
            "nsqlookupd_tcp_connections", "open TCP connections, identified or not", len(self._connections)
        )
        yield CounterMetricFamily(
            "nsqlookupd_commands", "commands received over TCP", self._connections.commands_total
        )
        yield CounterMetricFamily(
            "nsqlookupd_protocol_errors", "errors sent to TCP peers", self._connections.errors_total
        )
