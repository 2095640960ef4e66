"""nsqd as a whole: the parts it owns, and the order in which they start and stop."""

import asyncio
import dataclasses
import gc
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from nsqclient.wire.address import join_host_port
from nsqclient.wire.durations import SECOND
from nsqclient.wire.version import NSQ_VERSION
from nsqcore.http.api import tls_required
from nsqcore.http.metrics_on_demand import MetricsOnDemand
from nsqcore.http.server import Front, HttpServer
from nsqcore.options.tls_kinds import TlsRequired
from nsqcore.process.lifecycle import StartupError, handle_signal
from nsqcore.process.listen import TcpServer, listen_port
from nsqcore.process.logs import Log
from nsqcore.process.threads import start_pool
from nsqcore.process.tls import Certificates, watch
from nsqd.build import BUILD
from nsqd.engine.broker import Broker, Change, Event
from nsqd.log.ids import MessageIds
from nsqd.log.layout import NewerVersion
from nsqd.log.open_files import MAX_OPEN_FILES
from nsqd.options import NsqdOptions
from nsqd.policies.definition import BadPolicy
from nsqd.server.allocator import retain_freed_memory
from nsqd.server.auth import AuthServers
from nsqd.server.availability import Availability
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.clock import now_ns
from nsqd.server.fsync import THREADS as SYNC_THREADS
from nsqd.server.fsync import Fsync
from nsqd.server.health import Health
from nsqd.server.http.auth import HttpGuard
from nsqd.server.http.dead_letters import DeadLettersApi
from nsqd.server.http.drain import Drain
from nsqd.server.http.front import FastPublish
from nsqd.server.http.handling import HandlingApi
from nsqd.server.http.info import InfoApi
from nsqd.server.http.log import LogApi
from nsqd.server.http.messages import MessagesApi
from nsqd.server.http.policies import PoliciesApi
from nsqd.server.http.publish import PublishApi
from nsqd.server.http.replication import ReplicationApi
from nsqd.server.http.routes import routes
from nsqd.server.http.topics import TopicsApi
from nsqd.server.lookup.peer import LookupPeers
from nsqd.server.messages.finding import Finder
from nsqd.server.opening import OpenedNsqd
from nsqd.server.policies import Policies
from nsqd.server.replication.service import Replication
from nsqd.server.statistics.stats import StatsReport
from nsqd.server.statistics.statsd import Statsd, resolve_prefix
from nsqd.server.tcp import Clients
from nsqd.server.tls import to_replicas
from nsqd.server.topology_events import TopologyEvents
from nsqd.server.watermark import Watermark
from nsqd.server.write_batch import WriteBatch
from nsqd.storage import metadata
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.metadata import BadMetadata
from nsqd.storage.topic_log import store_of

if TYPE_CHECKING:
    from nsqcore.http.metrics import Metrics

# A broker makes few cycles and many objects: Python's default thresholds cost a third of the reading side.
GC_THRESHOLDS: Final = (100_000, 50, 100)
# How long a computing thread may hold up the event loop. Python's default is 5 ms, which one publish would
# wait several times.
SWITCH_S: Final = 0.001
_REPLICATION_THREADS: Final = 6


