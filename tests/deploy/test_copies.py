"""Copies of messages on other brokers, and brokers that leave permanently."""

import os
import subprocess
import sys

import pytest
from helm_python import HelmError

from nsqcore.options.options import parse
from nsqd.data.cli import argument_parser
from nsqd.drain import parse_arguments
from nsqd.options import NsqdOptions
from nsqd.policies.definition import MOST_REPLICAS
from nsqtools.kube import drain_hook
from nsqtools.kube.access import KubeApi
from tests.deploy.release import NAME, NAMESPACE, render
from tests.support.fake_kubernetes import fake_kubernetes

HEADLESS = f"{NAME}-nsq-nsqd-headless.{NAMESPACE}.svc.cluster.local"


def pod(release):
    return release.workload("nsqd")["spec"]["template"]["spec"]


def hook_of(release):
    return pod(release)["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]


def test_without_copies_brokers_run_where_they_may(chart):
    found = pod(render(chart, {}))

    assert "affinity" not in found
    assert not [
        flag
        for flag in found["containers"][0]["args"]
        if flag.startswith(("--replicas", "--without", "--keepers"))
    ]


def test_copies_are_on_other_nodes_and_in_other_zones_where_there_are_any(chart):
    found = pod(render(chart, {"nsqd": {"copies": {"replicas": 1, "without": "refuse"}}}))

    args = found["containers"][0]["args"]
    assert {"--replicas=1", "--without-keeper=refuse"} <= set(args)
    assert [flag for flag in args if flag.startswith("--keepers")] == [
        f"--keepers={NAME}-nsq-nsqd-{i}.{HEADLESS}:4150" for i in (0, 1)
    ]
    # A pod finds itself among them by this name.
    assert f"--broadcast-address=$(POD_NAME).{HEADLESS}" in args
    (near,) = found["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert near["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    (zones,) = (
        one
        for one in found["topologySpreadConstraints"]
        if one["topologyKey"] == "topology.kubernetes.io/zone"
    )
    assert zones["whenUnsatisfiable"] == "ScheduleAnyway"
    assert near["podAffinityTerm"]["labelSelector"] == zones["labelSelector"]


def test_what_is_said_of_nodes_and_zones_is_left_as_it_is(chart):
    own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    found = pod(render(chart, {"nsqd": {"copies": {"replicas": 1}, "affinity": own}}))
    assert found["affinity"] == own

    usual = pod(render(chart, {})).get("topologySpreadConstraints")
    found = pod(render(chart, {"nsqd": {"copies": {"replicas": 1, "spread": False}}}))
    assert found.get("topologySpreadConstraints") == usual
    assert "affinity" not in found


def test_a_restart_hands_nothing_over(chart):
    options = parse_arguments(hook_of(render(chart, {}))[3:])

    assert not options.hand_over


@pytest.mark.parametrize("events", [False, True])
def test_a_pod_that_is_scaled_away_hands_over_and_may_ask_whether_it_is(chart, events):
    release = render(chart, {"nsqd": {"drain": {"handOver": True, "events": events}}})

    command = hook_of(release)
    assert command[:3] == ["python", "-m", "nsqtools.kube.drain_hook"]
    options = drain_hook.parse_arguments(command[3:])
    assert (options.hand_over, options.events, options.domain) == (True, events, HEADLESS)
    assert parse_arguments(drain_hook.drain_flags(options, goes=True)).hand_over
    (role,) = release.of_kind("Role")
    may = {
        (resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    assert may == {("statefulsets", "get")} | ({("events", "create")} if events else set())
    assert release.of_kind("RoleBinding")


def test_no_command_of_a_hook_or_a_probe_expects_a_variable_to_be_replaced(release):
    """The kubelet replaces $(NAME) in the arguments of a container, but not in its hooks and probes."""
    for spec in release.pod_specs():
        for container in spec["containers"]:
            probes = [container[name] for name in container if name.endswith("Probe")]
            for handler in (*container.get("lifecycle", {}).values(), *probes):
                words = handler.get("exec", {}).get("command", [])
                assert not [word for word in words if "$(" in word]


def test_the_hook_of_a_pod_that_is_scaled_away_hands_its_messages_over(cluster, chart, monkeypatch):
    drain = {"handOver": True, "events": True, "pollIntervalSeconds": 1}
    release = render(chart, {"nsqd": {"drain": drain, "copies": {"replicas": 1}}})
    keeper = cluster.nsqd("--node-id=1")
    node = cluster.nsqd("--node-id=2", "--replicas=1", f"--keepers={keeper.tcp_address}")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/pub?topic=t", b"kept")
    for name, value in release.environment("nsqd", index=2).items():
        monkeypatch.setenv(name, value)
    options = drain_hook.parse_arguments(
        [word.replace("127.0.0.1:4151", node.http_address) for word in hook_of(release)[3:]]
    )

    with fake_kubernetes() as kubernetes, kubernetes.client() as client:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}-nsq-nsqd"
        spec = release.workload("nsqd")["spec"] | {"replicas": 2}
        kubernetes.objects[path] = {"metadata": {"name": f"{NAME}-nsq-nsqd"}, "spec": spec}
        assert drain_hook.hook(options, lambda: KubeApi(client, 5)) == 0
        assert kubernetes.created == []

    assert node.get("/drain")["hand_over"]["state"] == "handed over"


def test_the_hook_drains_by_itself_also_where_the_api_cannot_be_asked(cluster, chart):
    release = render(chart, {"nsqd": {"drain": {"handOver": True, "events": True}, "preStopSeconds": 1}})
    node = cluster.nsqd()
    words = [word.replace("127.0.0.1:4151", node.http_address) for word in hook_of(release)[1:]]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}

    done = subprocess.run(
        [sys.executable, *words],
        env=mine | release.environment("nsqd"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "nothing is handed over: cannot use the account of this pod" in done.stderr
    assert node.get("/drain")["drained"]


def test_each_claim_that_is_orphaned_has_a_job_that_hands_it_over(chart):
    claims = ["data-demo-nsq-nsqd-2", "data-demo-nsq-nsqd-3"]
    values = {"replicas": 2, "handOver": {"claims": claims, "timeoutSeconds": 60}}
    release = render(chart, {"nsqd": values})

    jobs = release.of_kind("Job")
    found = [
        one["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] for one in jobs
    ]
    assert found == claims
    assert len({one["metadata"]["name"] for one in jobs}) == 2
    for one in jobs:
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["nsqd-data"]
        words = [word for word in container["args"] if not word.startswith("--data-path")]
        given = argument_parser().parse_args([*words, "--data-path=/"])
        headless = f"{NAME}-nsq-nsqd-headless"
        assert given.to == [
            f"{NAME}-nsq-nsqd-{i}.{headless}.messaging.svc.cluster.local:4150" for i in (0, 1)
        ]
        assert one["spec"]["activeDeadlineSeconds"] == 60


@pytest.mark.parametrize(
    "change",
    [{"image": {"tag": "9"}}, {"nsqd": {"replicas": 3}}, {"nsqd": {"podLabels": {"a": "b"}}}],
)
def test_a_job_that_would_do_something_else_is_another_job(chart, change):
    """Kubernetes refuses an upgrade that changes a Job."""
    claims = {"handOver": {"claims": ["data-demo-nsq-nsqd-7"]}}
    before = render(chart, {"nsqd": claims})
    after = render(chart, change | {"nsqd": claims | change.get("nsqd", {})})
    names = [[job["metadata"]["name"] for job in release.of_kind("Job")] for release in (before, after)]

    assert names[0] != names[1]
    assert render(chart, {"nsqd": claims, "commonLabels": {}}).of_kind("Job") == before.of_kind("Job")


def test_brokers_show_each_other_what_they_ask_for(chart):
    """For a hand-over they need that also without copies."""
    values = {
        "auth": {"secretName": "operator"},
        "tls": {"caSecretName": "ca"},
        "nsqd": {
            "config": {"auth-http-address": ["auth:80"]},
            "tls": {"secretName": "t", "required": "tcp-https", "clientAuthPolicy": "require-verify"},
        },
    }
    release = render(chart, values)
    options = parse(NsqdOptions, "nsqd", release.command_line("nsqd"))

    assert options.keeper_tls
    (secret,) = (each for each in pod(release)["volumes"] if each["name"] == "auth")
    (mount,) = (each for each in pod(release)["containers"][0]["volumeMounts"] if each["name"] == "auth")
    assert options.keeper_secret_file == f"{mount['mountPath']}/{secret['secret']['items'][0]['path']}"
    assert not parse(NsqdOptions, "nsqd", render(chart, {}).command_line("nsqd")).keeper_tls


def test_the_most_copies_are_those_that_nsqd_makes(chart):
    values = {"replicas": MOST_REPLICAS + 2, "copies": {"replicas": MOST_REPLICAS}}
    line = render(chart, {"nsqd": values}).command_line("nsqd")

    assert parse(NsqdOptions, "nsqd", line).replicas == MOST_REPLICAS
    with pytest.raises(HelmError):
        render(chart, {"nsqd": values | {"copies": {"replicas": MOST_REPLICAS + 1}}})


@pytest.mark.parametrize(
    ("brokers", "without", "told"),
    [(3, "refuse", True), (4, "refuse", False), (3, "accept", False)],
)
def test_the_notes_say_whether_publishing_stops_while_a_broker_restarts(chart, brokers, without, told):
    values = {"replicas": brokers, "copies": {"replicas": 2, "without": without}}
    release = render(chart, {"nsqd": values})

    notes = next(text for path, text in release.sources.items() if path.endswith("NOTES.txt"))
    assert ("nothing can be published while one nsqd restarts: with 4 or more, publish" in notes) == told


def test_brokers_elsewhere_may_keep_the_copies(chart):
    values = {"replicas": 1, "copies": {"replicas": 1}, "extraArgs": ["--keepers=other:4150"]}

    args = pod(render(chart, {"nsqd": values}))["containers"][0]["args"]

    assert [flag for flag in args if flag.startswith("--keepers")] == ["--keepers=other:4150"]


def test_brokers_and_those_jobs_may_speak_to_each_other(chart):
    policy = {"enabled": True, "clients": [{"podSelector": {}}]}
    values = {"networkPolicy": policy, "nsqd": {"handOver": {"claims": ["c"]}}}
    release = render(chart, values)

    tcp = release.named("NetworkPolicy", f"{NAME}-nsq-nsqd")["spec"]["ingress"][0]["from"]
    components = {
        peer["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component") for peer in tcp
    }
    assert {"nsqd", "handover"} <= components


@pytest.mark.parametrize(
    "values",
    [
        {"copies": {"replicas": -1}},
        {"copies": {"without": "perhaps"}},
        {"handOver": {"claims": ["Data"]}},
        {"drain": {"handOver": "yes"}},
    ],
)
def test_other_values_are_refused(chart, values):
    with pytest.raises(HelmError):
        render(chart, {"nsqd": values})
