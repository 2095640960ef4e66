"""nsqadmin's own metrics for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqadmin.changes.alerts import Alerts
from nsqadmin.changes.runner import ActionRunner
from nsqcore.cluster.http import ClusterHttp


class AdminCollector(Collector):
    def __init__(self, http: ClusterHttp, runner: ActionRunner, alerts: Alerts) -> None:
        self._http = http
        self._alerts = alerts
        self._runner = runner

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "nsqadmin_node_requests", "requests made to nsqd and nsqlookupd", labels=["outcome"]
        )
        requests.add_metric(["ok"], self._http.answered)
        requests.add_metric(["refused"], self._http.refused)
        requests.add_metric(["unreachable"], self._http.unreachable)
        yield requests
        actions = CounterMetricFamily("nsqadmin_admin_actions", "changes made by admins", labels=["action"])
        for action, count in sorted(self._runner.counts.items()):
            actions.add_metric([action], count)
        yield actions
        problems = GaugeMetricFamily(
            "nsqadmin_problem",
            "current problems: 1, or 0 while muted",
            labels=["state", "topic", "channel", "node"],
        )
        for one in self._alerts.now:
            value = 0.0 if self._alerts.muted_until(one) else 1.0
            problems.add_metric([one.kind, one.topic, one.channel, one.node], value)
        yield problems