class Nsqd:
    """The broker daemon, around a data path and ports that are already open."""

    def __init__(self, options: NsqdOptions, log: Log, opened: OpenedNsqd) -> None:
        self.options = options = _announced(options, opened.ports)
        self.log = log
        self._lock = opened.lock
        self.certificates = opened.certificates
        tls = self.certificates.context if self.certificates is not None else None
        self.trusted = opened.trusted
        self.health = Health()
        # Clients need most of the descriptors.
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files = MAX_OPEN_FILES if most == resource.RLIM_INFINITY else min(most // 4, MAX_OPEN_FILES)
        storage = StorageOptions(options.max_bytes_per_file, open_files=open_files)
        self.data = DataPath(opened.path, storage, log.warning, node_id=options.node_id)
        self.broker = Broker(MessageIds(options.node_id), options.limits(), self.data.create_log)
        self.fsync = Fsync(
            self.data,
            self.health,
            log,
            sync_every=options.sync_every,
            threads=start_pool(SYNC_THREADS + 1, "fsync"),
        )
        self.peer_certificates = to_replicas(options)
        self.replication = Replication(
            options,
            self.broker,
            self.data,
            self.fsync,
            log,
            # The turn and the lookups are made later.
            lambda: self.write_batch.request_turn(),  # noqa: PLW0108
            server_tls=tls,
            client_tls=None if self.peer_certificates is None else self.peer_certificates.context,
            look_up=lambda identities: self.lookups.addresses_of(identities),  # noqa: PLW0108
            candidates=lambda: self.lookups.candidates(),  # noqa: PLW0108
            threads=start_pool(_REPLICATION_THREADS, "replication") if options.cluster_secret_file else None,
        )
        self.write_batch = WriteBatch(
            self.broker,
            self.data,
            self.health,
            log,
            self.fsync,
            self.replication,
            node=options.broadcast_address,
            # A reply that waits for a replica comes too late for busy polling.
            busy_poll_ns=0 if options.replicas else options.busy_poll,
            on_event=self._on_event,
        )
        self.policies = Policies(
            self.broker,
            self.data.disk,
            opened.path,
            options.policies_file,
            log,
            ask_turn=self.write_batch.request_turn,
        )
        self.auth = AuthServers(
            options.auth_http_address,
            log,
            method=options.auth_http_request_method,
            connect_timeout_s=options.http_client_connect_timeout / SECOND,
            request_timeout_s=options.http_client_request_timeout / SECOND,
            tls=self.trusted.context if self.trusted is not None else None,
        )
        self.guard = HttpGuard(self.auth) if options.http_auth else None
        self.clients = Clients(self.broker, self.write_batch, log, tls, self.auth, self.replication.accept)
        self.availability = Availability(self.broker, self.health, self.replication)
        self.lookups = LookupPeers(
            options.lookupd_tcp_address,
            self._identity,
            self._registrations,
            log,
            http_connect_timeout_s=options.http_client_connect_timeout / SECOND,
            http_request_timeout_s=options.http_client_request_timeout / SECOND,
            tls=self.trusted.context if self.trusted is not None else None,
        )
        self.checkpoints = Checkpointer(
            self.broker, self.data, self.health, log, self.replication.checkpointed
        )
        self.changes = TopologyEvents(
            self.broker,
            self.data,
            self.lookups,
            self.checkpoints,
            self.health,
            log,
            ask_turn=self.write_batch.request_turn,
            percentiles=options.e2e_processing_latency_percentile,
            window_ns=options.e2e_processing_latency_window_time,
        )
        self.watermark = Watermark(
            options.disk_watermark, self.broker, self.data.disk, self.data.path, self.health, log
        )
        self._stats = StatsReport(
            self.broker, self.clients, self.health, self.watermark, self.fsync, self.replication
        )
        self.finder = Finder(self.data.disk, start_pool(1, "search"))
        self.drain = Drain(self.broker, self.clients, log, self._close_idle_publishers)
        self.info = InfoApi(
            options,
            opened.ports,
            self._stats,
            MetricsOnDemand(self._metrics),
            self.availability,
            self.lookups,
            log,
        )
        self.fast_publish = FastPublish(self.broker, self.write_batch)
        self.tcp, self.http, self.https = self._listen(opened, tls)

    def _metrics(self) -> "Metrics":
        from nsqcore.http.metrics import Metrics
        from nsqd.server.statistics.metrics import NsqdCollector

        return Metrics(NsqdCollector(self._stats, self.checkpoints, self.lookups, self.drain), "nsqd", BUILD)

    def _listen(
        self, opened: OpenedNsqd, tls: ssl.SSLContext | None
    ) -> tuple[TcpServer, HttpServer | None, HttpServer | None]:
        options, log, http, https = self.options, self.log, opened.http, opened.https
        publish = PublishApi(self.broker, self.write_batch, self.log)
        topics = TopicsApi(
            self.broker, self.data, self.write_batch, self.fsync, self.changes, self.checkpoints, self.log
        )
        by_position = LogApi(self.broker, self.data, self.write_batch)
        policies = PoliciesApi(self.policies, self.log)
        messages = MessagesApi(self.broker, self.finder)
        letters = DeadLettersApi(self.broker, self.finder, self.write_batch, self.log)
        handling = HandlingApi(self.broker, self.finder, self.write_batch, self.log)
        table = routes(
            self.info,
            publish,
            topics,
            by_position,
            messages,
            handling,
            self.drain,
            policies,
            letters,
            ReplicationApi(self.replication),
        )
        # The front recognises plain publishes without reading their headers, which would have the secret.
        front: Front | None = self.fast_publish.wrap
        if self.guard is not None:
            table, front = self.guard.routes(table), None
        leaving = lambda: self.broker.leaving  # noqa: E731
        refusal = None
        if options.tls_required is TlsRequired.TCP_AND_HTTP:
            refusal, front = tls_required((listen_port(https) or 0) if https else 0), None
        return (
            TcpServer("TCP", opened.tcp, log),
            HttpServer(http, table, log, refusal=refusal, front=front, refuse_foreign=True, leaving=leaving)
            if http
            else None,
            HttpServer(
                [https], table, log, kind="HTTPS", ssl_context=tls, refuse_foreign=True, leaving=leaving
            )
            if https
            else None,
        )

    def _close_idle_publishers(self) -> None:
        """Close the connections of publishers that wait for no answer: they go to other nodes."""
        self.clients.close_idle_publishers()
        self.fast_publish.close_idle()
        for server in (self.http, self.https):
            if server is not None:
                server.close_idle()

    # --- start and stop ---

    async def run(self, stop: asyncio.Event) -> None:
        """Load, serve until *stop* is set, save."""
        sys.setswitchinterval(SWITCH_S)
        retain_freed_memory()
        if self.options.policies_file:
            # Before the file is read first. Without a policies file SIGHUP stops the daemon.
            handle_signal(signal.SIGHUP, self.policies.reload)
        self._load()
        # Before any client is served, nsqd.dat must name the running version and every topic found.
        await self.changes.start()
        # Objects made by a start stay, so the garbage collector must never scan them.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        self.info.loaded = True
        statsd = Statsd(self._stats, self.options, self.log) if self.options.statsd_address else None
        if statsd is not None:
            await statsd.begin()
        # Must be known before the first publish.
        await self.watermark.check()
        self.lookups.start()
        await self.tcp.start(self.clients.accept)
        if self.http is not None:
            await self.http.start()
        if self.https is not None:
            await self.https.start()
        self.info.serving = True
        tasks = [
            asyncio.create_task(self.checkpoints.run(), name="checkpoints"),
            asyncio.create_task(self._sync_in_time(), name="sync timer"),
            asyncio.create_task(self.drain.watch(), name="drain"),
            asyncio.create_task(self.watermark.watch(), name="disk watermark"),
            asyncio.create_task(self.availability.report(self.lookups), name="availability"),
            asyncio.create_task(watch(self._watched(), self.log), name="certificates"),
            asyncio.create_task(self.replication.watch(self.checkpoints), name="replication"),
            asyncio.create_task(stop.wait(), name="until stopped"),
        ]
        if statsd is not None:
            tasks.append(asyncio.create_task(statsd.run(), name="statsd"))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.info.serving = False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stop()
        for task in done:
            # A task of ours that ended without being stopped is a fault: raise its error.
            if not stop.is_set():
                task.result()

    def _load(self) -> None:
        try:
            listed = metadata.load(self.data.disk, self.data.path, self.log.warning)
        except BadMetadata as error:
            raise StartupError(f"failed to load metadata - {error}") from error
        try:
            self.policies.load()
        except BadPolicy as error:
            raise StartupError(str(error)) from error
        self.replication.before_load()
        try:
            self.data.restore(self.broker, listed, now_ns())
        except (OSError, NewerVersion) as error:
            raise StartupError(f"failed to load {self.data.path} - {error}") from error
        for topic in self.broker.topics.values():
            for channel in topic.channels.values():
                self.changes.measure(channel)
        self.broker.events.clear()
        self.replication.start(
            join_host_port(self.options.broadcast_address, self.options.broadcast_tcp_port)
        )
        self.write_batch.request_turn()

    async def _stop(self) -> None:
        self.drain.log_remaining()
        await self.tcp.close()
        self.write_batch.run()
        # In strict mode publishers wait for this; their connections are closed after they were answered.
        await self.fsync.synced()
        await self.replication.wait_until_answered()
        self.clients.close_all()
        if self.http is not None:
            await self.http.close()
        if self.https is not None:
            await self.https.close()
        self.fast_publish.close()
        self.finder.close()
        self.write_batch.run()
        await self.changes.finish()
        self.log.info("NSQ: closing topics")
        await self.fsync.synced()
        self.write_batch.close()
        self.fsync.close()
        await self.checkpoints.write_last()
        for topic in self.broker.topics.values():
            for one in (topic, *topic.promoted):
                store = store_of(one)
                if store is not None:
                    store.appender.close()
        self.log.info("NSQ: stopping subsystems")
        if self.guard is not None:
            await self.guard.close()
        await self.replication.close()
        await self.auth.close()
        await self.lookups.stop()
        os.close(self._lock)
        self.log.info("NSQ: bye")

    async def _sync_in_time(self) -> None:
        """Sync all written messages at least once in --sync-timeout."""
        while True:
            await asyncio.sleep(self.options.sync_timeout / SECOND)
            await self.fsync.synced()

    def _watched(self) -> list[Certificates]:
        found = (self.certificates, self.trusted, self.peer_certificates)
        return [one for one in found if one is not None]

    # --- methods for other objects ---

    def _on_event(self, event: Event) -> None:
        if event.change is Change.TOPIC_CREATED:
            self.replication.topic_created(event.topic)
        elif event.change is Change.TOPIC_DELETED:
            # A producer that does not publish to it again would keep the topic and its messages in memory.
            self.clients.forget_publish_lines()
            self.replication.topic_deleted(event.topic)
        self.changes.handle(event)

    def _identity(self) -> dict[str, Any]:
        options = self.options
        member: dict[str, Any] = {}
        if self.replication.is_on:
            # The original's nsqlookupd ignores these two keys.
            identity = self.data.reservation.identity.hex()
            member = {"identity": identity, "accepts_replicas": self.replication.accepts}
        return {
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": options.broadcast_http_port,
            "tcp_port": options.broadcast_tcp_port,
            "topology_region": options.topology_region,
            "topology_zone": options.topology_zone,
            "version": NSQ_VERSION,
            **member,
        }

    def _registrations(self) -> Iterator[tuple[str, list[str]]]:
        for topic in list(self.broker.topics.values()):
            yield topic.name, list(topic.channels)


def _announced(options: NsqdOptions, ports: tuple[int, int]) -> NsqdOptions:
    """The options with the bound ports as broadcast ports where none was given, and the statsd prefix."""
    tcp_port, http_port = ports
    options = dataclasses.replace(
        options,
        broadcast_tcp_port=options.broadcast_tcp_port or max(0, tcp_port),
        broadcast_http_port=options.broadcast_http_port or max(0, http_port),
    )
    prefix = resolve_prefix(options.statsd_prefix, options.broadcast_address, options.broadcast_http_port)
    return dataclasses.replace(options, statsd_prefix=prefix)
