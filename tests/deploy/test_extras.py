"""Additions of a platform team to a third-party chart without a post-renderer."""

import shutil

import pytest
import yaml
from helm_python import Chart

from tests.deploy.release import CHART, NAME, NAMESPACE, render, values_of

COMPONENTS = ("nsqd", "nsqlookupd", "nsqadmin")

IMAGE = {"image": {"repository": "nsq-cluster"}}


@pytest.mark.parametrize("component", COMPONENTS)
def test_environment_volumes_and_containers_can_be_added(chart, component):
    extra = {
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "extraContainers": [{"name": "sidecar", "image": "x"}],
        "initContainers": [{"name": "prepare", "image": "y"}],
    }
    spec = render(chart, {component: extra}).pod(component)
    plain = render(chart, {}).pod(component)

    first, *others = spec["containers"]
    assert extra["extraEnv"][0] in first["env"]
    assert [item for item in plain["containers"][0].get("env", []) if item not in first["env"]] == []
    assert extra["extraVolumeMounts"][0] in first["volumeMounts"]
    assert extra["extraVolumes"][0] in spec["volumes"]
    assert others == extra["extraContainers"]
    assert spec["initContainers"] == extra["initContainers"]


def test_defaults_reach_every_component_and_its_own_value_comes_first(chart):
    values = {
        "defaults": {
            "nodeSelector": {"disk": "ssd", "zone": "a"},
            "extraEnv": [{"name": "A", "value": "all"}, {"name": "B", "value": "all"}],
            "priorityClassName": "high",
            "serviceAccount": {"create": False},
            "service": {"labels": {"team": "mq"}},
            "preStopSeconds": 9,
            "tls": {"secretName": "all-tls"},
        },
        "nsqadmin": {
            "nodeSelector": {"disk": "any"},
            "extraEnv": [{"name": "B", "value": "own"}],
            "preStopSeconds": 3,
        },
        "tools": {"enabled": True},
    }
    release = render(chart, values)

    specs = {name: release.pod(name) for name in (*COMPONENTS, "tools")}
    assert {spec["priorityClassName"] for spec in specs.values()} == {"high"}
    assert {spec["serviceAccountName"] for spec in specs.values()} == {"default"}
    assert specs["nsqd"]["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert specs["nsqadmin"]["nodeSelector"] == {"disk": "any", "zone": "a"}
    found = {
        name: [one for one in spec["containers"][0]["env"] if one["name"] in "AB"]
        for name, spec in specs.items()
    }
    assert found["nsqd"] == found["tools"] == values["defaults"]["extraEnv"]
    assert found["nsqadmin"] == [{"name": "A", "value": "all"}, {"name": "B", "value": "own"}]
    pauses = {name: specs[name]["containers"][0]["lifecycle"]["preStop"] for name in COMPONENTS}
    assert pauses["nsqlookupd"]["sleep"]["seconds"] == 9
    assert pauses["nsqadmin"]["sleep"]["seconds"] == 3
    assert "--grace=9s" in pauses["nsqd"]["exec"]["command"]
    for name in COMPONENTS:
        assert "--tls-cert=/etc/nsq/tls/tls.crt" in release.command_line(name)
    for thing in release.of_kind("Service"):
        if "headless" not in thing["metadata"]["name"]:
            assert thing["metadata"]["labels"]["team"] == "mq"


def test_objects_are_in_namespace_of_values(chart):
    values = values_of("balanced") | {"namespaceOverride": "mq"}
    release = render(chart, values)

    for thing in release.objects:
        of_cluster = thing["kind"].startswith("ClusterRole")
        assert thing["metadata"].get("namespace") == (None if of_cluster else "mq"), thing["metadata"]["name"]
    assert ".mq.svc." in release.command_line("nsqd")[-1] or any(
        ".mq.svc." in word for word in release.command_line("nsqadmin")
    )
    assert not [word for word in release.command_line("nsqadmin") if NAMESPACE in word]
    (subject,) = (one for binding in release.of_kind("ClusterRoleBinding") for one in binding["subjects"])
    assert subject["namespace"] == "mq"


@pytest.mark.parametrize("component", COMPONENTS)
def test_egress_is_limited_to_dns_release_and_given_rules(chart, component):
    rules = [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}]
    policy = {"enabled": True, "egress": {"enabled": True, "rules": rules}}
    spec = render(chart, {"networkPolicy": policy}).named("NetworkPolicy", f"demo-nsq-{component}")["spec"]

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    dns, own, *others = spec["egress"]
    assert dns == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in own["to"]] == [
        "nsqd",
        "nsqlookupd",
    ]
    assert others == rules


