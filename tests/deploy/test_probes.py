"""What the kubelet asks is what the daemons answer; asked of real processes."""

import pytest

from tests.deploy.release import render
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def probes(chart):
    """Every probe of every daemon: component -> kind -> what is asked."""
    release = render(chart, {})
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    return {
        component: {
            kind: release.workload(component)["spec"]["template"]["spec"]["containers"][0][kind]
            for kind in kinds
        }
        for component in ("nsqd", "nsqlookupd", "nsqadmin")
    }


def start(cluster, component):
    if component == "nsqadmin":
        cluster.nsqlookupd()
    if component == "nsqlookupd":
        # There is nobody whose return it could wait for.
        return cluster.nsqlookupd("--reconnect-interval=0s")
    return getattr(cluster, component)()


@pytest.mark.parametrize("component", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_a_running_daemon_passes_its_probes(cluster, probes, component):
    daemon = start(cluster, component)

    for kind, probe in probes[component].items():
        if "httpGet" in probe:
            path = probe["httpGet"]["path"]
            wait_until(
                lambda path=path: daemon.request("GET", path)[0] == 200, f"{kind} of {component} is passed"
            )
        else:
            assert probe["tcpSocket"]["port"] in daemon.ports, f"{kind} of {component}"


def test_the_service_monitor_asks_a_path_nsqd_has(cluster, chart):
    (monitor,) = render(chart, {"nsqd": {"serviceMonitor": {"enabled": True}}}).of_kind("ServiceMonitor")

    status, figures = cluster.nsqd().request("GET", monitor["spec"]["endpoints"][0]["path"])

    assert status == 200
    assert b"# TYPE " in figures
