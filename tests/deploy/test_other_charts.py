"""The other charts: a consumer that scales with the waiting messages, and a Job that puts load on."""

import json
import subprocess
import sys

import pytest
import yaml
from helm_python import Chart, HelmError

from load.cli import argument_parser as load_parser
from load.cli import load_profile, release_lookupds
from nsqcore.options.options import parse
from nsqtools.nsq_to_http.options import ToHttpOptions
from tests.deploy.prometheus import metrics_in, problems
from tests.deploy.release import CHART, NAMESPACE, documents
from tests.deploy.release import NAME as RELEASE
from tests.deploy.schemas import check
from tests.deploy.test_values import keys, leaves
from tests.support.waiting import wait_until

CHARTS = ("nsq-consumer", "nsq-load")
FOLDER = CHART.parent
SETS = [(name, path.name) for name in CHARTS for path in sorted((FOLDER / name / "ci").glob("*.yaml"))]


def values_of(chart, name):
    return yaml.safe_load((FOLDER / chart / "ci" / name).read_text())


def render(chart, values, name="billing"):
    with Chart.load(FOLDER / chart) as loaded:
        texts = loaded.render(values, name=name, namespace=NAMESPACE)
    found = [thing for path, text in texts.items() if path.endswith(".yaml") for thing in documents(text)]
    return {thing["kind"]: thing for thing in found if thing}


def pod_of(objects):
    thing = objects.get("Deployment") or objects["Job"]
    return thing["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize(("chart", "name"), SETS)
def test_objects_are_valid_and_restricted(chart, name, version):
    objects = render(chart, values_of(chart, name))

    for kind, thing in objects.items():
        if kind != "ScaledObject":
            check(thing, version)
    pod = pod_of(objects)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "default"
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("chart", CHARTS)
def test_schema_values_and_readme_name_the_same_keys(chart):
    values = yaml.safe_load((FOLDER / chart / "values.yaml").read_text())
    schema = json.loads((FOLDER / chart / "values.schema.json").read_text())
    readme = (FOLDER / chart / "README.md").read_text()

    assert keys(values, schema) == []
    assert [leaf for leaf in leaves(values) if f"| `{leaf}` | `" not in readme] == []


@pytest.mark.parametrize(
    ("chart", "values", "sentence"),
    [
        ("nsq-consumer", {}, "/topic"),
        ("nsq-consumer", {"scaling": {"by": "hope"}}, "/scaling/by"),
        ("nsq-consumer", {"chanel": "a"}, "chanel"),
        ("nsq-consumer", {"scaling": {"activationDepth": -1}}, "/scaling/activationDepth"),
        ("nsq-load", {}, "/lookupdHttpAddress"),
        ("nsq-load", {"rate": 0}, "/rate"),
        ("nsq-load", {}, "/image"),
        ("nsq-consumer", {}, "/image"),
    ],
)
def test_wrong_value_is_refused_by_its_name(chart, values, sentence):
    with pytest.raises(HelmError, match=sentence):
        render(chart, values)


# --- the consumer


@pytest.fixture
def keda():
    return render("nsq-consumer", values_of("nsq-consumer", "keda-values.yaml"))


def test_keda_scales_deployment_from_none(keda):
    spec = keda["ScaledObject"]["spec"]

    assert spec["scaleTargetRef"] == {"name": keda["Deployment"]["metadata"]["name"]}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 10)
    # KEDA decides how many replicas there are; an upgrade must not change that.
    assert "replicas" not in keda["Deployment"]["spec"]
    assert "HorizontalPodAutoscaler" not in keda


def test_keda_asks_for_depth_and_for_how_long_messages_wait(keda, tmp_path):
    depth, waiting = keda["ScaledObject"]["spec"]["triggers"]

    assert depth["metadata"] == {
        "nsqLookupdHTTPAddresses": "demo-nsq-nsqlookupd.messaging.svc:4161",
        "topic": "orders",
        "channel": "billing",
        "depthThreshold": "1000",
        # One message starts the first pod: KEDA asks for more than this.
        "activationDepthThreshold": "0",
        "useHttps": "false",
    }
    query = waiting["metadata"]["query"]
    rules = {"groups": [{"name": "a", "rules": [{"record": "a", "expr": query}]}]}
    assert problems(tmp_path, yaml.safe_dump(rules)) == ""
    assert metrics_in(query) == {"nsqd_channel_depth", "nsqd_channel_messages_total"}
    assert 'topic="orders",channel="billing"' in query


def test_keda_queries_match_daemon_metrics(cluster, keda):
    """The scaler asks /lookup for the brokers, and /stats of each for the channel's depth and consumers."""
    lookup = cluster.nsqlookupd()
    nsqd = cluster.nsqd()
    given = keda["ScaledObject"]["spec"]["triggers"][0]["metadata"]
    nsqd.post(f"/topic/create?topic={given['topic']}")
    nsqd.post(f"/channel/create?topic={given['topic']}&channel={given['channel']}")
    nsqd.post(f"/pub?topic={given['topic']}", b"one")

    def depths():
        (topic,) = nsqd.get(f"/stats?format=json&topic={given['topic']}&channel={given['channel']}")["topics"]
        return [(each["channel_name"], each["depth"]) for each in topic["channels"]]

    # A new topic holds its messages until nsqlookupd has named the channels that it has on other nodes.
    wait_until(lambda: depths() == [("billing", 1)], "the channel has the message")
    assert lookup.request("GET", f"/lookup?topic={given['topic']}")[0] == 200