def test_pods_may_have_group_of_openshift(chart):
    rights = render(chart, {"securityContext": {"runAsGroup": 0, "fsGroup": 0}}).pod()["securityContext"]

    assert (rights["runAsGroup"], rights["fsGroup"]) == (0, 0)


def test_annotations_and_labels_reach_every_object(chart):
    values = values_of("guarded") | {"commonLabels": {"team": "a"}, "commonAnnotations": {"owner": "b"}}
    release = render(chart, values)

    for thing in release.objects:
        if thing["kind"] == "ConfigMap":
            continue  # the user's own object
        assert thing["metadata"]["labels"]["team"] == "a", thing["metadata"]["name"]
        assert thing["metadata"]["annotations"]["owner"] == "b", thing["metadata"]["name"]
    for thing in release.workloads():
        assert thing["spec"]["template"]["metadata"]["annotations"]["owner"] == "b"


@pytest.mark.parametrize("component", COMPONENTS)
def test_workload_has_labels_and_annotations_of_its_own(chart, component):
    own = {"labels": {"shard": "a"}, "annotations": {"reloader": "true"}}
    thing = render(chart, {component: own}).workload(component)

    assert thing["metadata"]["labels"]["shard"] == "a"
    annotations = thing["metadata"]["annotations"]
    # By this one the chart notices a change other than fewer replicas.
    annotations.pop("nsq/pod-template", None)
    assert annotations == {"reloader": "true"}


@pytest.mark.parametrize(
    "service", ["nsqd.service", "nsqd.httpService", "nsqlookupd.service", "nsqadmin.service"]
)
def test_service_can_be_reached_from_outside(chart, service):
    component, key = service.split(".")
    values = {"type": "LoadBalancer", "nodePort": 30100, "annotations": {"lb": "internal"}}
    release = render(chart, {component: {key: values}})
    name = f"demo-nsq-{component}" + ("-http" if key == "httpService" else "")
    thing = release.named("Service", name)

    assert thing["spec"]["type"] == "LoadBalancer"
    assert 30100 in {port.get("nodePort") for port in thing["spec"]["ports"]}
    assert thing["metadata"]["annotations"] == {"lb": "internal"}


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize(
    ("account", "used", "created"),
    [
        ({}, "demo-nsq-{}", ["demo-nsq-{}"]),
        ({"create": False}, "default", []),
        ({"name": "own"}, "own", ["own"]),
        ({"create": False, "name": "theirs"}, "theirs", []),
    ],
)
def test_pods_run_under_account_of_values(chart, component, account, used, created):
    release = render(chart, {component: {"serviceAccount": account}})

    assert release.pod(component)["serviceAccountName"] == used.format(component)
    names = [
        thing["metadata"]["name"]
        for thing in release.of_kind("ServiceAccount")
        if thing["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    assert names == [name.format(component) for name in created]


@pytest.mark.parametrize("component", COMPONENTS)
def test_probe_can_be_tuned_number_by_number(chart, component):
    tuned = {"readiness": {"timeoutSeconds": 9}, "liveness": {"failureThreshold": 30}}
    before = render(chart, {}).pod(component)["containers"][0]
    after = render(chart, {component: {"probes": tuned}}).pod(component)["containers"][0]

    assert after["readinessProbe"] == before["readinessProbe"] | {"timeoutSeconds": 9}
    assert after["livenessProbe"] == before["livenessProbe"] | {"failureThreshold": 30}
    assert after["startupProbe"] == before["startupProbe"]


def test_extra_objects_are_maps_or_text_with_templates(chart):
    names = {thing["metadata"]["name"] for thing in render(chart, values_of("guarded")).of_kind("ConfigMap")}

    assert names == {"demo-dashboards", "demo-nsq-alerts"}


def test_parent_chart_can_switch_everything_off(chart):
    release = render(chart, {"enabled": False, "extraObjects": ["kind: ConfigMap"]})

    assert release.objects == []
    assert release.sources.get("nsq/templates/NOTES.txt", "").strip() == ""


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({"global": {"imageRegistry": "mirror.example"}}, "mirror.example/nsq-cluster:"),
        (
            {"image": {"registry": "own.example"}, "global": {"imageRegistry": "m"}},
            "own.example/nsq-cluster:",
        ),
        ({"image": {"registry": "own.example"}}, "own.example/nsq-cluster:"),
    ],
)
def test_registry_comes_from_values_or_from_parent_chart(chart, values, image):
    release = render(chart, values)

    assert all(spec["containers"][0]["image"].startswith(image) for spec in release.pod_specs())


