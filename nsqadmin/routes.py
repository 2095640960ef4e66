"""The route table of nsqadmin."""

from typing import TYPE_CHECKING, Final

from nsqadmin.access.guard import Guard
from nsqadmin.api.cluster import Api
from nsqadmin.api.config import ConfigApi
from nsqadmin.api.graphite import GraphiteApi
from nsqadmin.changes.alerts import Alerts
from nsqadmin.changes.runner import ActionRunner
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.openapi import description
from nsqadmin.options import LiveOptions, NsqadminOptions
from nsqadmin.pages.audit import AuditPage
from nsqadmin.pages.forms import Forms
from nsqadmin.pages.history_charts import HistoryCharts
from nsqadmin.pages.messages import MessagePages
from nsqadmin.pages.nodes import NodePages
from nsqadmin.pages.overview import OverviewPages
from nsqadmin.pages.policies import PoliciesPage
from nsqadmin.pages.render import Renderer
from nsqadmin.pages.replies import Pages
from nsqadmin.pages.search import SearchPage
from nsqadmin.pages.static_files import StaticFiles
from nsqadmin.pages.topics import TopicPages
from nsqcore.cluster.http import ClusterHttp
from nsqcore.http.api import Request, Response, json_reply, plain_reply
from nsqcore.http.metrics_on_demand import MetricsOnDemand
from nsqcore.http.router import Route
from nsqcore.process.logs import Log

if TYPE_CHECKING:
    from nsqadmin.access.openid import OpenId
    from nsqcore.http.metrics import Metrics

_PAGES: Final = (
    OverviewPages,
    TopicPages,
    NodePages,
    AuditPage,
    SearchPage,
    Forms,
    PoliciesPage,
    MessagePages,
    Pages,
)


def routes(
    options: LiveOptions,
    cluster: Cluster,
    runner: ActionRunner,
    static: StaticFiles,
    http: ClusterHttp,
    log: Log,
    history: HistoryCharts,
    alerts: Alerts,
    open_id: "OpenId | None",
) -> list[Route]:
    render = Renderer(options, runner, static, alerts)

    def now() -> NsqadminOptions:
        return options.current

    def make() -> "Metrics":
        from nsqadmin.api.metrics import AdminCollector
        from nsqcore.http.metrics import Metrics

        return Metrics(AdminCollector(http, runner, alerts), "nsqadmin")

    metrics = MetricsOnDemand(make)

    async def ping(_: Request) -> Response:
        return plain_reply("OK")

    async def show_metrics(_: Request) -> Response:
        return metrics.reply()

    async def show_description(_: Request) -> Response:
        return json_reply(description(options.current.prefix))

    table = [
        Route("GET", "/ping", ping, head=True),
        Route("GET", "/metrics", show_metrics, logged=False, head=True),
        Route("GET", "/openapi.json", show_description),
        *Api(cluster, runner, log).routes(),
        *GraphiteApi(now, log).routes(),
        *ConfigApi(options, runner).routes(),
        *(route for kind in _PAGES for route in kind(now, cluster, runner, history, render, log).routes()),
        *static.routes(),
    ]
    if open_id is not None:
        # Its libraries are a sixth of what a start loads.
        from nsqadmin.pages.sign_in import SignIn

        table += SignIn(now, runner.rights, open_id, render, log).routes()
    return Guard(now, runner.rights, log).guarding(table)
