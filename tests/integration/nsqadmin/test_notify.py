"""Admin actions are reported to an HTTP endpoint, and a dead endpoint does not hinder them."""

import http.client
import json
import queue
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bench.ports import free_port
from tests.support.certificates import Authority
from tests.support.site import ask, build_site, submit
from tests.support.waiting import wait_until


@pytest.fixture
def endpoint():
    """An endpoint that keeps the reports, and answers with an error, which must have no effect."""
    told = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.put((self.headers["Content-Type"], json.loads(body)))
            self.send_error(500)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/told", told
    server.shutdown()
    thread.join()
    server.server_close()


def test_actions_of_api_and_pages_are_told_in_order(cluster, endpoint):
    url, told = endpoint
    site = build_site(cluster, f"--notification-http-endpoint={url}")
    site.fill("orders", "a")
    who = {"Authorization": "Basic YWxpY2U6c2VjcmV0", "User-Agent": "curl/8", "X-Scheme": "https"}
    first = site.nsqds[0].http_address

    ask(site.admin, "POST", "/api/topics", '{"topic":"new","channel":"c"}', who)
    ask(site.admin, "POST", "/api/topics/orders/a", '{"action":"pause"}')
    submit(site.admin, action="unpause", topic="orders", channel="a")
    ask(site.admin, "POST", "/api/topics/orders", '{"action":"fly"}')
    ask(site.admin, "DELETE", f"/api/nodes/{first}?x=1", '{"topic":"orders"}')
    ask(site.admin, "DELETE", "/api/topics/orders")

    heard = [told.get(timeout=30) for _ in range(6)]
    assert {kind for kind, _ in heard} == {"application/json"}
    bodies = [body for _, body in heard]
    assert [body["action"] for body in bodies] == [
        "create_topic",
        "create_channel",
        "pause_channel",
        "unpause_channel",
        "tombstone_topic_producer",
        "delete_topic",
    ]
    created, _, paused, unpaused, tombstoned, _ = bodies
    assert abs(created.pop("timestamp") - time.time()) < 60
    assert created.pop("remote_ip").startswith("127.0.0.1:")
    host = f"127.0.0.1:{site.admin.http_port}"
    assert created == {
        "action": "create_topic",
        "topic": "new",
        "user": "alice",
        "user_agent": "curl/8",
        "url": f"https://{host}/api/topics",
        "via": socket.gethostname(),
    }
    assert (paused["channel"], "user" in paused, "node" in paused) == ("a", False, False)
    assert unpaused["url"] == f"http://{host}/action"
    assert (tombstoned["node"], tombstoned["url"]) == (first, f"http://{host}/api/nodes/{first}?x=1")
    assert told.empty()


@pytest.mark.parametrize(
    "who",
    [
        {"X-Forwarded-User": b"J\xfcrgen"},
        {"Authorization": b"Basic \xc3\xa9"},
        {"Authorization": b"Basic \xe9"},
        {"Authorization": b"Basic =a"},
    ],
)
def test_what_is_said_of_a_person_in_other_bytes_hinders_no_report(cluster, endpoint, who):
    url, told = endpoint
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--notification-http-endpoint={url}")

    assert ask(admin, "POST", "/api/topics", '{"topic":"made"}', who).status == 200
    assert ask(admin, "PUT", "/config/log_level", "debug", who).status == 200

    heard = [told.get(timeout=30)[1] for _ in range(2)]
    assert [one["action"] for one in heard] == ["create_topic", "config"]
    assert [one.get("acl_user", "") for one in heard] == [
        "J\ufffdrgen" if "X-Forwarded-User" in who else ""
    ] * 2
    audit = json.loads(ask(admin, "GET", "/audit?format=json").body)["changes"]
    assert [deed["action"] for deed in audit] == ["config", "create_topic"]
    assert b"Create topic" in ask(admin, "GET", "/audit?format=csv").body
    assert told.empty()


def test_the_address_of_a_request_over_tls_is_told_as_such(cluster, endpoint, tmp_path):
    url, told = endpoint
    lookupd = cluster.nsqlookupd()
    authority = Authority(tmp_path)
    flags = [f"--lookupd-http-address={lookupd.http_address}", f"--notification-http-endpoint={url}"]
    admin = cluster.daemon("nsqadmin", [*authority.flags, *flags], ("http", "https")).start()
    port = admin.ports["https"]

    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=authority.client())
    connection.request("POST", "/api/topics", '{"topic":"made"}')
    status = connection.getresponse().status
    connection.close()

    assert status == 200
    assert told.get(timeout=30)[1]["url"] == f"https://127.0.0.1:{port}/api/topics"


def test_changes_that_are_no_work_on_topics_are_told_too(cluster, endpoint):
    url, told = endpoint
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--notification-http-endpoint={url}")

    ask(admin, "PUT", "/config/log_level", "debug")
    ask(admin, "PUT", "/config/log_level", "none")
    submit(admin, action="mute", key="stuck orders billing -")

    heard = [told.get(timeout=30)[1] for _ in range(2)]
    assert [(one["action"], one["topic"], one.get("channel")) for one in heard] == [
        ("config", "", None),
        ("mute", "orders", "billing"),
    ]
    assert told.empty()


def test_a_dead_endpoint_is_logged_and_hinders_nobody(cluster):
    dead = f"http://127.0.0.1:{free_port()}/"
    site = build_site(cluster, f"--notification-http-endpoint={dead}")

    for number in range(3):
        assert ask(site.admin, "POST", "/api/topics", f'{{"topic":"t{number}"}}').status == 200

    wait_until(
        lambda: site.admin.logs().count("ERROR: failed to POST notification of create_topic") == 3,
        "the failures are logged",
    )
    assert ask(site.admin, "GET", "/ping").body == b"OK"


def test_forbidden_and_malformed_requests_are_not_told(cluster, endpoint):
    url, told = endpoint
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--notification-http-endpoint={url}", "--admin-user=alice")
    alice = {"X-Forwarded-User": "alice"}

    ask(admin, "POST", "/api/topics", '{"topic":"t"}')
    ask(admin, "POST", "/api/topics", '{"topic":"a b"}', alice)
    ask(admin, "POST", "/api/topics", '{"topic":"good"}', alice)

    assert told.get(timeout=30)[1]["topic"] == "good"
    assert told.empty()
