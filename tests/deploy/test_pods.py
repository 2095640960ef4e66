"""How the pods run: their rights, probes, how they stop, and where messages are kept."""

import pytest

from nsqadmin.history.ring import FILE_SIZE
from nsqd.drain import DrainOptions, parse_arguments
from tests.deploy.release import render, values_of


def daemons(release):
    """The workloads that serve clients: all but the pod with the tools."""
    return [each for each in release.workloads() if each["metadata"]["name"] != "demo-nsq-tools"]


def serving(workload):
    return workload["spec"]["template"]["spec"]["containers"][0]


def test_containers_run_with_restricted_rights(release):
    for pod in release.pod_specs():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"][:1]:  # not for containers that the values add
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_platform_may_choose_ids(chart):
    no_ids = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    release = render(chart, {"securityContext": no_ids})

    for pod in release.pod_specs():
        assert pod["securityContext"].get("runAsUser") is None
        assert pod["securityContext"]["runAsNonRoot"] is True


def test_containers_need_no_shell(release):
    for pod in release.pod_specs():
        for container in pod["containers"][:1]:
            assert container["command"][0] in {"nsqd", "nsqlookupd", "nsqadmin", "nsq-archive", "python"}
            hook = container.get("lifecycle", {}).get("preStop", {})
            assert list(hook) in ([], ["sleep"]) or hook["exec"]["command"][0] == "python"


def test_nsqd_is_asked_three_different_questions(chart):
    (container,) = render(chart, {}).pod()["containers"]

    assert container["startupProbe"]["httpGet"]["path"] == "/started"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"


def test_readiness_gives_up_long_before_liveness_restarts(release):
    for thing in daemons(release):
        container = serving(thing)
        ready, live = container["readinessProbe"], container["livenessProbe"]

        patience = [probe["periodSeconds"] * probe["failureThreshold"] for probe in (ready, live)]
        assert patience[0] * 3 <= patience[1]


def test_broker_has_time_to_load_its_data_that_values_give_it(chart):
    release = render(chart, {"nsqd": {"startupSeconds": 900}})
    (container,) = release.pod()["containers"]
    probe = container["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] == 900


def test_grace_period_holds_pause_before_sigterm_and_time_after_it(release):
    for component in ("nsqlookupd", "nsqadmin"):
        values = release.values[component]
        if not values.get("enabled", True):
            continue
        pod = release.pod(component)
        pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]

        assert pause == values["preStopSeconds"]
        assert pod["terminationGracePeriodSeconds"] == pause + values["stopSeconds"]


@pytest.mark.parametrize("drained", [True, False])
def test_grace_period_of_broker_holds_pause_drain_and_stop(chart, drained):
    times = {"preStopSeconds": 7, "stopSeconds": 20, "drain": {"enabled": drained, "timeoutSeconds": 300}}
    pod = render(chart, {"nsqd": times}).pod()
    hook = pod["containers"][0]["lifecycle"]["preStop"]

    assert pod["terminationGracePeriodSeconds"] == 7 + 300 * drained + 20
    if drained:
        command = hook["exec"]["command"]
        assert command[:3] == ["python", "-m", "nsqd.drain"]
        assert parse_arguments(command[3:]) == DrainOptions("127.0.0.1:4151", 300.0, 7.0, 60.0)
    else:
        assert hook == {"sleep": {"seconds": 7}}


def test_messages_live_on_claim_per_pod(chart):
    spec = render(chart, values_of("production")).workload("nsqd")["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {one["name"]: one for one in spec["template"]["spec"]["containers"][0]["volumeMounts"]}

    assert (
        f"--data-path={mounts[claim['metadata']['name']]['mountPath']}"
        in spec["template"]["spec"]["containers"][0]["args"]
    )
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "200Gi"
    assert [one["name"] for one in spec["template"]["spec"]["volumes"] if "secret" not in one] == ["kube-api"]


def test_messages_without_persistence_are_in_emptydir_and_notes_say_so(chart):
    release = render(chart, values_of("ephemeral"))
    spec = release.workload("nsqd")["spec"]

    assert "volumeClaimTemplates" not in spec
    assert spec["template"]["spec"]["volumes"] == [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    assert "messages are lost" in release.sources["nsq/templates/NOTES.txt"]


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ({}, "nsq-cluster:VERSION"),
        ({"repository": "r.example/nsq", "tag": "v9"}, "r.example/nsq:v9"),
        ({"repository": "r.example/nsq", "tag": "v9", "digest": DIGEST}, f"r.example/nsq@{DIGEST}"),
    ],
)
def test_image_is_named_by_digest_tag_or_version(chart, image, wanted):
    release = render(chart, {"image": image})
    found = {pod["containers"][0]["image"] for pod in release.pod_specs()}

    assert found == {wanted.replace("VERSION", chart.metadata["appVersion"])}


@pytest.mark.parametrize("component", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_pods_spread_over_zones_and_nodes_where_that_is_possible(chart, component):
    thing = render(chart, {}).workload(component)
    constraints = thing["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert [each["topologyKey"] for each in constraints] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    for each in constraints:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"] == thing["spec"]["selector"]


def test_affinity_is_the_one_of_values(chart):
    own = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    release = render(chart, {"nsqlookupd": {"affinity": own}})

    assert release.pod("nsqlookupd")["affinity"] == own
    assert "affinity" not in release.pod()


def test_nsqadmin_has_place_for_its_history_though_its_root_cannot_be_written(chart):
    spec = render(chart, {}).pod("nsqadmin")
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == "/tmp"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    room = int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi")) << 20

    assert room > FILE_SIZE
