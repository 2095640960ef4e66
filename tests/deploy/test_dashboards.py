"""The Grafana dashboards: Prometheus understands each query, and its metrics exist."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from tests.deploy.prometheus import metrics_in, problems, snapshot
from tests.deploy.release import CHART, render
from tests.support.processes import Cluster
from tests.support.waiting import wait_until

NAMES = ("cluster", "node", "topic")
FOREIGN = {"kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}


def dashboard(name):
    return json.loads((CHART / "files" / "dashboards" / f"{name}.json").read_text())


def queries(name):
    return [target["expr"] for panel in dashboard(name)["panels"] for target in panel["targets"]]


def variables(name):
    return [each for each in dashboard(name)["templating"]["list"] if each["type"] == "query"]


def as_prometheus_reads_it(query):
    """A query with Grafana's variables replaced by values."""
    query = re.sub(r"\$__(rate_interval|range)", "5m", query)
    return re.sub(r"\$(namespace|pod|topic)", "x", query)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The metrics of the daemons: metric -> names of its labels."""
    folder = tmp_path_factory.mktemp("dashboards")
    (folder / "secret").write_text("s" * 64)
    cluster = Cluster(folder / "cluster")
    yield series_of(cluster, f"--cluster-secret-file={folder / 'secret'}")
    cluster.close()


def series_of(cluster, secret):
    lookup = cluster.nsqlookupd()
    replica = cluster.nsqd(secret, "--node-id=2")
    nsqd = cluster.nsqd(secret, "--node-id=1", "--replicas=1", f"--replica={replica.tcp_address}")
    wait_until(
        lambda: [one for one in nsqd.get("/replication")["replicas"] if one["identity"]],
        "a replica is chosen",
    )
    nsqd.post("/topic/create?topic=orders")
    nsqd.post("/channel/create?topic=orders&channel=billing")
    found: dict[str, set[str]] = {}
    for daemon in (lookup, nsqd):
        for series in snapshot(daemon, "pod"):
            name, _, labels = series.partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_dashboard_files_equal_script_output():
    script = CHART.parents[2] / "scripts" / "dashboards.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_queries_are_read_by_prometheus(tmp_path, name):
    rules = [
        {"record": f"panel:{number}", "expr": as_prometheus_reads_it(query)}
        for number, query in enumerate(queries(name))
    ]

    assert len(rules) > 10
    assert problems(tmp_path, yaml.safe_dump({"groups": [{"name": name, "rules": rules}]})) == ""


@pytest.mark.parametrize("name", NAMES)
def test_queries_use_metrics_and_labels_that_exist(served, name):
    for query in [*queries(name), *(each["definition"] for each in variables(name))]:
        metrics = metrics_in(query)
        assert metrics <= served.keys() | FOREIGN, query
        assert metrics
        grouped = {
            label.strip() for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(",")
        }
        for metric in metrics - FOREIGN:
            assert grouped <= served[metric] | {"persistentvolumeclaim"}, query


@pytest.mark.parametrize("name", NAMES)
def test_used_variables_are_defined(name):
    used = {word for query in queries(name) for word in re.findall(r"\$([a-z]+)\b", query)}

    assert used <= {each["name"] for each in variables(name)}


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_lie_on_each_other(name):
    taken = set()
    for panel in dashboard(name)["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells


def test_metrics_of_broker_are_in_dashboard_or_alert(served):
    shown = {metric for name in NAMES for query in queries(name) for metric in metrics_in(query)}
    alerts = metrics_in((CHART / "files" / "alerts.yaml").read_text())
    statistics = {name for name in served if name.startswith("nsqd_") and not name.endswith("_created")}

    # nsqd_build_info has its information in labels, not in its value.
    assert statistics - shown - alerts - {"nsqd_build_info"} == set()


def test_grafana_finds_each_by_its_label(chart):
    release = render(chart, {"monitoring": {"dashboards": {"enabled": True}}})
    found = {thing["metadata"]["name"]: thing for thing in release.of_kind("ConfigMap")}

    assert list(found) == [f"demo-nsq-dashboard-{name}" for name in NAMES]
    for name in NAMES:
        thing = found[f"demo-nsq-dashboard-{name}"]
        assert thing["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(thing["data"][f"nsq-{name}.json"]) == dashboard(name)