def test_pull_secrets_of_parent_chart_are_used_as_well(chart):
    values = {"image": {"pullSecrets": ["own"]}, "global": {"imagePullSecrets": ["plain", {"name": "map"}]}}
    release = render(chart, values)

    wanted = [{"name": "own"}, {"name": "plain"}, {"name": "map"}]
    assert all(spec["imagePullSecrets"] == wanted for spec in release.pod_specs())


@pytest.mark.parametrize(("value", "shown"), [("", None), ("fast", "fast"), ("-", "")])
def test_storage_class_can_be_none_at_all(chart, value, shown):
    spec = render(chart, {"nsqd": {"persistence": {"storageClass": value}}}).workload("nsqd")["spec"]
    (claim,) = spec["volumeClaimTemplates"]

    assert claim["spec"].get("storageClassName") == shown


def test_claims_are_kept_unless_values_say_otherwise(chart):
    key = "persistentVolumeClaimRetentionPolicy"

    assert render(chart, {}).workload("nsqd")["spec"][key] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    scaled = render(chart, {"nsqd": {key: {"whenScaled": "Delete"}}}).workload("nsqd")["spec"][key]
    assert scaled == {"whenDeleted": "Retain", "whenScaled": "Delete"}


# --- an upgrade that would change the claims


@pytest.fixture(scope="module")
def included(tmp_path_factory):
    """A function that returns the text of a named template; $o in its argument is the first extra object."""
    folder = tmp_path_factory.mktemp("chart") / "nsq"
    shutil.copytree(CHART, folder)
    (folder / "templates" / "extra-objects.yaml").unlink()

    def text(template, argument, **values):
        (folder / "templates" / "probe.yaml").write_text(
            "{{- $o := first (.Values.extraObjects | default (list dict)) }}\n"
            f'text: {{{{ include "{template}" {argument} | quote }}}}\n'
        )
        with Chart.load(folder) as copied:
            made = copied.render(IMAGE | values, name=NAME, namespace=NAMESPACE)["nsq/templates/probe.yaml"]
        return yaml.safe_load(made)["text"]

    return text


@pytest.fixture
def claim_change(included):
    """A function of the existing claim and the wanted persistence that returns the chart's text on them."""

    def change(claim, *, backup=False, **changes):
        wanted = {"enabled": True, "size": "10Gi", "storageClass": "", "accessModes": ["ReadWriteOnce"]}
        metadata = {"name": "data", "annotations": {"backup": "daily"}} if backup else {"name": "data"}
        claims = [{"metadata": metadata, "spec": claim}]
        found = {"spec": {"volumeClaimTemplates": claims} if claim else {}}
        objects = [{"found": found, "wanted": wanted | changes}]
        return included("nsq.claimChange", "(list $o.found $o.wanted)", extraObjects=objects)

    return change


