"""Real daemons answer the probes that the kubelet sends."""

import pytest

from tests.deploy.release import render
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def probes(chart):
    """Every probe of every daemon: component -> kind -> probe."""
    release = render(chart, {})
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    return {
        component: {kind: release.container(component)[kind] for kind in kinds}
        for component in ("nsqd", "nsqlookupd", "nsqadmin")
    }


def start(cluster, component):
    if component == "nsqadmin":
        cluster.nsqlookupd()
    if component == "nsqlookupd":
        # There is no daemon whose reconnection it has to wait for.
        return cluster.nsqlookupd("--reconnect-interval=0s")
    return getattr(cluster, component)()


@pytest.mark.parametrize("component", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_running_daemon_passes_its_probes_and_is_scraped(cluster, chart, probes, component):
    daemon = start(cluster, component)

    for kind, endpoints in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        monitor = render(chart, {"monitoring": {"monitors": {"kind": kind}}})
        (endpoint,) = monitor.named(kind, f"demo-nsq-{component}")["spec"][endpoints]
        status, metrics = daemon.request("GET", endpoint["path"])
        assert (status, b"# TYPE " in metrics) == (200, True)
    for kind, probe in probes[component].items():
        if "httpGet" in probe:
            path = probe["httpGet"]["path"]
            wait_until(
                lambda path=path: daemon.request("GET", path)[0] == 200, f"{kind} of {component} is passed"
            )
        else:
            assert probe["tcpSocket"]["port"] in daemon.ports, f"{kind} of {component}"


@pytest.mark.parametrize("base_path", ["nsq", "/a.b/"])
def test_nsqadmin_below_base_path_answers_probes_and_scrapes(cluster, chart, base_path):
    values = {
        "nsqadmin": {"config": {"base-path": base_path}},
        "monitoring": {"monitors": {"kind": "ServiceMonitor"}},
    }
    release = render(chart, values)
    containers = release.pod("nsqadmin")["containers"]
    (endpoint,) = release.named("ServiceMonitor", "demo-nsq-nsqadmin")["spec"]["endpoints"]
    paths = {endpoint["path"]} | {
        container[kind]["httpGet"]["path"]
        for container in containers
        for kind in ("readinessProbe", "livenessProbe")
    }
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--base-path={base_path}")

    assert {path: admin.request("GET", path)[0] for path in paths} == dict.fromkeys(paths, 200)
