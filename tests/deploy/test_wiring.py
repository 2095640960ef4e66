"""Names that must meet: selectors and labels, services and ports, addresses and pods."""

import pytest

from tests.deploy.release import render, values_of


def of_any_pod(selector):
    """A selector without the label that selects one pod of a StatefulSet."""
    return {key: value for key, value in selector.items() if key != "statefulset.kubernetes.io/pod-name"}


def ports_of(workload):
    """The ports of a pod, by name."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for each in containers for port in each.get("ports", [])}


def test_workloads_select_their_own_pods_only(release):
    for thing in release.workloads():
        selected = release.pods_selected(thing["spec"]["selector"]["matchLabels"])

        assert [one["metadata"]["name"] for one in selected] == [thing["metadata"]["name"]]


def test_services_and_budgets_select_one_workload_each(release):
    for thing in release.of_kind("Service"):
        assert len(release.pods_selected(of_any_pod(thing["spec"]["selector"]))) == 1
    for thing in release.of_kind("PodDisruptionBudget"):
        assert len(release.pods_selected(thing["spec"]["selector"]["matchLabels"])) == 1


def test_services_do_not_select_pod_of_helm_test(release):
    (test_pod,) = release.of_kind("Pod")

    for thing in release.of_kind("Service"):
        assert not thing["spec"]["selector"].items() <= test_pod["metadata"]["labels"].items()


def test_target_port_of_every_service_is_port_of_container(release):
    for thing in release.of_kind("Service"):
        (workload,) = release.pods_selected(of_any_pod(thing["spec"]["selector"]))
        offered = ports_of(workload)

        for port in thing["spec"]["ports"]:
            # The Service and the container need the same number: nsqlookupd announces the port of the
            # container.
            assert offered[port["targetPort"]] == port["port"]


def test_probes_ask_port_container_has(release):
    for thing in release.workloads():
        numbers = set(ports_of(thing).values())
        for container in thing["spec"]["template"]["spec"]["containers"]:
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                probe = container.get(kind, {})
                asked = probe.get("httpGet") or probe.get("tcpSocket")
                named = {port["name"] for port in container.get("ports", [])}
                # A name must be one of the container's own ports; a number may belong to another container of
                # the pod.
                assert asked is None or asked["port"] in named | numbers


def test_stateful_sets_have_their_headless_services(release):
    for thing in release.of_kind("StatefulSet"):
        service = release.named("Service", thing["spec"]["serviceName"])

        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert release.pods_selected(service["spec"]["selector"]) == [thing]


def test_nsqds_announce_stable_names(release):
    for index, name in enumerate(release.pod_names("nsqd")):
        line = release.command_line("nsqd", index)

        # If there is an address for clients outside, it is in the config file that is written before the
        # start.
        elsewhere = bool(release.values["nsqd"]["outside"]["type"])
        assert (f"--broadcast-address={name}" in line) is not elsewhere
        assert ("--config=/place/nsqd.toml" in line) >= elsewhere
        assert f"--node-id={index}" in line


def test_nsqlookupds_announce_stable_names(release):
    for index, name in enumerate(release.pod_names("nsqlookupd")):
        assert f"--broadcast-address={name}" in release.command_line("nsqlookupd", index)


@pytest.mark.parametrize(
    ("component", "flag", "port"),
    [
        ("nsqlookupd", "--lookupd-http-address", 4161),
        ("nsqd", "--lookupd-tcp-address", 4160),
        ("nsqadmin", "--lookupd-http-address", 4161),
    ],
)
def test_daemons_know_all_nsqlookupds(release, component, flag, port):
    if not release.values[component].get("enabled", True):
        assert not release.of_kind("Deployment")
        return
    wanted = [f"{flag}={name}:{port}" for name in release.pod_names("nsqlookupd")]

    assert [word for word in release.command_line(component) if word.startswith(flag)] == wanted


def test_address_follows_cluster_domain_and_number_of_lookup_daemons(chart):
    line = render(chart, {"clusterDomain": "corp.example", "nsqlookupd": {"replicas": 3}}).command_line(
        "nsqd"
    )

    assert (
        "--lookupd-tcp-address=demo-nsq-nsqlookupd-2.demo-nsq-nsqlookupd-headless.messaging.svc.corp.example:4160"
    ) in line


def test_helm_test_asks_service_that_exists_and_counts_every_nsqd(release):
    (pod,) = release.of_kind("Pod")
    words = dict(word.split("=") for word in pod["spec"]["containers"][0]["args"] if "=" in word)
    service = words["--lookupd-http-address"].removeprefix("https://").split(".")[0]

    assert release.named("Service", service)
    assert int(words["--producers"]) == release.workload("nsqd")["spec"]["replicas"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_budgets_are_there_by_default_and_can_be_switched_off(chart):
    assert len(render(chart, {}).of_kind("PodDisruptionBudget")) == 2

    assert render(chart, values_of("minimal")).of_kind("PodDisruptionBudget") == []


def test_ingress_leads_to_service_of_nsqadmin(chart):
    release = render(chart, values_of("production"))
    (ingress,) = release.of_kind("Ingress")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    service = release.named("Service", path["backend"]["service"]["name"])

    assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert ingress["spec"]["tls"] == [{"hosts": [rule["host"]], "secretName": "nsq-example-com"}]
    assert path["path"] == "/"


def test_ingress_follows_base_path_of_nsqadmin(chart):
    values = {"nsqadmin": {"config": {"base-path": "nsq/"}, "ingress": {"enabled": True}}}
    (ingress,) = render(chart, values).of_kind("Ingress")

    assert ingress["spec"]["rules"][0]["http"]["paths"][0]["path"] == "/nsq"


def test_topology_constraint_without_selector_gets_the_one_of_its_pods(chart):
    thing = render(chart, values_of("production")).workload("nsqd")
    (constraint,) = thing["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert constraint["labelSelector"] == thing["spec"]["selector"]


def test_nsqadmin_is_reached_by_name_of_its_ingress(chart):
    values = {"nsqadmin": {"ingress": {"enabled": True, "hosts": ["nsq.example.com"]}}}

    assert "--allowed-hosts=nsq.example.com" in render(chart, values).command_line("nsqadmin", index=0)
    assert not any("allowed-hosts" in word for word in render(chart, {}).command_line("nsqadmin", index=0))
