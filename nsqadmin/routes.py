"""The route table of nsqadmin."""

from typing import TYPE_CHECKING

from nsqadmin.access.guard import Guard
from nsqadmin.api.cluster import Api
from nsqadmin.api.config import ConfigApi
from nsqadmin.api.graphite import GraphiteApi
from nsqadmin.changes.desk import Desk
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.options import LiveOptions
from nsqadmin.pages.forms import Forms
from nsqadmin.pages.pages import Pages
from nsqadmin.pages.render import Renderer
from nsqadmin.pages.static_files import StaticFiles
from nsqcore.cluster.http import ClusterHttp
from nsqcore.service.httpapi import Request, Response, plain_reply
from nsqcore.service.logs import Log
from nsqcore.service.metrics_on_demand import MetricsOnDemand
from nsqcore.service.router import Route

if TYPE_CHECKING:
    from nsqcore.service.metrics import Metrics


def routes(
    options: LiveOptions, cluster: Cluster, desk: Desk, static: StaticFiles, http: ClusterHttp, log: Log
) -> list[Route]:
    render = Renderer(options, desk, static)
    pages = Pages(cluster, render, log)

    def make() -> "Metrics":
        from nsqadmin.api.metrics import AdminCollector
        from nsqcore.service.metrics import Metrics

        return Metrics(AdminCollector(http, desk))

    metrics = MetricsOnDemand(make)

    async def ping(_: Request) -> Response:
        return plain_reply("OK")

    async def show_metrics(_: Request) -> Response:
        return metrics.reply()

    table = [
        Route("GET", "/ping", ping),
        Route("GET", "/metrics", show_metrics, logged=False),
        *Api(cluster, desk, log).routes(),
        *GraphiteApi(lambda: options.current, log).routes(),
        *ConfigApi(options, desk).routes(),
        *pages.routes(),
        *Forms(cluster, desk, pages, render, log).routes(),
        *static.routes(),
    ]
    return Guard(lambda: options.current, log).guarding(table)
