"""Replication between brokers, and brokers that are decommissioned."""

import os
import subprocess
import sys

import pytest
from helm_python import HelmError

from nsqcore.options.options import parse
from nsqd.data import cli as data_tool
from nsqd.drain import parse_arguments
from nsqd.options import NsqdOptions
from nsqd.policies.definition import MAX_REPLICAS
from nsqtools.kube import drain_hook
from nsqtools.kube.access import KubeApi
from tests.deploy.release import NAME, NAMESPACE, render
from tests.support.fake_kubernetes import fake_kubernetes
from tests.support.waiting import wait_until

# The values under nsqd.replication of brokers that know the cluster secret.
MEMBERS = {"secretName": "members"}
REPLICATED = MEMBERS | {"replicas": 1}


def test_brokers_without_replicas_are_no_members_and_run_on_any_node(chart):
    release = render(chart, {})
    found = release.pod()

    assert "affinity" not in found
    assert not [
        flag for flag in found["containers"][0]["args"] if "repli" in flag or "cluster-secret" in flag
    ]
    assert not release.of_kind("Secret")


def test_replicas_are_on_other_nodes_and_in_other_zones_where_possible(chart):
    found = render(chart, {"nsqd": {"replication": REPLICATED | {"missing": "refuse"}}}).pod()

    args = found["containers"][0]["args"]
    assert {"--replicas=1", "--replicas-missing=refuse"} <= set(args)
    (near,) = found["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert near["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    (zones,) = (
        one
        for one in found["topologySpreadConstraints"]
        if one["topologyKey"] == "topology.kubernetes.io/zone"
    )
    assert zones["whenUnsatisfiable"] == "ScheduleAnyway"
    assert near["podAffinityTerm"]["labelSelector"] == zones["labelSelector"]


def test_affinity_and_spread_of_values_win(chart):
    own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    found = render(chart, {"nsqd": {"replication": REPLICATED, "affinity": own}}).pod()
    assert found["affinity"] == own

    usual = render(chart, {}).pod().get("topologySpreadConstraints")
    found = render(chart, {"nsqd": {"replication": REPLICATED | {"spread": False}}}).pod()
    assert found.get("topologySpreadConstraints") == usual
    assert "affinity" not in found


def test_broker_that_restarts_is_only_drained(chart):
    command = render(chart, {}).stop_command()

    assert command[:3] == ["python", "-m", "nsqd.drain"]
    assert parse_arguments(command[3:]).grace_s == 5


@pytest.mark.parametrize("events", [False, True])
def test_pod_that_is_scaled_away_is_decommissioned(chart, events):
    release = render(
        chart, {"nsqd": {"replication": MEMBERS, "drain": {"decommission": True, "events": events}}}
    )

    command = release.stop_command()
    assert command[:3] == ["python", "-m", "nsqtools.kube.drain_hook"]
    options = drain_hook.parse_arguments(command[3:])
    assert (options.decommission, options.events) == (True, events)
    assert options.targets == f"{NAME}-nsq-nsqd-headless.{NAMESPACE}.svc.cluster.local:4150"
    assert parse_arguments(options.drain).grace_s == 5
    assert parse(NsqdOptions, "nsqd", release.command_line("nsqd")).cluster_secret_file
    (role,) = release.of_kind("Role")
    may = {
        (resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    assert may == {("statefulsets", "get")} | ({("events", "create")} if events else set())
    assert release.of_kind("RoleBinding")


def test_commands_of_hooks_and_probes_have_no_variables(release):
    """The kubelet replaces $(NAME) in the arguments of a container, but not in its hooks and probes."""
    for spec in release.pod_specs():
        for container in spec["containers"]:
            probes = [container[name] for name in container if name.endswith("Probe")]
            for handler in (*container.get("lifecycle", {}).values(), *probes):
                words = handler.get("exec", {}).get("command", [])
                assert not [word for word in words if "$(" in word]


@pytest.mark.parametrize("replicas", [0, 1])
def test_hook_names_target_only_without_replicas(chart, replicas):
    values = {"drain": {"decommission": True}, "replication": MEMBERS | {"replicas": replicas}}
    command = render(chart, {"nsqd": values}).stop_command()

    assert bool(drain_hook.parse_arguments(command[3:]).targets) == (not replicas)


def test_hook_of_pod_that_is_scaled_away_transfers_its_messages(cluster, chart, monkeypatch, tmp_path):
    values = {
        "drain": {"decommission": True, "events": True},
        "replication": REPLICATED,
        "preStopSeconds": 1,
    }
    release = render(chart, {"nsqd": values})
    secret = tmp_path / "secret"
    secret.write_text("s" * 64)
    flags = (f"--cluster-secret-file={secret}", "--failover-timeout=2s", "--replicas=1")
    lookupd = cluster.nsqlookupd()
    first, _, node = (
        cluster.nsqd(f"--node-id={number}", *flags, lookupds=[lookupd]) for number in range(1, 4)
    )
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: node.get("/replication")["fully_replicated"], "it is replicated", seconds=60)
    node.post("/pub?topic=t", b"kept")
    for name, value in release.environment("nsqd", index=2).items():
        monkeypatch.setenv(name, value)
    options = drain_hook.parse_arguments(
        [word.replace("127.0.0.1:4151", node.http_address) for word in release.stop_command()[3:]]
    )

    with fake_kubernetes() as kubernetes, kubernetes.client() as client:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}-nsq-nsqd"
        spec = release.workload("nsqd")["spec"] | {"replicas": 2}
        kubernetes.objects[path] = {"metadata": {"name": f"{NAME}-nsq-nsqd"}, "spec": spec}
        assert drain_hook.hook(options, lambda: KubeApi(client, 5)) == 0
        assert kubernetes.created == []

    assert node.get("/decommission")["done"]
    assert first.get("/replication")["copies"]


def test_hook_drains_by_itself_also_where_api_cannot_be_asked(cluster, chart):
    release = render(
        chart,
        {
            "nsqd": {
                "replication": MEMBERS,
                "drain": {"decommission": True, "events": True},
                "preStopSeconds": 1,
            }
        },
    )
    node = cluster.nsqd()
    words = [word.replace("127.0.0.1:4151", node.http_address) for word in release.stop_command()[1:]]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}

    done = subprocess.run(
        [sys.executable, *words],
        env=mine | release.environment("nsqd"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "not decommissioned: cannot use the account of this pod" in done.stderr
    assert node.get("/drain")["drained"]


def test_orphaned_claim_has_job_that_decommissions_it(chart):
    claims = ["data-demo-nsq-nsqd-2", "data-demo-nsq-nsqd-3"]
    values = {"replicas": 2, "replication": MEMBERS, "decommission": {"claims": claims, "timeoutSeconds": 60}}
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
        headless = f"{NAME}-nsq-nsqd-headless"
        assert container["args"] == [
            "decommission",
            "--data-path=/data",
            *(f"--replica={NAME}-nsq-nsqd-{i}.{headless}.messaging.svc.cluster.local:4150" for i in (0, 1)),
            "--cluster-secret-file=/etc/nsq/cluster/secret",
            "--fewer-copies",
        ]
        assert [one["mountPath"] for one in container["volumeMounts"]] == ["/data", "/etc/nsq/cluster"]
        assert one["spec"]["activeDeadlineSeconds"] == 60


def test_job_of_orphaned_claim_has_flags_that_tool_knows(chart, tmp_path):
    values = {
        "replicas": 3,
        "replication": REPLICATED,
        "tls": {"secretName": "nsqd-tls", "required": "true"},
        "decommission": {"claims": ["data-x-nsqd-7"]},
    }
    (job,) = render(chart, {"nsqd": values, "tls": {"caSecretName": "ca"}}).of_kind("Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    mount = next(one for one in container["volumeMounts"] if one["name"] == "data")
    (folder,) = (one for one in container["args"] if one.startswith("--data-path="))
    assert folder == f"--data-path={mount['mountPath']}"
    given = data_tool.parse_arguments(
        [f"--data-path={tmp_path}" if one == folder else one for one in container["args"]]
    )
    assert len(given.replica) == 3
    assert given.replication_tls
    assert not given.fewer_copies


@pytest.mark.parametrize(
    "change",
    [{"image": {"tag": "9"}}, {"nsqd": {"replicas": 3}}, {"nsqd": {"podLabels": {"a": "b"}}}],
)
def test_job_that_would_do_something_else_is_another_job(chart, change):
    """Kubernetes refuses an upgrade that changes a Job."""
    claims = {"replication": MEMBERS, "decommission": {"claims": ["data-demo-nsq-nsqd-7"]}}
    before = render(chart, {"nsqd": claims})
    after = render(chart, change | {"nsqd": claims | change.get("nsqd", {})})
    names = [[job["metadata"]["name"] for job in release.of_kind("Job")] for release in (before, after)]

    assert names[0] != names[1]
    assert render(chart, {"nsqd": claims, "commonLabels": {}}).of_kind("Job") == before.of_kind("Job")


def secret_of(release):
    """Return the Secret that holds the cluster secret, and its key, as the pod mounts it."""
    (volume,) = (each for each in release.pod()["volumes"] if each["name"] == "cluster")
    (item,) = volume["secret"]["items"]
    (mount,) = (each for each in release.pod()["containers"][0]["volumeMounts"] if each["name"] == "cluster")
    options = parse(NsqdOptions, "nsqd", release.command_line("nsqd"))
    assert options.cluster_secret_file == f"{mount['mountPath']}/{item['path']}"
    return volume["secret"]["secretName"], item["key"]


@pytest.mark.parametrize(
    "values",
    [
        {"replication": {"replicas": 1}},
        {"drain": {"decommission": True}},
        {"decommission": {"claims": ["data-x-nsqd-7"]}},
    ],
)
def test_chart_refuses_replicas_and_transfers_without_cluster_secret(chart, values):
    with pytest.raises(HelmError, match=r"need nsqd\.replication\.secretName: .* kubectl -n messaging"):
        render(chart, {"nsqd": values})


def test_brokers_mount_existing_cluster_secret(chart):
    values = {"replication": REPLICATED | {"secretKey": "k"}}
    release = render(chart, {"nsqd": values})

    assert release.of_kind("Secret") == []
    assert secret_of(release) == ("members", "k")


@pytest.mark.parametrize(
    ("tls", "wanted", "used"),
    [
        ({}, None, False),
        ({"secretName": "t"}, None, False),
        ({"secretName": "t", "required": "tcp-https"}, None, True),
        ({"secretName": "t"}, True, True),
        ({"secretName": "t", "required": "tcp-https"}, False, False),
    ],
)
def test_brokers_use_tls_between_each_other_where_it_is_required(chart, tls, wanted, used):
    values = {"replication": REPLICATED | {"tls": wanted}, "tls": tls}
    line = render(chart, {"nsqd": values}).command_line("nsqd")

    assert parse(NsqdOptions, "nsqd", line).replication_tls == used


def test_limit_of_replicas_is_that_of_nsqd(chart):
    values = {"replicas": MAX_REPLICAS + 2, "replication": MEMBERS | {"replicas": MAX_REPLICAS}}
    line = render(chart, {"nsqd": values}).command_line("nsqd")

    assert parse(NsqdOptions, "nsqd", line).replicas == MAX_REPLICAS
    with pytest.raises(HelmError):
        render(chart, {"nsqd": values | {"replication": MEMBERS | {"replicas": MAX_REPLICAS + 1}}})


@pytest.mark.parametrize(
    ("brokers", "missing", "told"),
    [(3, "refuse", True), (4, "refuse", False), (3, "accept", False)],
)
def test_notes_say_whether_publishing_stops_while_broker_restarts(chart, brokers, missing, told):
    values = {"replicas": brokers, "replication": MEMBERS | {"replicas": 2, "missing": missing}}
    release = render(chart, {"nsqd": values})

    notes = next(text for path, text in release.sources.items() if path.endswith("NOTES.txt"))
    assert ("nothing can be published while one nsqd restarts: with 4 or more, publish" in notes) == told


def test_brokers_elsewhere_may_be_replicas(chart):
    values = {"replicas": 1, "replication": REPLICATED, "extraArgs": ["--replica=other:4150"]}

    assert render(chart, {"nsqd": values}).objects


def test_brokers_and_those_jobs_may_speak_to_each_other(chart):
    policy = {"enabled": True, "clients": [{"podSelector": {}}]}
    values = {"networkPolicy": policy, "nsqd": {"replication": MEMBERS, "decommission": {"claims": ["c"]}}}
    release = render(chart, values)

    tcp = release.named("NetworkPolicy", f"{NAME}-nsq-nsqd")["spec"]["ingress"][0]["from"]
    components = {
        peer["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component") for peer in tcp
    }
    assert {"nsqd", "decommission"} <= components


def test_claim_of_running_broker_is_not_decommissioned(chart):
    running = f"data-{NAME}-nsq-nsqd-1"
    with pytest.raises(HelmError, match=f"names {running}, the claim of a running broker"):
        render(
            chart, {"nsqd": {"replicas": 2, "replication": MEMBERS, "decommission": {"claims": [running]}}}
        )

    render(chart, {"nsqd": {"replicas": 1, "replication": MEMBERS, "decommission": {"claims": [running]}}})
