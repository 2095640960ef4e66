"""--http-auth: HTTP requests also need the AUTH secret."""

import http.client
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nsqcore.http.router import Route
from nsqd.server.http.auth import HttpGuard
from nsqd.server.http.openapi import NEEDS, Needs
from tests.support.auth_server import AuthServer, granted
from tests.support.processes import Cluster
from tests.support.site import ask
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]

ANYTHING = "/pub?topic=t"
GRANTS = {
    "everything": granted(),
    "publisher": granted(topic="^t$", permissions=("publish",)),
    "reader": granted(topic="^t$", channels=("^c$",), permissions=("subscribe",)),
    "owner": granted(topic="^t$"),
    "short": granted(ttl=1),
    "broken": "no JSON at all",
}


@pytest.fixture(scope="module")
def guarded_nsqd(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("http_auth"))
    with AuthServer(by_secret=GRANTS) as server:
        yield cluster.nsqd(f"--auth-http-address={server.address}", "--http-auth"), server
        cluster.close()


@pytest.fixture
def servers(guarded_nsqd):
    guarded_nsqd[1].reset()
    return guarded_nsqd[1]


@pytest.fixture
def guarded(guarded_nsqd):
    """An nsqd without topics that asks for the secret."""
    nsqd, _ = guarded_nsqd
    nsqd.forget_logs()
    yield nsqd
    assert "Traceback" not in nsqd.logs()
    request(nsqd, "POST", "/drain?cancel=true", "everything")
    for topic in nsqd.get("/stats?format=json")["topics"]:
        request(nsqd, "POST", f"/topic/delete?topic={topic['topic_name']}", "everything")


def request(nsqd, method, path, secret=None, body=b"x"):
    return nsqd.request(method, path, body, {} if secret is None else {"Authorization": f"Bearer {secret}"})


def secret_file(folder, secret="everything"):
    path = folder / "secret"
    path.write_text(secret + "\n")
    return str(path)


@pytest.mark.parametrize(
    "path",
    ["/ping", "/info", "/stats?format=json", "/metrics", "/live", "/ready", "/started", "/drain"],
)
def test_probe_and_monitor_routes_need_no_secret(guarded, path):
    assert request(guarded, "GET", path)[0] == 200


@pytest.mark.parametrize("path", ["/pub?topic=t", "/mpub?topic=t", "/topic/create?topic=t", "/drain"])
def test_requests_without_secret_change_nothing(guarded, path):
    assert request(guarded, "POST", path) == (401, b'{"message":"AUTH_REQUIRED"}')

    assert guarded.get("/stats?format=json")["topics"] == []
    assert guarded.get("/drain")["draining"] is False


def test_fast_publisher_is_asked_as_well(guarded):
    """Without --http-auth an ordinary publish is answered before its headers are looked at."""
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=10)
    for _ in range(2):
        connection.request("POST", ANYTHING, b"x")
        response = connection.getresponse()
        assert (response.status, response.getheader("WWW-Authenticate")) == (401, "Bearer")
        response.read()
    connection.close()


