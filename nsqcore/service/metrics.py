"""``/metrics`` for Prometheus: figures are read when somebody asks, so that the hot path pays nothing."""

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector


class Metrics:
    """The registry of one daemon: its own collector plus memory, CPU and descriptors of the process."""

    def __init__(self, collector: Collector) -> None:
        # Not the library's global registry: two daemons in one process must not see each other's figures.
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(collector)

    def reply(self) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
