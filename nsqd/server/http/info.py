"""GET /ping /info /stats /metrics /config, and the probes of an orchestrator."""

import json
import socket
import time
from dataclasses import replace
from typing import Any

from nsqclient.wire.version import NSQ_VERSION
from nsqcore.http.api import (
    FALSE,
    ApiError,
    Request,
    Response,
    json_reply,
    paced_json_reply,
    plain_reply,
    text_reply,
)
from nsqcore.http.metrics_on_demand import MetricsOnDemand
from nsqcore.http.pace import Pace
from nsqcore.options.options import config_value
from nsqcore.process.logs import Log, parse_log_level
from nsqd.build import BUILD
from nsqd.options import NsqdOptions
from nsqd.server.availability import Availability
from nsqd.server.lookup.peer import LookupPeers
from nsqd.server.statistics.stats import StatsFilter, StatsReport
from nsqd.server.statistics.stats_text import render

_NS_PER_MS = 1_000_000
# How many topics or clients are written in one go: some milliseconds.
_ITEMS_PER_TURN = 50


class InfoApi:
    """The handlers for requests about nsqd itself."""

    def __init__(
        self,
        options: NsqdOptions,
        ports: tuple[int, int],
        stats: StatsReport,
        metrics: MetricsOnDemand,
        availability: Availability,
        lookups: LookupPeers,
        log: Log,
    ) -> None:
        """*ports* are the bound ports (tcp, http)."""
        self._options = options
        self._ports = ports
        self._stats = stats
        self._metrics = metrics
        self._availability = availability
        self._lookups = lookups
        self._log = log
        # How far the daemon has started, for the probes.
        self.loaded = False
        self.serving = False

    async def ping(self, _request: Request) -> Response:
        health = self._stats.health
        return plain_reply(str(health), 200 if health.ok else 500)

    async def live(self, _request: Request) -> Response:
        """OK unless a restart would help: the event loop answers, and no fsync has failed."""
        reason = self._stats.health.restart_reason
        return plain_reply(f"NOK - {reason}", 503) if reason else plain_reply("OK")

    async def ready(self, _request: Request) -> Response:
        """OK while publishes are taken: started, neither draining nor stopping, healthy, replicas in sync."""
        reason = self._availability.obstacle()[1] if self.serving else "starting or stopping"
        if reason:
            return plain_reply(f"NOK - {reason}", 503)
        few = self._stats.replication.primary.under_replicated()
        if few:
            topics = "1 topic has" if few == 1 else f"{few} topics have"
            return plain_reply(f"OK - {topics} fewer replicas than wanted")
        return plain_reply("OK")

    async def started(self, _request: Request) -> Response:
        """OK once the data path is loaded."""
        return plain_reply("OK") if self.loaded else plain_reply("NOK - loading", 503)

    async def info(self, _request: Request) -> Response:
        options = self._options
        tcp_port, http_port = self._ports
        return json_reply(
            {
                "version": NSQ_VERSION,
                "broadcast_address": options.broadcast_address,
                "hostname": socket.gethostname(),
                "http_port": http_port,
                "tcp_port": tcp_port,
                "start_time": self._stats.started_at,
                "max_heartbeat_interval": options.max_heartbeat_interval,
                "max_output_buffer_size": options.max_output_buffer_size,
                "max_output_buffer_timeout": options.max_output_buffer_timeout,
                "max_deflate_level": options.max_deflate_level,
                "topology_zone": options.topology_zone,
                "topology_region": options.topology_region,
                "build": BUILD,
            }
        )

    async def stats(self, request: Request) -> Response:
        query = request.query
        wanted = StatsFilter(
            topic=query.get("topic", ""),
            channel=query.get("channel", ""),
            include_clients=query.get("include_clients") not in FALSE,
            include_memory=query.get("include_mem") not in FALSE,
        )
        snapshot = await self._stats.snapshot(wanted)
        if query.get("format") == "json":
            return await paced_json_reply(snapshot)
        pace = Pace(_ITEMS_PER_TURN)
        pieces: list[str] = []
        for piece in render(snapshot, time.time_ns()):
            pieces.append(piece)
            await pace.done()
        return text_reply("".join(pieces))

    async def metrics(self, _request: Request) -> Response:
        return await self._metrics.paced_reply()

    async def get_config(self, request: Request) -> Response:
        return self._config(request.params["opt"])

    async def put_config(self, request: Request) -> Response:
        body = await request.read(self._options.max_msg_size, "INVALID_VALUE")
        if not body:
            raise ApiError(413, "INVALID_VALUE")
        name = request.params["opt"]
        try:
            self._set_option(name, body.decode())
        except KeyError as error:
            raise ApiError(400, "INVALID_OPTION") from error
        except ValueError as error:
            raise ApiError(400, "INVALID_VALUE") from error
        return self._config(name)

    def _set_option(self, name: str, text: str) -> None:
        """Change an option at run time. Raises KeyError for any other option, ValueError for a bad value."""
        if name == "nsqlookupd_tcp_addresses":
            addresses = parse_addresses(text)
            self._options = replace(self._options, lookupd_tcp_address=addresses)
            self._lookups.set_addresses(addresses)
        elif name == "log_level":
            level = parse_log_level(text)
            self._options = replace(self._options, log_level=level)
            self._log.set_level(level)
        else:
            raise KeyError(name)

    def _config(self, name: str) -> Response:
        try:
            value = config_value(self._options, name)
        except KeyError as error:
            raise ApiError(400, "INVALID_OPTION") from error
        return text_reply(value) if isinstance(value, str) else json_reply(value)


def parse_addresses(text: str) -> tuple[str, ...]:
    """Parse a JSON list of strings, or null for none. Raises ValueError."""
    try:
        value: Any = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("not a list of strings")
    return tuple(value)
