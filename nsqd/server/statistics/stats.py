"""The content of /stats, as values with the original's keys and order."""

import gc
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nsqclient.wire.durations import SECOND
from nsqclient.wire.version import NSQ_VERSION
from nsqcore.http.pace import Pace
from nsqd.engine import all_logs, promoted
from nsqd.engine.age import Ages
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.latency import NO_LATENCY
from nsqd.engine.topic import Topic
from nsqd.protocol.auth import Authorizations
from nsqd.protocol.identify import Upgrade
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.fsync import Fsync
from nsqd.server.health import Health
from nsqd.server.replication.service import Replication
from nsqd.server.tcp import ClientConnection, Clients
from nsqd.server.tls import described
from nsqd.server.watermark import Watermark
from nsqd.storage.topic_log import store_of

# How many topics, channels and clients are read in one go: some milliseconds.
_ITEMS_PER_TURN: Final = 100


@dataclass(frozen=True, slots=True)
class StatsFilter:
    """Which part of the statistics is wanted; empty names mean all."""

    topic: str = ""
    channel: str = ""
    include_clients: bool = True
    include_memory: bool = True


class StatsReport:
    """Reads the statistics of a running nsqd on request."""

    def __init__(
        self,
        broker: Broker,
        clients: Clients,
        health: Health,
        watermark: Watermark,
        fsync: Fsync,
        replication: Replication,
    ) -> None:
        self.broker = broker
        self.clients = clients
        self.health = health
        # In seconds since 1970.
        self.started_at = int(time.time())
        self.watermark = watermark
        self.fsync = fsync
        self.ages = Ages()
        self.replication = replication

    async def snapshot(self, wanted: StatsFilter) -> dict[str, Any]:
        """The body of ``/stats?format=json``; with many topics or clients other tasks run in between."""
        pace = Pace(_ITEMS_PER_TURN)
        self.ages.forget_deleted()
        result: dict[str, Any] = {
            "version": NSQ_VERSION,
            "health": str(self.health),
            "start_time": self.started_at,
            "topics": await self._topics(wanted, pace),
        }
        if wanted.include_memory:
            result["memory"] = memory()
        # As in the original, no producers are listed if the requested topic does not exist.
        known = result["topics"] is not None and wanted.include_clients
        result["producers"] = await self._producers(wanted, pace) or None if known else None
        if not wanted.topic:
            # Not in the original.
            result["disk"] = {
                # -1 while it is unknown.
                "free_bytes": self.watermark.free,
                "total_bytes": self.watermark.total,
                "fsync_p99_ns": int(self.fsync.percentile_s(0.99) * SECOND),
            }
            shown = self.replication.to_json()
            result["replicas"] = shown["replicas"]
            result["under_replicated"] = self.replication.primary.under_replicated()
            result["promoted"] = [
                {"identity": one["origin"], "pending": one["pending"]}
                for one in shown["copies"]
                if one["state"] != "replica"
            ]
        return result

    async def _topics(self, wanted: StatsFilter, pace: Pace) -> list[dict[str, Any]] | None:
        if wanted.topic and wanted.topic not in self.broker.topics:
            return None
        names = [wanted.topic] if wanted.topic else sorted(self.broker.topics)
        by_channel = self._connections_by_channel() if wanted.include_clients else {}
        shown: list[dict[str, Any]] = []
        for name in names:
            # It may have been deleted since.
            topic = self.broker.topics.get(name)
            if topic is not None and (not wanted.channel or wanted.channel in topic.channels):
                shown.append(self._topic(topic, wanted, by_channel))
                clients = sum(len(by_channel.get(channel, ())) for channel in topic.channels.values())
                await pace.done(1 + len(topic.channels) + clients)
        return shown

    def _topic(
        self, topic: Topic, wanted: StatsFilter, by_channel: dict[Channel, list[ClientConnection]]
    ) -> dict[str, Any]:
        names = [wanted.channel] if wanted.channel else sorted(topic.channels)
        latencies = [channel.latency for channel in topic.channels.values() if channel.latency is not None]
        store = store_of(topic)
        have, asked = (0, 0) if store is None else self.replication.primary.replicas_of_topic(store)
        failed = self.health.failed_fsyncs.get(topic.name)
        # Not in the original; shown where replicas are wanted.
        replicas = {"replicas_in_sync": have, "replicas_wanted": asked} if asked else {}
        return {
            "topic_name": topic.name,
            "channels": [self._channel(topic, topic.channels[name], wanted, by_channel) for name in names],
            # Deferred messages of the topic count here, because no other number includes them.
            "depth": all_logs.count(topic),
            "backend_depth": topic.backend_depth(topic.backlog),
            "message_count": topic.message_count,
            "message_bytes": topic.message_bytes,
            "paused": all_logs.is_paused(topic),
            "e2e_processing_latency": latencies[0].merged(latencies, clock_ns()) if latencies else NO_LATENCY,
            # Not in the original: dropped messages of those that wait for a first channel.
            "dropped_count": topic.dropped_count,
            # Why the topic accepts no publishes until a restart.
            **({"failed": failed} if failed else {}),
            # The part of `depth` from promoted copies.
            "promoted_depth": all_logs.promoted_count(topic),
            **replicas,
        }

    def _channel(
        self,
        topic: Topic,
        channel: Channel,
        wanted: StatsFilter,
        by_channel: dict[Channel, list[ClientConnection]],
    ) -> dict[str, Any]:
        promoted.gather_counts(channel)
        return {
            "channel_name": channel.name,
            "depth": all_logs.depth(channel, asks_holders=self.broker.awaits_channel_state),
            "backend_depth": topic.backend_depth(channel.backlog),
            "in_flight_count": all_logs.in_flight(channel),
            "deferred_count": all_logs.deferred(channel),
            "message_count": channel.message_count,
            **_by_zone(channel),
            "requeue_count": channel.requeue_count,
            "timeout_count": channel.timeout_count,
            "client_count": len(channel.consumers),
            "clients": [self._consumer(connection) for connection in by_channel.get(channel, [])]
            if wanted.include_clients
            else None,
            "paused": all_logs.is_paused(channel),
            "e2e_processing_latency": channel.latency.snapshot(clock_ns()) if channel.latency else NO_LATENCY,
            # Not in the original, which leaves the messages in flight at a consumer until they time out.
            "returned_count": channel.returned_count,
            "dropped_count": channel.dropped_count,
            "expired_count": channel.expired_count,
            "dead_count": channel.dead_count,
            # When the oldest pending message was published, in ns since 1970, or 0.
            "oldest_message_time": self.ages.oldest_ns(topic, channel, clock_ns()),
            # Messages of promoted copies: waiting, in flight and deferred; they are also counted above.
            "promoted_depth": all_logs.promoted_count(channel),
        }

    def _connections_by_channel(self) -> dict[Channel, list[ClientConnection]]:
        found: dict[Channel, list[ClientConnection]] = {}
        for connection in self.clients.connections:
            consumer = connection.session.consumer
            if consumer is not None and consumer.channel is not None:
                found.setdefault(consumer.channel, []).append(connection)
        return found

    async def _producers(self, wanted: StatsFilter, pace: Pace) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        for connection in list(self.clients.connections):
            if connection.session.pub_counts:
                shown.append(self._client(connection, wanted.topic))
            await pace.done()
        return shown

    def _consumer(self, connection: ClientConnection) -> dict[str, Any]:
        return self._client(connection, None)

    def _client(self, connection: ClientConnection, topic: str | None) -> dict[str, Any]:
        """One connection; *topic* None leaves out its publish counts, "" shows those of all topics."""
        session = connection.session
        identity, consumer = session.identity, session.consumer
        result: dict[str, Any] = {
            "client_id": identity.client_id,
            "hostname": identity.hostname,
            "version": "V2",
            "remote_address": connection.peer,
            "state": int(session.state),
            "ready_count": consumer.rdy if consumer else 0,
            "in_flight_count": consumer.in_flight if consumer else 0,
            "message_count": consumer.message_count if consumer else 0,
            "finish_count": consumer.finish_count if consumer else 0,
            "requeue_count": consumer.requeue_count if consumer else 0,
            "connect_ts": connection.connected_at,
            "sample_rate": session.settings.sample_rate,
            "deflate": Upgrade.DEFLATE in session.upgraded,
            "snappy": Upgrade.SNAPPY in session.upgraded,
            "user_agent": identity.user_agent,
            **_who(session.authorizations),
            "topology_zone": identity.topology_zone,
            "topology_region": identity.topology_region,
        }
        if topic is not None:
            # All topics that match; the original shows one of them.
            counts = [
                {"topic": name, "count": count}
                for name, count in session.pub_counts.items()
                if not topic or name == topic
            ]
            if counts:
                result["pub_counts"] = counts
        return result | described(connection.tls)


