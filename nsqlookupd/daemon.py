"""The daemon: its parts, and the order in which they start and stop."""

import asyncio
import gc
import json
import socket
from typing import TYPE_CHECKING, Final

from nsqclient.wire.version import NSQ_VERSION
from nsqcore.cluster.http import ClusterHttp
from nsqcore.http.https import HttpListeners
from nsqcore.http.metrics_on_demand import MetricsOnDemand
from nsqcore.process.clock import steady_ns
from nsqcore.process.logs import Log
from nsqlookupd.http import HttpApi
from nsqlookupd.neighbours import become_ready
from nsqlookupd.opening import OpenedPorts
from nsqlookupd.options import NsqlookupdOptions
from nsqlookupd.readiness import Patience, Readiness
from nsqlookupd.registry import Registry
from nsqlookupd.tcp import NsqdConnections

if TYPE_CHECKING:
    from nsqcore.http.metrics import Metrics

# A fleet is millions of long-lived objects without cycles: collecting them would only cost time.
GC_THRESHOLDS: Final = (100_000, 50, 100)


class Nsqlookupd:
    """The daemon, around ports that are already open."""

    def __init__(self, options: NsqlookupdOptions, log: Log, opened: OpenedPorts) -> None:
        self._options = options
        self._log = log
        self._becoming_ready: asyncio.Task[None] | None = None
        self.registry = Registry(options.inactive_producer_timeout, options.tombstone_lifetime)
        self.connections = NsqdConnections(self.registry, log)
        self.tcp = opened.tcp
        self._trusted = opened.trusted
        patience = Patience(options.reconnect_interval, options.ready_timeout)
        self.readiness = Readiness(self.registry, patience, steady_ns())
        api = HttpApi(self.registry, self.readiness, MetricsOnDemand(self._metrics), log)
        self.http = HttpListeners(
            opened.http, api.routes(), log, tls_required=options.tls_required, refuse_foreign=True
        )
        identity = {
            "availability": True,
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": self.http.port,
            "tcp_port": self.tcp.port,
            "version": NSQ_VERSION,
        }
        self.connections.identity = json.dumps(identity, separators=(",", ":")).encode()

    def _metrics(self) -> "Metrics":
        from nsqcore.http.metrics import Metrics
        from nsqlookupd.metrics import NsqlookupdCollector

        return Metrics(NsqlookupdCollector(self.registry, self.readiness, self.connections), "nsqlookupd")

    async def start(self) -> None:
        await self.tcp.start(self.connections.accept)
        await self.http.start()
        self._becoming_ready = asyncio.create_task(
            become_ready(
                self.readiness,
                self._options.nsqlookupd_http_addresses,
                ClusterHttp(tls=self._trusted.context if self._trusted is not None else None),
                self._log,
            ),
            name="becoming ready",
        )

    async def stop(self) -> None:
        """Close listeners and connections; nothing is saved, every nsqd announces itself again."""
        if self._becoming_ready is not None:
            self._becoming_ready.cancel()
            await asyncio.wait([self._becoming_ready])
        await self.http.close()
        await self.tcp.close()
        await self.connections.close_all()


async def run_until(stop: asyncio.Event, options: NsqlookupdOptions, log: Log, opened: OpenedPorts) -> None:
    """Run the daemon until *stop* is set."""
    gc.set_threshold(*GC_THRESHOLDS)
    daemon = Nsqlookupd(options, log, opened)
    await daemon.start()
    await stop.wait()
    await daemon.stop()
