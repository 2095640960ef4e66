"""Access to nsqadmin: people who sign in, programs with tokens, and the audit of both."""

import hashlib
import http.client
import json

import pytest

from bench.ports import free_port
from tests.deploy.release import render, values_of


@pytest.fixture(scope="module")
def guarded(chart):
    return render(chart, values_of("guarded"))


def spec_of(release):
    return release.named("Deployment", "demo-nsq-nsqadmin")["spec"]["template"]["spec"]


def test_secrets_are_not_on_command_line_or_in_environment(guarded):
    spec = spec_of(guarded)
    volumes = {each["name"]: each for each in spec["volumes"]}
    mounts = {each["mountPath"]: each for each in spec["containers"][0]["volumeMounts"]}

    assert volumes["openid"]["secret"]["secretName"] == "nsqadmin-openid"
    assert volumes["tokens"]["secret"]["secretName"] == "nsqadmin-tokens"
    assert volumes["audit"]["persistentVolumeClaim"] == {"claimName": "nsqadmin-audit"}
    assert (mounts["/etc/nsq/openid"]["name"], mounts["/etc/nsq/openid"]["readOnly"]) == ("openid", True)
    assert (mounts["/etc/nsq/tokens"]["name"], mounts["/etc/nsq/tokens"]["readOnly"]) == ("tokens", True)
    assert mounts["/audit"] == {"name": "audit", "mountPath": "/audit"}


def test_pod_that_writes_audit_ends_before_the_next_one_starts(guarded):
    """Both would write to the file, or the new one would wait for the volume of the old one forever."""
    assert guarded.named("Deployment", "demo-nsq-nsqadmin")["spec"]["strategy"] == {"type": "Recreate"}


def test_disabled_parts_are_not_rendered(chart):
    release = render(chart, {})

    assert [volume["name"] for volume in spec_of(release)["volumes"]] == ["tmp"]
    assert not [
        word
        for word in release.command_line("nsqadmin")
        if word.startswith(("--oidc", "--session", "--api-token", "--audit"))
    ]


def of_people(release, folder):
    """The release's flags about people, with their paths moved below *folder*."""
    about = ("--oidc", "--session", "--api-token", "--audit", "--role")
    return [
        word.replace("=/", f"={folder}/")
        for word in release.command_line("nsqadmin")
        if word.startswith(about)
    ]


@pytest.fixture
def nsqadmin(cluster, guarded, tmp_path):
    """An nsqadmin with the release's flags about people, and the secrets where the chart mounts them."""
    (tmp_path / "audit").mkdir()
    roles = {"prometheus": "viewer", "deployer": "admin"}
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in roles}
    for path, content in {
        "openid/client-secret": "s" * 32,
        "openid/session-secret": "t" * 32,
        "tokens/tokens": "".join(f"{name} {role} {digests[name]}\n" for name, role in roles.items()),
    }.items():
        file = tmp_path / "etc" / "nsq" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return cluster.nsqadmin(f"--nsqd-http-address=127.0.0.1:{free_port()}", *of_people(guarded, tmp_path))


def ask(daemon, method, path, token="", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=10)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        reply = connection.getresponse()
        reply.read()
        return reply.status, reply.headers
    finally:
        connection.close()


def test_probes_pass_prometheus_shows_its_token_and_people_are_led_to_provider(nsqadmin, guarded):
    (endpoint,) = guarded.named("ServiceMonitor", "demo-nsq-nsqadmin")["spec"]["endpoints"]

    assert endpoint["authorization"]["credentials"] == {"name": "prometheus-token", "key": "token"}
    assert ask(nsqadmin, "GET", "/ping")[0] == 200
    assert ask(nsqadmin, "GET", endpoint["path"])[0] == 401
    assert ask(nsqadmin, "GET", endpoint["path"], "prometheus")[0] == 200
    assert ask(nsqadmin, "GET", endpoint["path"], "stranger")[0] == 401
    status, headers = ask(nsqadmin, "GET", "/topics")
    assert (status, headers["Location"]) == (303, "/sign-in?next=/topics")


def test_change_of_program_is_in_file_on_claim(nsqadmin, tmp_path):
    new = json.dumps({"topic": "new"})

    assert ask(nsqadmin, "POST", "/api/topics", "prometheus", new)[0] == 403
    ask(nsqadmin, "POST", "/api/topics", "deployer", new)

    (line,) = (tmp_path / "audit" / "nsqadmin.jsonl").read_text().splitlines()
    assert json.loads(line)["user"] == "deployer"
    assert json.loads(line)["topic"] == "new"