def test_larger_volume_is_patched_on_every_claim(included):
    values = {"nsqd": {"replicas": 3, "persistence": {"size": "20Gi"}}, "namespaceOverride": "mq"}

    assert included("nsq.claimRemedy", ".", **values).endswith(
        "for i in $(seq 0 2); do kubectl -n mq patch pvc data-demo-nsq-nsqd-$i -p"
        """ '{"spec":{"resources":{"requests":{"storage":"20Gi"}}}}'; done"""
    )


CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "10Gi"}},
    "storageClassName": "standard",
}


@pytest.mark.parametrize("changes", [{}, {"size": "10240Mi"}, {"storageClass": "standard"}])
def test_upgrade_without_claim_changes_succeeds(claim_change, changes):
    assert claim_change(CLAIM, **changes) == ""


def test_annotations_of_claims_that_exist_stay(claim_change):
    refused = "nsqd.persistence.annotations of a release that exists cannot be changed by an upgrade."

    assert claim_change(CLAIM, backup=True, annotations={"backup": "daily"}) == ""
    assert claim_change(CLAIM, annotations={}) == ""
    assert claim_change(CLAIM, backup=True, annotations={"backup": "never"}) == refused
    assert claim_change(CLAIM, backup=True) == refused
    assert claim_change(CLAIM, annotations={"backup": "daily"}) == refused


@pytest.mark.parametrize(
    ("claim", "changes", "sentence"),
    [
        (
            CLAIM,
            {"size": "20Gi"},
            "nsqd.persistence.size of a release that exists cannot be changed by an upgrade (it is 10Gi).",
        ),
        (CLAIM, {"storageClass": "fast"}, "nsqd.persistence.storageClass of a release that exists"),
        (CLAIM, {"storageClass": "-"}, "nsqd.persistence.storageClass of a release that exists"),
        (CLAIM, {"accessModes": ["ReadWriteMany"]}, "nsqd.persistence.accessModes of a release that exists"),
        (CLAIM, {"enabled": False}, "nsqd.persistence.enabled of a release that exists"),
        (None, {}, "nsqd.persistence.enabled of a release that exists"),
    ],
)
def test_upgrade_that_would_change_claim_is_stopped_by_name_of_value(claim_change, claim, changes, sentence):
    assert claim_change(claim, **changes).startswith(sentence)


def test_label_of_object_goes_before_one_for_all_and_no_key_is_there_twice(chart):
    values = {"commonLabels": {"team": "all", "tier": "data"}, "nsqd": {"labels": {"team": "brokers"}}}
    release = render(chart, values)

    labels = release.workload("nsqd")["metadata"]["labels"]
    assert (labels["team"], labels["tier"]) == ("brokers", "data")
    assert release.sources["nsq/templates/nsqd/statefulset.yaml"].count("team: all") == 1  # the pods'
    assert release.workload("nsqlookupd")["metadata"]["labels"]["team"] == "all"


# --- an upgrade with fewer brokers


def checksum(release):
    return release.workload("nsqd")["metadata"]["annotations"]["nsq/pod-template"]


def test_checksum_of_pods_changes_with_pods_only(chart):
    plain = checksum(render(chart, {"nsqd": {"replicas": 3}}))

    assert checksum(render(chart, {"nsqd": {"replicas": 1}})) == plain
    assert checksum(render(chart, {"nsqd": {"replicas": 3, "config": {"msg-timeout": "3m"}}})) != plain
    assert checksum(render(chart, {"nsqd": {"podAnnotations": {"a": "b"}}})) != plain


@pytest.mark.parametrize(
    ("replicas", "found", "refused"),
    [(1, "same", False), (1, "other", True), (1, "", False), (3, "other", False), (4, "other", False)],
)
def test_fewer_brokers_with_another_change_are_refused(included, replicas, found, refused):
    existing = {"metadata": {"annotations": {"nsq/pod-template": found}}, "spec": {"replicas": 3}}
    objects = [{"found": existing, "replicas": replicas}]
    text = included("nsq.scaleDownChange", '(list $o.found $o.replicas "same")', extraObjects=objects)

    assert text.startswith("nsqd.replicas 1 instead of 3 together with another change") == refused
    assert bool(text) == refused
