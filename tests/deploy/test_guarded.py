"""TLS, AUTH and network policies: they guard a cluster and still let its own parts in."""

import subprocess
import sys
from pathlib import Path

import pytest

from nsqcore.cluster.secret import SecretFile
from nsqd.drain import parse_arguments
from tests.deploy.release import CHART, render, values_of

ROOT = Path(__file__).parents[2]
GUARDED = values_of("guarded")


@pytest.fixture(scope="module")
def guarded(chart):
    return render(chart, GUARDED)


def files(spec):
    """The mounted secrets: path -> the volume's secret, with its keys."""
    volumes = {volume["name"]: volume.get("secret") for volume in spec["volumes"]}
    mounts = spec["containers"][0]["volumeMounts"]
    return {mount["mountPath"]: volumes[mount["name"]] for mount in mounts if volumes.get(mount["name"])}


@pytest.mark.parametrize("component", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_files_on_command_line_are_in_mounted_secrets(guarded, component):
    mounted = files(guarded.pod(component))
    named = [
        Path(word.partition("=")[2])
        for word in guarded.container(component)["args"]
        if word.partition("=")[2].startswith("/etc/nsq/")
    ]

    assert len(named) >= 3
    for path in named:
        secret = mounted[str(path.parent)]
        items = {item["path"] for item in secret.get("items", [])} or {"tls.crt", "tls.key"}
        assert path.name in items


def test_daemons_serve_certificates_of_their_secrets(guarded):
    for component in ("nsqd", "nsqlookupd", "nsqadmin"):
        line = guarded.command_line(component)
        assert {"--tls-cert=/etc/nsq/tls/tls.crt", "--tls-key=/etc/nsq/tls/tls.key"} <= set(line)
        assert files(guarded.pod(component))["/etc/nsq/tls"]["secretName"] == f"{component}-tls"


@pytest.mark.parametrize(("component", "port"), [("nsqd", 4152), ("nsqlookupd", 4162), ("nsqadmin", 4172)])
def test_https_port_is_in_pod_and_in_its_service(guarded, component, port):
    assert {"name": "https", "containerPort": port} in guarded.container(component)["ports"]
    name = {"nsqd": "demo-nsq-nsqd-http"}.get(component, f"demo-nsq-{component}")
    ports = guarded.named("Service", name)["spec"]["ports"]

    assert [each["port"] for each in ports if each["name"] == "https"] == [port]


def test_services_without_certificate_have_no_https_port(chart):
    release = render(chart, {})

    for thing in release.of_kind("Service"):
        assert "https" not in {port["name"] for port in thing["spec"]["ports"]}


def test_probes_use_https_where_plain_http_is_refused(guarded):
    for component, scheme in (("nsqd", "HTTP"), ("nsqlookupd", "HTTPS"), ("nsqadmin", "HTTPS")):
        asked = guarded.container(component)["readinessProbe"]["httpGet"]

        assert (asked["scheme"], asked["port"]) == (scheme, scheme.lower())


def test_drain_scrape_and_probes_of_broker_follow_tls_that_is_required(chart):
    tls = {"secretName": "nsqd-tls", "required": "true"}
    monitoring = {"monitors": {"kind": "ServiceMonitor"}}
    release = render(chart, {"nsqd": {"tls": tls}, "monitoring": monitoring})
    hook = release.stop_command()
    options = parse_arguments(hook[3:])

    assert options.http_address == "127.0.0.1:4152"
    assert options.tls is not None
    assert not options.tls.check_hostname
    (endpoint,) = release.named("ServiceMonitor", "demo-nsq-nsqd")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("https", "https")
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert release.container()[kind]["httpGet"]["scheme"] == "HTTPS"
    (test,) = release.of_kind("Pod")
    assert "--tls" in test["spec"]["containers"][0]["args"]


def test_drain_nsqadmin_and_helm_test_show_secret(guarded):
    hook = guarded.stop_command()
    (test,) = guarded.of_kind("Pod")

    assert parse_arguments(hook[3:]).secret == SecretFile("/etc/nsq/auth/secret")
    assert parse_arguments(hook[3:]).poll_interval_s == 30
    assert "--auth-secret-file=/etc/nsq/auth/secret" in guarded.command_line("nsqadmin")
    assert "--auth-secret-file=/etc/nsq/auth/secret" in test["spec"]["containers"][0]["args"]
    for spec in (guarded.pod(), guarded.pod("nsqadmin"), test["spec"]):
        assert files(spec)["/etc/nsq/auth"] == {
            "secretName": "nsq-operator",
            "items": [{"key": "secret", "path": "secret"}],
        }


@pytest.mark.parametrize("name", ["default", "guarded", "production"])
def test_program_of_helm_test_understands_its_command_line(chart, name):
    (test,) = render(chart, values_of(name)).of_kind("Pod")
    arguments = test["spec"]["containers"][0]["args"]
    done = subprocess.run(
        [sys.executable, "-m", "nsqtools.selftest", *arguments, "--timeout=0.1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    # 2 would mean an unknown argument. 1 is expected, because the files and hosts do not exist here.
    assert done.returncode == 1
    assert done.stderr.startswith("selftest failed: ")


def test_helm_test_stays_so_that_its_log_can_be_read(guarded):
    (test,) = guarded.of_kind("Pod")

    assert test["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"


# --- who may connect


def test_publishers_reach_tcp_only_through_their_service(chart):
    release = render(chart, {})

    (tcp,) = release.named("Service", "demo-nsq-nsqd")["spec"]["ports"]
    (http,) = release.named("Service", "demo-nsq-nsqd-http")["spec"]["ports"]
    assert (tcp["port"], http["port"]) == (4150, 4151)
    without = render(chart, {"nsqd": {"httpService": {"enabled": False}}})
    assert "demo-nsq-nsqd-http" not in {thing["metadata"]["name"] for thing in without.of_kind("Service")}


def policy(release, component):
    return release.named("NetworkPolicy", f"demo-nsq-{component}")["spec"]


def peers(spec, port):
    """The peers that may connect to a port, as a list; None for everybody."""
    (rule,) = [rule for rule in spec["ingress"] if port in {each["port"] for each in rule["ports"]}]
    return rule.get("from")


def component_of(peer):
    return peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")


def test_network_policy_exists_only_on_request(chart):
    assert render(chart, {}).of_kind("NetworkPolicy") == []


def test_network_policies_select_one_workload_and_its_ports(guarded):
    for thing in guarded.of_kind("NetworkPolicy"):
        (workload,) = guarded.pods_selected(thing["spec"]["podSelector"]["matchLabels"])
        ports = workload["spec"]["template"]["spec"]["containers"][0]["ports"]
        offered = {port["name"] for port in ports}
        for rule in thing["spec"]["ingress"]:
            assert {port["port"] for port in rule["ports"]} <= offered


def test_http_api_of_nsqd_is_open_to_nsqadmin_and_to_those_that_are_named(guarded):
    allowed = peers(policy(guarded, "nsqd"), "http")

    assert [component_of(peer) for peer in allowed] == ["nsqadmin", None, None]
    assert GUARDED["networkPolicy"]["http"][0] in allowed
    assert peers(policy(guarded, "nsqd"), "https") == allowed


def test_network_policy_without_list_opens_tcp_and_closes_http_api(chart):
    release = render(chart, {"networkPolicy": {"enabled": True}})

    assert peers(policy(release, "nsqd"), "tcp") is None
    assert peers(policy(release, "nsqlookupd"), "http") is None
    assert [component_of(peer) for peer in peers(policy(release, "nsqd"), "http")] == ["nsqadmin"]


def test_parts_of_release_reach_each_other(guarded):
    brokers, lookups = policy(guarded, "nsqd"), policy(guarded, "nsqlookupd")

    assert "test" in {component_of(peer) for peer in peers(brokers, "tcp")}
    assert [component_of(peer) for peer in peers(lookups, "tcp")] == ["nsqd"]
    assert {"nsqd", "nsqlookupd", "nsqadmin", "test"} <= {
        component_of(peer) for peer in peers(lookups, "http")
    }
    (test,) = guarded.of_kind("Pod")
    assert test["metadata"]["labels"]["app.kubernetes.io/component"] == "test"


def test_notes_warn_of_open_http_api(chart, guarded):
    sentence = "The HTTP API of nsqd (port 4151) is open to every client"

    assert sentence in render(chart, {}).sources["nsq/templates/NOTES.txt"]
    assert sentence not in guarded.sources["nsq/templates/NOTES.txt"]


def test_notes_have_command_for_a_first_message(chart, guarded):
    notes = render(chart, {}).sources["nsq/templates/NOTES.txt"]
    command = "kubectl -n messaging exec demo-nsq-nsqd-0 -- python -c "

    assert f"A first message:         {command}" in notes
    # It shows no secret and speaks no TLS.
    assert command not in guarded.sources["nsq/templates/NOTES.txt"]


def test_notes_say_how_to_scale_down(guarded):
    notes = guarded.sources["nsq/templates/NOTES.txt"]

    assert (
        "exec demo-nsq-nsqd-1 -- python -m nsqd.drain --grace=13s --timeout=1h --auth-secret-file=" in notes
    )
    assert CHART.exists()


def test_notes_give_a_drain_the_time_in_which_the_readiness_probe_fails(chart):
    probes = {"readiness": {"periodSeconds": 10, "failureThreshold": 3}}
    drained = render(chart, {"nsqd": {"probes": probes, "preStopSeconds": 7}})
    replication = {"secretName": "nsq-cluster"}
    moved = render(chart, {"nsqd": {"replication": replication, "drain": {"decommission": True}}})

    assert "-- python -m nsqd.drain --grace=37s " in drained.sources["nsq/templates/NOTES.txt"]
    assert "-- nsqd-decommission --grace=15s " in moved.sources["nsq/templates/NOTES.txt"]
