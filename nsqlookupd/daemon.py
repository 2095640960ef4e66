"""nsqlookupd as a whole: what it owns, and in which order that starts and stops."""

import asyncio
import gc
import json
import socket
from typing import Final

from nsqcore.cluster.http import ClusterHttp
from nsqcore.service.clock import steady_ns
from nsqcore.service.https import HttpListeners
from nsqcore.service.lifecycle import StartupError
from nsqcore.service.listen import TcpServer, bind
from nsqcore.service.logs import Log
from nsqcore.service.metrics import Metrics
from nsqcore.service.tls import reason, trust
from nsqcore.version import NSQ_VERSION, banner
from nsqlookupd.http import HttpApi
from nsqlookupd.metrics import NsqlookupdCollector
from nsqlookupd.neighbours import become_ready
from nsqlookupd.options import NsqlookupdOptions
from nsqlookupd.readiness import Patience, Readiness
from nsqlookupd.registry import Registry
from nsqlookupd.tcp import Connections

# A fleet is millions of objects that stay and make no cycles: looking through them is time lost.
GC_THRESHOLDS: Final = (100_000, 50, 100)


class Nsqlookupd:
    """The daemon. Both listeners are bound on creation, which is where StartupError comes from."""

    def __init__(self, options: NsqlookupdOptions, log: Log) -> None:
        log.info(banner("nsqlookupd"))
        self._options = options
        self._log = log
        self._becoming_ready: asyncio.Task[None] | None = None
        self.registry = Registry(options.inactive_producer_timeout, options.tombstone_lifetime)
        self.connections = Connections(self.registry, log)
        self.tcp = TcpServer("TCP", bind(options.tcp_address), log)
        patience = Patience(options.reconnect_interval, options.ready_timeout)
        self.readiness = Readiness(self.registry, patience, steady_ns())
        metrics = Metrics(NsqlookupdCollector(self.registry, self.readiness, self.connections))
        api = HttpApi(self.registry, self.readiness, metrics, log)
        try:
            # The trust is made here to be refused here; with it the other nsqlookupds are asked.
            self._trust = trust(options.tls_root_ca_file) if options.tls_root_ca_file else None
            self.http = HttpListeners(options, api.routes(), log, refuse_foreign=True)
        except (OSError, ValueError) as error:
            self.tcp.sock.close()
            raise StartupError(f"failed to build client TLS config - {reason(error)}") from error
        except StartupError:
            self.tcp.sock.close()
            raise
        identity = {
            "availability": True,
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": self.http.port,
            "tcp_port": self.tcp.port,
            "version": NSQ_VERSION,
        }
        self.connections.identity = json.dumps(identity, separators=(",", ":")).encode()

    async def start(self) -> None:
        await self.tcp.start(self.connections.accept)
        await self.http.start()
        self._becoming_ready = asyncio.create_task(
            become_ready(
                self.readiness,
                self._options.nsqlookupd_http_addresses,
                ClusterHttp(tls=self._trust.context if self._trust is not None else None),
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


async def run_until(stop: asyncio.Event, options: NsqlookupdOptions, log: Log) -> None:
    """Run the daemon until *stop* is set."""
    gc.set_threshold(*GC_THRESHOLDS)
    daemon = Nsqlookupd(options, log)
    await daemon.start()
    await stop.wait()
    await daemon.stop()