def test_hpa_keeps_one_pod_and_asks_for_metric_of_channel():
    objects = render("nsq-consumer", values_of("nsq-consumer", "hpa-values.yaml"))
    spec = objects["HorizontalPodAutoscaler"]["spec"]
    external = spec["metrics"][0]["external"]

    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 20)
    assert external["metric"]["selector"]["matchLabels"] == {"topic": "orders", "channel": "billing"}
    assert external["target"] == {"type": "AverageValue", "averageValue": "500"}
    assert "ScaledObject" not in objects
    none = values_of("nsq-consumer", "hpa-values.yaml") | {"scaling": {"by": "hpa", "min": 0}}
    assert render("nsq-consumer", none)["HorizontalPodAutoscaler"]["spec"]["minReplicas"] == 1


def test_replicas_without_scaling_are_those_of_values():
    values = values_of("nsq-consumer", "hpa-values.yaml") | {"scaling": {"by": "none", "min": 3}}
    objects = render("nsq-consumer", values)

    assert set(objects) == {"Deployment"}
    assert objects["Deployment"]["spec"]["replicas"] == 3


def test_example_is_command_line_that_its_program_understands(keda):
    (container,) = pod_of(keda)["containers"]
    words = container["args"]
    for variable in container["env"]:
        words = [word.replace(f"$({variable['name']})", variable["value"]) for word in words]

    options = parse(ToHttpOptions, "nsq_to_http", words)

    assert (options.topic, options.channel) == ("orders", "billing")


# --- the load


@pytest.mark.parametrize("name", ["plain-values.yaml", "guarded-values.yaml"])
def test_load_understands_its_command_line(name):
    (container,) = pod_of(render("nsq-load", values_of("nsq-load", name)))["containers"]
    words = [sys.executable, *container["command"][1:], *container["args"], "--seconds=oh"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert "seconds" in done.stderr
    assert "unrecognized" not in done.stderr


def test_profile_is_run_by_command_line_that_is_understood(tmp_path):
    job = render("nsq-load", values_of("nsq-load", "profile-values.yaml"))
    (container,) = pod_of(job)["containers"]
    assert container["command"] == ["nsq-load", "run"]

    options = load_parser().parse_args(["run", *container["args"]])

    assert load_profile(options.profile).name == "steady"
    assert options.attach == ["https://demo-nsq-nsqlookupd.messaging.svc:4162"]
    assert (options.seconds, options.times, options.workers, options.tls) == (120, 2.5, 2, True)
    assert options.auth_secret_file == "/etc/nsq/auth/secret"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/tmp", "/etc/nsq/ca", "/etc/nsq/tls", "/etc/nsq/auth"}


def test_pods_of_load_have_topics_of_their_own():
    (one,) = pod_of(render("nsq-load", values_of("nsq-load", "plain-values.yaml")))["containers"]
    (many,) = pod_of(render("nsq-load", values_of("nsq-load", "guarded-values.yaml")))["containers"]

    assert "--topic=counted_load" in one["args"]
    assert "--topic=counted_load_$(JOB_COMPLETION_INDEX)" in many["args"]


def test_files_of_load_are_in_mounted_secrets():
    pod = pod_of(render("nsq-load", values_of("nsq-load", "guarded-values.yaml")))
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    named = [word.partition("=")[2] for word in container["args"] if "=/etc/nsq/" in word]

    assert len(named) == 4
    assert {path.rpartition("/")[0] for path in named} == set(mounts)
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts.values())


class Names:
    """Stands in for socket.getaddrinfo: resolves the names of a Kubernetes cluster, and records them."""

    def __init__(self, known):
        self.known = known
        self.asked = []

    def __call__(self, host, port, type):  # noqa: A002 - as socket.getaddrinfo has it
        self.asked.append(host)
        if host not in self.known:
            raise OSError(-2, "Name or service not known")
        return [(2, type, 6, "", (address, port)) for address in self.known[host]]


def test_chart_finds_nsqlookupds_of_release_by_their_names(release):
    (service,) = [
        one
        for one in release.of_kind("Service")
        if one["metadata"]["name"].endswith("-nsqlookupd-headless") and one["spec"]["clusterIP"] == "None"
    ]
    domain = release.values["clusterDomain"]
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc.{domain}"
    pods = [f"{release.workload('nsqlookupd')['metadata']['name']}-{number}.{host}" for number in (0, 2)]
    names = Names({host: ["10.0.0.1", "10.0.0.3"], pods[0]: ["10.0.0.1"], pods[1]: ["10.0.0.3"]})

    found = release_lookupds(release.values["fullnameOverride"] or RELEASE, NAMESPACE, domain, names)

    assert host in names.asked[:2]
    assert found == [f"{pod}:4161" for pod in pods]


def test_nsqlookupd_whose_pod_has_no_name_is_asked_by_its_address():
    names = Names({"demo-nsq-nsqlookupd-headless.m.svc.cluster.local": ["10.0.0.1", "fd00::1"]})

    found = release_lookupds("demo", "m", "cluster.local", names)

    assert found == ["10.0.0.1:4161", "[fd00::1]:4161"]
