"""Clients and people outside: an address per broker, hosts and routes, certificates, zones."""

import pytest

from nsqtools.kube import drain_hook, place
from tests.deploy.release import NAMESPACE, render, values_of

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def balanced(chart):
    return render(chart, values_of("balanced"))


@pytest.fixture(scope="module")
def signed_in(chart):
    return render(chart, values_of("signed-in"))


def placing(release):
    (container,) = release.pod()["initContainers"]
    return container


# --- an address for each broker


def test_broker_has_service_that_leads_to_its_pod(chart):
    release = render(chart, values_of("outside"))

    for index in range(3):
        thing = release.named("Service", f"demo-nsq-nsqd-{index}")
        assert thing["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == f"demo-nsq-nsqd-{index}"
        assert [port["nodePort"] for port in thing["spec"]["ports"]] == [30150 + index, 30160 + index]


def test_broker_that_refuses_plain_http_is_reached_over_https_from_outside(chart):
    tls = {"secretName": "t", "required": "true"}
    release = render(chart, {"nsqd": {"outside": {"type": "LoadBalancer"}, "tls": tls}})

    ports = {
        port["name"]: port["port"] for port in release.named("Service", "demo-nsq-nsqd-0")["spec"]["ports"]
    }
    assert ports == {"tcp": 4150, "http": 4151, "https": 4152}


def test_announced_address_is_found_before_broker_starts(balanced):
    words = placing(balanced)["args"]
    options = place.parse_arguments([word.replace("$(POD_NAME)", "demo-nsq-nsqd-1") for word in words])

    assert options.service == "demo-nsq-nsqd-1"
    assert options.timeout_s == 120
    assert f"--config={options.output}" in balanced.command_line("nsqd")
    assert not [word for word in balanced.command_line("nsqd") if word.startswith("--broadcast-address")]


def test_addresses_of_ones_own_are_handed_on_in_their_order(chart):
    outside = {"type": "NodePort", "addresses": ["a.example.com", "b.example.com"]}
    options = place.parse_arguments(placing(render(chart, {"nsqd": {"outside": outside}}))["args"])

    assert options.addresses == ("a.example.com", "b.example.com")


@pytest.mark.parametrize(
    ("kind", "open_ports"),
    [("ClusterIP", ["tcp", "http"]), ("NodePort", ["http"]), ("LoadBalancer", ["http"])],
)
def test_external_clients_cannot_register_broker(chart, kind, open_ports):
    release = render(chart, {"nsqlookupd": {"service": {"type": kind}}})

    ports = release.named("Service", "demo-nsq-nsqlookupd")["spec"]["ports"]
    assert [port["name"] for port in ports] == open_ports


# --- requests to the API of Kubernetes, and the rights for them


def rules(release, kind):
    return [rule for thing in release.of_kind(kind) for rule in thing["rules"]]


def test_kubernetes_api_is_used_only_if_values_want_it(chart):
    release = render(chart, {})

    assert release.of_kind("Role") + release.of_kind("ClusterRole") == []
    assert "initContainers" not in release.pod()
    assert TOKEN not in str(release.objects)


def test_rights_are_least_that_is_needed(balanced):
    assert rules(balanced, "ClusterRole") == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    services, stateful_set, events = rules(balanced, "Role")
    assert services["resourceNames"] == [f"demo-nsq-nsqd-{index}" for index in range(3)]
    assert services["verbs"] == ["get", "watch"]
    assert (stateful_set["resourceNames"], stateful_set["verbs"]) == (["demo-nsq-nsqd"], ["get"])
    assert (events["resources"], events["verbs"]) == (["events"], ["create"])


def test_token_is_in_container_that_uses_it(chart):
    release = render(chart, {"nsqd": {"topology": {"fromNode": True}}})
    mounted = [mount["mountPath"] for mount in release.pod()["containers"][0]["volumeMounts"]]

    assert TOKEN in [mount["mountPath"] for mount in placing(release)["volumeMounts"]]
    assert TOKEN not in mounted
    assert release.pod()["automountServiceAccountToken"] is False


@pytest.mark.parametrize("account", [{}, {"create": False, "name": "brokers"}, {"create": False}])
def test_rights_belong_to_account_of_pods(chart, account):
    values = values_of("balanced")
    values["nsqd"]["serviceAccount"] = account
    release = render(chart, values)

    for thing in release.of_kind("RoleBinding") + release.of_kind("ClusterRoleBinding"):
        (subject,) = thing["subjects"]
        assert subject["name"] == release.pod()["serviceAccountName"]
        assert subject["namespace"] == NAMESPACE
        assert thing["roleRef"]["name"] == thing["metadata"]["name"]


def test_cluster_wide_names_differ_from_one_namespace_to_the_next(chart):
    values = values_of("default") | {"nsqd": {"topology": {"fromNode": True}}}
    one, other = (chart.render(values, name="demo", namespace=space) for space in ("a", "b"))
    path = "nsq/templates/nsqd/clusterrole.yaml"

    assert one[path] != other[path]


def test_hook_that_writes_events_drains_with_the_same_flags(chart, balanced):
    with_events = balanced.pod()["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    values = values_of("balanced")
    values["nsqd"]["drain"]["events"] = False
    plain = render(chart, values).pod()["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    options = drain_hook.parse_arguments(with_events[3:])

    assert with_events[:3] == ["python", "-m", "nsqtools.kube.drain_hook"]
    assert list(options.drain) == plain[3:]
    assert options.stateful_set == "demo-nsq-nsqd"


# --- zones


def test_consumers_of_zone_come_first_where_zone_is_read(chart):
    line = render(chart, values_of("zones")).command_line("nsqd")

    assert "--enable-experiment=topology-aware-consumption" in line
    assert "--config=/place/nsqd.toml" in line
    assert "--node=$(NODE_NAME)" in placing(render(chart, values_of("zones")))["args"]


# --- people


def test_hosts_have_rules_and_are_allowed(signed_in):
    (ingress,) = signed_in.of_kind("Ingress")
    hosts = ["nsq.example.com", "queues.example.com"]

    assert [rule["host"] for rule in ingress["spec"]["rules"]] == hosts
    assert ingress["spec"]["tls"] == [{"hosts": hosts, "secretName": "nsq-example-com"}]
    allowed = [word for word in signed_in.command_line("nsqadmin") if word.startswith("--allowed-hosts")]
    assert allowed == [f"--allowed-hosts={host}" for host in hosts]


def test_route_leads_to_service_of_nsqadmin(chart):
    release = render(chart, values_of("outside"))
    (route,) = release.of_kind("HTTPRoute")
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    service = release.named("Service", backend["name"])

    assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert route["spec"]["hostnames"] == ["nsq.example.com", "nsq.example.org"]
    assert route["spec"]["parentRefs"] == [{"name": "public", "namespace": "gateways"}]


# --- certificates


def test_shared_certificate_has_names_of_all_its_daemons(signed_in):
    (certificate,) = signed_in.of_kind("Certificate")
    names = certificate["spec"]["dnsNames"]

    assert certificate["spec"]["secretName"] == "nsq-tls"
    assert certificate["spec"]["issuerRef"] == {
        "name": "nsq",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }
    assert len(names) == len(set(names))
    # Brokers and nsqlookupds are addressed by the names of their pods, everything else by names of Services.
    for address in [*signed_in.pod_names("nsqd"), *signed_in.pod_names("nsqlookupd")]:
        assert f"*.{address.partition('.')[2]}" in names
    for thing in signed_in.of_kind("Service"):
        # TLS for nsqadmin ends at the ingress.
        if not {"headless", "nsqadmin"} & set(thing["metadata"]["name"].split("-")):
            assert f"{thing['metadata']['name']}.{NAMESPACE}.svc.cluster.local" in names
    assert "mq.example.com" in names


def test_secrets_have_certificates_and_helm_test_has_client_certificate(chart):
    values = values_of("guarded")
    values["tls"]["certManager"] = {"enabled": True, "issuerRef": {"name": "nsq"}}
    found = {
        thing["spec"]["secretName"]: thing["spec"] for thing in render(chart, values).of_kind("Certificate")
    }

    assert set(found) == {"nsqd-tls", "nsqlookupd-tls", "nsqadmin-tls", "nsq-tester-tls"}
    assert found["nsq-tester-tls"]["usages"] == ["client auth"]
    # Brokers show it to each other, as clients.
    assert found["nsqd-tls"]["usages"] == ["server auth", "client auth"]
    assert found["nsqlookupd-tls"]["usages"] == ["server auth"]


@pytest.mark.parametrize(
    ("chosen", "made"),
    [
        ({}, {"algorithm": "ECDSA"}),
        ({"algorithm": "RSA"}, {"algorithm": "RSA"}),
        ({"algorithm": "RSA", "size": 4096}, {"algorithm": "RSA", "size": 4096}),
    ],
)
def test_key_whose_size_is_not_chosen_has_that_of_its_kind(chart, chosen, made):
    values = values_of("signed-in")
    values["tls"]["certManager"]["privateKey"] = chosen
    (certificate,) = render(chart, values).of_kind("Certificate")

    assert certificate["spec"]["privateKey"] == made | {"rotationPolicy": "Always"}


# --- scrapes


def test_scrape_over_https_checks_name_of_service(signed_in):
    (endpoint,) = signed_in.named("ServiceMonitor", "demo-nsq-nsqd")["spec"]["endpoints"]
    name = endpoint["tlsConfig"]["serverName"]

    assert name in signed_in.of_kind("Certificate")[0]["spec"]["dnsNames"]
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "nsq-tls", "key": "ca.crt"}


def test_monitors_select_one_thing_each_and_carry_token_and_relabelings(chart):
    release = render(chart, values_of("monitored"))

    for component in ("nsqd", "nsqlookupd", "nsqadmin"):
        spec = release.named("PodMonitor", f"demo-nsq-{component}")["spec"]
        (selected,) = release.pods_selected(spec["selector"]["matchLabels"])
        (endpoint,) = spec["podMetricsEndpoints"]
        ports = selected["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert endpoint["port"] in {port["name"] for port in ports}
        assert endpoint["authorization"]["credentials"] == {"name": "scrape", "key": "token"}
        assert endpoint["relabelings"] == [{"targetLabel": "cluster", "replacement": "east"}]
        assert endpoint["metricRelabelings"][0]["action"] == "drop"


def test_service_monitor_scrapes_each_broker_once(chart):
    release = render(chart, values_of("production"))
    selector = release.named("ServiceMonitor", "demo-nsq-nsqd")["spec"]["selector"]["matchLabels"]
    found = [
        each for each in release.of_kind("Service") if selector.items() <= each["metadata"]["labels"].items()
    ]

    assert [each["metadata"]["name"] for each in found] == ["demo-nsq-nsqd-headless"]


# --- tools


def test_pod_with_tools_knows_where_cluster_is(chart):
    release = render(chart, values_of("monitored"))
    (container,) = release.pod("tools")["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}

    for variable in variables.values():
        assert release.named("Service", variable.partition(".")[0])
    assert set(variables) == {"NSQLOOKUPD", "NSQD"}
