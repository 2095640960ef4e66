"""The broker's figures for Prometheus, read at scrape time."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nsqcore.service.metrics import PacedCollector
from nsqcore.service.pace import Pace
from nsqd.engine.broker import Broker
from nsqd.server.checkpoints import Checkpoints
from nsqd.server.health import Health
from nsqd.server.http_drain import Drain
from nsqd.server.lookup_peer import LookupPeers
from nsqd.server.tcp import Clients
from nsqd.server.turn import Turn
from nsqd.storage.topic_store import store_of

_TOPIC = ["topic"]
_CHANNEL = ["topic", "channel"]
# Topics or channels that are looked at in one go: some milliseconds.
_AT_ONCE: Final = 100


class NsqdCollector(PacedCollector):
    """One series per topic and per channel; nothing per client, so that they cannot grow without bound."""

    def __init__(
        self,
        broker: Broker,
        checkpoints: Checkpoints,
        clients: Clients,
        health: Health,
        lookups: LookupPeers,
        turn: Turn,
        drain: Drain,
    ) -> None:
        self._broker = broker
        self._checkpoints = checkpoints
        self._clients = clients
        self._health = health
        self._lookups = lookups
        self._turn = turn
        self._drain = drain

    async def read(self) -> list[Metric]:
        pace = Pace(_AT_ONCE)
        return [*self._node(), *await self._topics(pace), *await self._channels(pace)]

    def _node(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "nsqd_healthy", "1 while the disk takes writes and gives back what it has", float(self._health.ok)
        )
        yield GaugeMetricFamily(
            "nsqd_checkpoint_lag_seconds",
            "for how long what was finished could come back after a crash",
            self._checkpoints.lag_s,
        )
        yield GaugeMetricFamily(
            "nsqd_draining", "1 while publishes are refused, so that it empties", float(self._broker.draining)
        )
        yield GaugeMetricFamily(
            "nsqd_drain_remaining", "messages a drain still waits for, 0 without one", self._drain.remaining()
        )
        yield GaugeMetricFamily("nsqd_connections", "client connections open", len(self._clients.connections))
        yield CounterMetricFamily(
            "nsqd_connections_accepted", "client connections since start", self._clients.accepted
        )
        yield CounterMetricFamily("nsqd_fsyncs", "fsync rounds since start", self._turn.sync_count)
        yield CounterMetricFamily("nsqd_fsync_seconds", "time spent in them", self._turn.sync_seconds)
        peers = GaugeMetricFamily(
            "nsqd_lookupd_connected", "1 while registered with that nsqlookupd", labels=["address"]
        )
        for peer in self._lookups.peers():
            peers.add_metric([peer.address], float(peer.connected))
        yield peers

    async def _topics(self, pace: Pace) -> list[Metric]:
        depth = GaugeMetricFamily(
            "nsqd_topic_depth", "messages that wait for a first channel or for unpausing", labels=_TOPIC
        )
        paused = GaugeMetricFamily("nsqd_topic_paused", "1 while paused", labels=_TOPIC)
        readable = GaugeMetricFamily(
            "nsqd_topic_readable", "0 while messages that wait cannot be read from the disk", labels=_TOPIC
        )
        log_bytes = GaugeMetricFamily("nsqd_topic_log_bytes", "message data on disk", labels=_TOPIC)
        messages = CounterMetricFamily("nsqd_topic_messages", "messages published", labels=_TOPIC)
        message_bytes = CounterMetricFamily(
            "nsqd_topic_message_bytes", "bytes of their bodies", labels=_TOPIC
        )
        unreadable = {channel.topic_name for channel in self._broker.stalled}
        for name, topic in list(self._broker.topics.items()):
            await pace.done()
            depth.add_metric([name], topic.backlog.depth + len(topic.backlog.deferred))
            paused.add_metric([name], float(topic.paused))
            messages.add_metric([name], topic.message_count)
            message_bytes.add_metric([name], topic.message_bytes)
            store = store_of(topic)
            log_bytes.add_metric([name], store.size if store else 0)
            readable.add_metric([name], float(name not in unreadable))
        return [depth, paused, readable, log_bytes, messages, message_bytes]

    async def _channels(self, pace: Pace) -> list[Metric]:
        gauges = {
            "depth": "messages that wait",
            "in_flight": "messages delivered and not answered",
            "deferred": "messages held back until their time",
            "consumers": "subscribed connections",
            "paused": "1 while paused",
        }
        counters = {
            "messages": "messages owed since the channel exists",
            "requeued": "messages requeued by consumers",
            "returned": "messages given back because their consumer left",
            "timed_out": "messages not answered in time",
            "lost": "messages that were owed but are no longer readable",
        }
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            name: GaugeMetricFamily(f"nsqd_channel_{name}", text, labels=_CHANNEL)
            for name, text in gauges.items()
        }
        families |= {
            name: CounterMetricFamily(f"nsqd_channel_{name}", text, labels=_CHANNEL)
            for name, text in counters.items()
        }
        # Only where somebody asked for it: three more series per channel.
        zones = CounterMetricFamily(
            "nsqd_channel_delivered", "messages delivered near and far", labels=[*_CHANNEL, "to"]
        )
        near = self._broker.limits.topology_aware
        for topic in list(self._broker.topics.values()):
            for channel in list(topic.channels.values()):
                await pace.done()
                if near:
                    for place, count in zip(("zone", "region", "elsewhere"), channel.zones, strict=True):
                        zones.add_metric([topic.name, channel.name, place], count)
                values = {
                    "depth": channel.depth,
                    "in_flight": channel.in_flight.count,
                    "deferred": len(channel.deferred),
                    "consumers": len(channel.consumers),
                    "paused": float(channel.paused),
                    "messages": channel.message_count,
                    "requeued": channel.requeue_count,
                    "returned": channel.returned_count,
                    "timed_out": channel.timeout_count,
                    "lost": channel.lost_count,
                }
                for name, value in values.items():
                    families[name].add_metric([topic.name, channel.name], value)
        return [*families.values(), zones] if near else list(families.values())
