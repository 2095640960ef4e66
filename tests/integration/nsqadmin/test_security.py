"""A foreign page, a foreign host name, a second user and a hostile Graphite achieve nothing."""

import base64
import http.client
import json

import pytest
from aiohttp import web

from tests.support.http_sink import HttpSink
from tests.support.site import ask, build_site, submit
from tests.support.waiting import wait_until

NSQD = "--nsqd-http-address=127.0.0.1:4151"


@pytest.fixture
def sink():
    """An HTTP server that answers with a page of HTML."""

    async def page(_):
        return web.Response(text="<script>alert(1)</script>", content_type="text/html")

    with HttpSink(page) as sink:
        yield sink


def test_refusal_of_foreign_host_name_says_how_to_allow_it(small_admin):
    answer = ask(small_admin, "GET", "/", headers={"Host": f"evil.example:{small_admin.http_port}"})

    assert answer.status == 403
    assert "with --allowed-hosts" in json.loads(answer.body)["message"]
    assert ask(small_admin, "GET", "/").status == 200
    assert ask(small_admin, "GET", "/", headers={"Host": f"localhost:{small_admin.http_port}"}).status == 200


def test_operator_names_further_hosts(cluster):
    cluster.nsqlookupd()
    admin = cluster.nsqadmin("--allowed-hosts=nsq.example.com", "--allowed-hosts=nsq.example.org")

    answers = {
        host: ask(admin, "GET", "/api/topics", headers={"Host": host}).status
        for host in ("nsq.example.com", "nsq.example.org:443", "evil.example.com")
    }

    assert answers == {"nsq.example.com": 200, "nsq.example.org:443": 200, "evil.example.com": 403}


def test_request_that_names_two_users_is_refused(cluster):
    site = build_site(cluster, "--admin-user=alice")
    site.fill("orders", "billing")
    connection = http.client.HTTPConnection("127.0.0.1", site.admin.http_port)
    body = b'{"action":"pause"}'
    # The client's own header comes first, the proxy's second.
    connection.putrequest("POST", "/api/topics/orders")
    for user in ("alice", "mallory"):
        connection.putheader("X-Forwarded-User", user)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    connection.close()

    assert answer.status == 400
    assert not site.admin.get("/api/topics/orders")["paused"]


@pytest.mark.parametrize(
    "note", [b'["\\ud800",[],[]]', b"[" * 2000, b"7"], ids=["half a character", "deep", "a number"]
)
def test_planted_note_breaks_no_page(small_admin, note):
    cookie = f"nsqadmin_note={base64.urlsafe_b64encode(note).decode()}"

    assert ask(small_admin, "GET", "/topics", headers={"Cookie": cookie}).status == 200


def test_config_shows_addresses_without_their_passwords(cluster):
    admin = cluster.nsqadmin(
        NSQD,
        "--graphite-url=http://bob:secret@graphite:8080/sub?x=1",
        "--notification-http-endpoint=https://bot:hidden@hooks:8443/nsq/secret?key=secret",
        "--alert-http-endpoint=https://bot:hidden@hooks.example/services/T0/B0/secret",
        "--trace-url=https://bot:hidden@traces/{trace_id}",
    )

    assert ask(admin, "GET", "/config/graphite_url").body == b"http://graphite:8080/sub?x=1"
    assert ask(admin, "GET", "/config/notification_http_endpoint").body == b"https://hooks:8443"
    assert ask(admin, "GET", "/config/alert_http_endpoint").body == b"https://hooks.example"
    assert ask(admin, "GET", "/config/trace_url").body == b"https://traces/{trace_id}"


def test_actions_are_logged_and_notified_with_user(cluster, sink):
    site = build_site(cluster, "--admin-user=alice", f"--notification-http-endpoint={sink.url}/")
    site.fill("orders", "billing")
    alice = {"X-Forwarded-User": "alice"}

    submit(site.admin, headers=alice, action="pause", topic="orders", channel="billing")
    ask(site.admin, "POST", "/api/topics/orders/none", '{"action":"pause"}', alice)

    wait_until(lambda: len(sink.taken) == 2, "both are reported")
    first, second = map(json.loads, sink.taken)
    assert (first["action"], first["acl_user"], "user" in first) == ("pause_channel", "alice", False)
    assert list(first)[-1] == "acl_user"
    assert second["channel"] == "none"
    logs = site.admin.logs()
    assert "INFO: alice from 127.0.0.1" in logs
    assert "pause_channel orders/billing on 2 nsqd and 0 nsqlookupd" in logs
    assert "pause_channel orders/none failed: CHANNEL_NOT_FOUND" in logs