def _who(authorizations: Authorizations | None) -> dict[str, Any]:
    """The client's identity by the auth server; empty without grants from it."""
    if authorizations is None or not authorizations.grants:
        return {}
    who = {"auth_identity": authorizations.identity, "auth_identity_url": authorizations.identity_url}
    return {"authed": True} | {key: text for key, text in who.items() if text}


def memory() -> dict[str, int]:
    """The original's memory statistics, as far as Python has similar ones; in bytes unless named otherwise.

    The heap is the resident set of the process. The collector runs too rarely and too briefly to be timed.
    """
    resident = _resident_bytes()
    return {
        "heap_objects": sum(gc.get_count()),
        "heap_idle_bytes": max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident),
        "heap_in_use_bytes": resident,
        "heap_released_bytes": 0,
        "gc_pause_usec_100": 0,
        "gc_pause_usec_99": 0,
        "gc_pause_usec_95": 0,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _by_zone(channel: Channel) -> dict[str, int]:
    """Messages delivered in the zone, in the region and elsewhere; as in the original, 0 is left out."""
    zone, region, _ = channel.zones
    counts = {
        "zone_local_msg_count": zone,
        "region_local_msg_count": region,
        "global_msg_count": channel.delivered_count - zone - region,
    }
    return {name: count for name, count in counts.items() if count}
