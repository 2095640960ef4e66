"""The route table of nsqadmin."""

from nsqadmin.api import Api
from nsqadmin.config_api import ConfigApi
from nsqadmin.desk import Desk
from nsqadmin.forms import Forms
from nsqadmin.graphite_api import GraphiteApi
from nsqadmin.metrics import AdminCollector
from nsqadmin.options import LiveOptions
from nsqadmin.pages import Pages
from nsqadmin.queries import Cluster
from nsqadmin.static_files import StaticFiles
from nsqadmin.trend import TrendBook
from nsqadmin.web import Renderer
from nsqcore.cluster.http import ClusterHttp
from nsqcore.service.httpapi import Request, Response, plain_reply
from nsqcore.service.logs import Log
from nsqcore.service.metrics import Metrics
from nsqcore.service.router import Route


def routes(
    options: LiveOptions, cluster: Cluster, desk: Desk, static: StaticFiles, http: ClusterHttp, log: Log
) -> list[Route]:
    render = Renderer(options, desk, static)
    pages = Pages(cluster, render, TrendBook(), log)
    metrics = Metrics(AdminCollector(http, desk))

    async def ping(_: Request) -> Response:
        return plain_reply("OK")

    async def show_metrics(_: Request) -> Response:
        return metrics.reply()

    return [
        Route("GET", "/ping", ping),
        Route("GET", "/metrics", show_metrics, logged=False),
        *Api(cluster, desk, log).routes(),
        *GraphiteApi(lambda: options.current, log).routes(),
        *ConfigApi(options, desk).routes(),
        *pages.routes(),
        *Forms(cluster, desk, pages, render, log).routes(),
        *static.routes(),
    ]
