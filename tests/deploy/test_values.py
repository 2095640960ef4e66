"""The values that the chart accepts, and the sentence with which it refuses others."""

import json
import subprocess
import sys

import pytest
import yaml
from helm_python import HelmError

from tests.deploy.release import CHART, render


def path_of(path: str, value: object) -> dict[str, object]:
    """Return ``{"a": {"b": value}}`` for ``a.b``."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", 3),
        ("nsqd.replicas", 0),
        ("nsqd.replicas", 1025),
        ("nsqd.replicas", "two"),
        ("nsqd.replica", 2),
        ("nsqd.config.mem-queue-size", -1),
        ("nsqd.config.mem-queue-size", "10000"),
        ("nsqd.config.msg-timeout", "60"),
        ("nsqd.config.msg-timeout", 60),
        ("nsqd.config.message-timeout", "60s"),
        ("nsqd.config.broadcast-address", "elsewhere"),
        ("nsqd.config.data-path", "/elsewhere"),
        ("nsqd.config.e2e-processing-latency-percentile", [99]),
        ("nsqd.config.log-level", "warning"),
        ("nsqd.extraArgs", "--snappy=false"),
        ("nsqd.preStopSeconds", 0),
        ("nsqd.drain.enabled", "yes"),
        ("nsqd.drain.timeoutSeconds", 0),
        ("nsqd.drain.timeout", 60),
        ("nsqd.persistence.size", "10 GB"),
        ("nsqd.persistence.accessModes", []),
        ("nsqd.podDisruptionBudget.maxUnavailable", "one"),
        ("nsqd.podDisruptionBudget.minAvailable", 1),
        ("monitoring.monitors.interval", "often"),
        ("monitoring.monitors.kind", "PodMonitors"),
        ("monitoring.rules.disabled", ["NsqNoConsumer"]),
        ("monitoring.rules.thresholds.diskFree", 10),
        ("nsqd.merge.statefulset", {}),
        ("nsqd.outside.type", "ClusterIP"),
        ("nsqd.updateStrategy.type", "Recreate"),
        ("nsqadmin.openid.issuerUrl", "accounts.example.com"),
        ("nsqadmin.route.hostnames", ["a"]),
        ("archive.timeoutSeconds", 0),
        ("nsqd.resources.limits.memory", "1 GiB"),
        ("nsqd.resources.memory", "1Gi"),
        ("nsqd.tolerations", [{"key": "a", "operator": "Exist"}]),
        ("nsqd.topologySpreadConstraints", [{"maxSkew": 1}]),
        ("nsqd.affinity.podAntiaffinity", {}),
        ("nsqd.podLabels", {"app.kubernetes.io/name": "other"}),
        ("nsqlookupd.replicas", 0),
        ("nsqlookupd.config.tombstone-lifetime", "soon"),
        ("nsqlookupd.persistence", {}),
        ("nsqadmin.enabled", "yes"),
        ("nsqadmin.config.admin-user", "anna"),
        ("nsqadmin.ingress.host", "a"),
        ("image.pullPolicy", "Sometimes"),
        ("image.digest", "sha256:abc"),
        ("nsqd.extraEnv", [{"value": "b"}]),
        ("nsqd.replication.replicas", -1),
        ("nsqd.replication.missing", "perhaps"),
        ("nsqd.decommission.claims", ["Data"]),
        ("nsqd.drain.decommission", "yes"),
        ("nsqadmin.route", {"enabled": True, "hosts": ["a.example.com"]}),
        ("archive.topics", [{"name": "a"}]),
        ("archive.topics", [{"name": "Not A Name", "topic": "t", "channel": "c"}]),
        ("archive.topics", [{"name": "a", "topic": "a b", "channel": "c"}]),
        ("securityContext.runAsUser", 0),
        ("tls.certManager.privateKey", {"algorithm": "RSA", "size": 256}),
        ("tls.certManager.privateKey", {"algorithm": "ECDSA", "size": 2048}),
        ("clusterDomain", ""),
        ("fullnameOverride", "Not_A_Name"),
        ("test.messages", 0),
    ],
)
def test_wrong_value_is_refused_by_its_name(chart, path, value):
    with pytest.raises(HelmError) as refusal:
        render(chart, path_of(path, value))

    *above, key = path.split(".")
    # For an unknown key the refusal names the place where it was found, for a wrong value its path.
    assert f"'/{'/'.join(above)}" in str(refusal.value) or not above
    assert key in str(refusal.value)


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())["defaults"]
SHARED = set(DEFAULTS)
SHARED_OF_SERVICES = set(DEFAULTS["service"])
SHARED_OF_TLS = set(DEFAULTS["tls"])


def keys(values: object, schema: object, path: str = "") -> list[str]:
    """List the places where values.yaml and values.schema.json do not name the same keys."""
    assert isinstance(schema, dict)
    if not isinstance(values, dict) or "properties" not in schema:
        return []
    # These have no defaults. test_flags.py checks the names of the flags.
    if path.endswith((".config", ".resources", ".affinity", ".merge", ".dnsConfig")):
        return []
    known = set(schema["properties"]) - ({"global"} if path == "" else {"merge"})
    # Their defaults are in the section `defaults`.
    if path in {".nsqd", ".nsqlookupd", ".nsqadmin", ".archive", ".tools", ".test"}:
        known -= SHARED - set(values)
    if path in {".nsqd.httpService", ".nsqd.outside"} or path.endswith(".tls"):
        known -= (SHARED_OF_SERVICES | SHARED_OF_TLS) - set(values)
    differing = [f"{path}.{key}" for key in known ^ set(values)]
    assert schema["additionalProperties"] is False, path
    for key in known & set(values):
        differing += keys(values[key], schema["properties"][key], f"{path}.{key}")
    return differing


def test_schema_and_values_name_the_same_keys():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert keys(values, schema) == []


def test_parent_chart_may_hand_down_its_globals(chart):
    assert render(chart, {"global": {"anything": 1}}).objects


def test_table_of_values_in_readme_is_current():
    done = subprocess.run(
        [sys.executable, CHART.parents[2] / "scripts" / "chart_readme.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def leaves(values: object, path: str = "") -> set[str]:
    """Return the paths of all values that a user would set; a list or an empty map counts as one value."""
    if not isinstance(values, dict) or not values or path.endswith(("resources", ".labels")):
        return {path}
    return {leaf for key, value in values.items() for leaf in leaves(value, f"{path}.{key}".lstrip("."))}


def test_values_are_explained_in_readme():
    readme = (CHART / "README.md").read_text()
    unexplained = [
        leaf
        for leaf in leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
        if f"| `{leaf}` | `" not in readme
    ]

    assert unexplained == []