@pytest.mark.parametrize("header", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer  ", "everything"])
def test_authorization_other_than_bearer_is_refused(guarded, header):
    assert guarded.request("POST", ANYTHING, b"x", {"Authorization": header})[0] == 401


def test_unknown_secret_is_refused_and_logged(guarded):
    assert request(guarded, "POST", ANYTHING, "broken") == (403, b'{"message":"AUTH_FAILED"}')

    assert "AUTH failed" in guarded.logs()
    assert "broken" not in guarded.logs()


# secret -> the requests that it allows
POSSIBLE = {
    "publisher": {"pub", "create topic"},
    "reader": {"create channel", "commit", "bounds", "pause channel"},
    "owner": {
        "pub",
        "create topic",
        "create channel",
        "commit",
        "bounds",
        "pause channel",
        "other channel",
        "pause topic",
    },
}
REQUESTS = {
    "pub": ("POST", "/pub?topic=t"),
    "create topic": ("POST", "/topic/create?topic=t"),
    "pause topic": ("POST", "/topic/pause?topic=t"),
    "create channel": ("POST", "/channel/create?topic=t&channel=c"),
    "other channel": ("POST", "/channel/create?topic=t&channel=other"),
    "pause channel": ("POST", "/channel/pause?topic=t&channel=c"),
    "commit": ("POST", "/channel/commit?topic=t&channel=c&sequence=0"),
    "bounds": ("GET", "/log/bounds?topic=t&channel=c"),
    "other topic": ("POST", "/pub?topic=u"),
    "no topic": ("POST", "/pub"),
    "option": ("PUT", "/config/log_level"),
    "drain": ("POST", "/drain"),
}


@pytest.mark.parametrize("secret", POSSIBLE)
def test_secret_opens_what_it_grants_and_nothing_else(guarded, secret):
    request(guarded, "POST", "/channel/create?topic=t&channel=c", "everything")

    let_through = {
        name
        for name, (method, path) in REQUESTS.items()
        if request(guarded, method, path, secret, b"info")[0] not in {401, 403}
    }

    assert let_through == POSSIBLE[secret]


def test_secret_for_everything_opens_node(guarded):
    for name, (method, path) in REQUESTS.items():
        status, body = request(guarded, method, path, "everything", b"info")
        assert status not in {401, 403}, (name, status, body)


def test_answer_counts_until_its_time_is_over(guarded, servers):
    for _ in range(3):
        assert request(guarded, "POST", ANYTHING, "owner")[0] == 200
    # Another test may have asked for this secret before.
    assert len(servers.asked) <= 1
    before = len(servers.asked)

    assert request(guarded, "POST", ANYTHING, "short")[0] == 200
    wait_until(
        lambda: request(guarded, "POST", ANYTHING, "short")[0] == 200 and len(servers.asked) == before + 2,
        "the server is asked again",
    )


def test_unclassified_route_needs_every_right():
    async def handler(_):
        raise AssertionError("not reached")

    known = Route("GET", "/ping", handler)
    unknown = Route("GET", "/unheard-of", handler)

    assert NEEDS["GET", "/ping"] is Needs.NOTHING
    table = HttpGuard(None).routes([known, unknown])
    assert [route.handler is handler for route in table] == [True, False]


def test_node_routes_need_every_grant():
    """The listed routes belong to the whole node, so a secret for one topic does not open them."""
    closed = {key for key, needs in NEEDS.items() if needs is Needs.NODE}

    assert closed == {
        ("PUT", "/config/:opt"),
        ("POST", "/drain"),
        ("POST", "/decommission"),
        ("POST", "/dead_letters/send_back"),
        ("PUT", "/policies"),
        ("DELETE", "/policies"),
    }


def test_http_auth_needs_auth_server(cluster):
    nsqd = cluster.daemon("nsqd", ["--http-auth"])

    assert nsqd.spawn().wait() == 1
    assert "--http-auth needs --auth-http-address" in nsqd.logs()


def test_drain_shows_secret_of_file(guarded, tmp_path):
    command = [sys.executable, "-m", "nsqd.drain", f"--http-address={guarded.http_address}"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode == 1
    assert "AUTH_REQUIRED" in refused.stderr

    command.append(f"--auth-secret-file={secret_file(tmp_path)}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert guarded.get("/drain")["draining"] is True


def test_nsqadmin_shows_secret_of_file(guarded, cluster, tmp_path):
    request(guarded, "POST", "/topic/create?topic=t", "everything")
    nsqds = f"--nsqd-http-address={guarded.http_address}"
    without = cluster.nsqadmin(nsqds)
    refused = ask(without, "POST", "/api/topics/t", json.dumps({"action": "pause"}))
    assert refused.status != 200
    assert guarded.get("/stats?format=json")["topics"][0]["paused"] is False

    allowed = cluster.nsqadmin(nsqds, f"--auth-secret-file={secret_file(tmp_path)}")
    assert ask(allowed, "POST", "/api/topics/t", json.dumps({"action": "pause"})).status == 200

    assert guarded.get("/stats?format=json")["topics"][0]["paused"] is True
    assert b"everything" not in ask(allowed, "GET", "/config/auth_secret_file").body


def test_nsqadmin_does_not_start_without_secret_it_was_told_of(cluster):
    admin = cluster.daemon(
        "nsqadmin", ["--nsqd-http-address=127.0.0.1:1", "--auth-secret-file=/no/such"], listeners=("http",)
    )

    assert admin.spawn().wait() == 1
    assert "--auth-secret-file: cannot read the AUTH secret - open /no/such: No such file" in admin.logs()
