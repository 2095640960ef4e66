"""Admin actions are reported to an HTTP endpoint, and a dead endpoint does not hinder them."""

import http.client
import json
import socket
import time

import pytest
from aiohttp import web

from bench.ports import free_port
from tests.support.certificates import Authority
from tests.support.http_sink import HttpSink
from tests.support.site import ask, build_site, submit
from tests.support.waiting import wait_until


@pytest.fixture
def sink():
    """An endpoint that answers with an error, which must have no effect."""

    async def refuse(_):
        return web.Response(status=500)

    with HttpSink(refuse) as sink:
        yield sink


def told(sink, count):
    """Wait for *count* reports, and return them; there are no more."""
    wait_until(lambda: len(sink.received) >= count, f"{count} actions are reported")
    assert len(sink.received) == count
    return [json.loads(one.body) for one in sink.received]


def test_actions_of_api_and_pages_are_notified_in_order(cluster, sink):
    site = build_site(cluster, f"--notification-http-endpoint={sink.url}")
    site.fill("orders", "a")
    who = {"Authorization": "Basic YWxpY2U6c2VjcmV0", "User-Agent": "curl/8", "X-Scheme": "https"}
    first = site.nsqds[0].http_address

    ask(site.admin, "POST", "/api/topics", '{"topic":"new","channel":"c"}', who)
    ask(site.admin, "POST", "/api/topics/orders/a", '{"action":"pause"}')
    submit(site.admin, action="unpause", topic="orders", channel="a")
    ask(site.admin, "POST", "/api/topics/orders", '{"action":"fly"}')
    ask(site.admin, "DELETE", f"/api/nodes/{first}?x=1", '{"topic":"orders"}')
    ask(site.admin, "DELETE", "/api/topics/orders")

    bodies = told(sink, 6)
    assert {one.headers["Content-Type"] for one in sink.received} == {"application/json"}
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


def test_user_name_in_invalid_bytes_is_reported(cluster, sink):
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--notification-http-endpoint={sink.url}")
    users = [
        {"X-Forwarded-User": b"J\xfcrgen"},
        {"Authorization": b"Basic \xc3\xa9"},
        {"Authorization": b"Basic \xe9"},
        {"Authorization": b"Basic =a"},
    ]

    for who in users:
        assert ask(admin, "POST", "/api/topics", '{"topic":"made"}', who).status == 200
        assert ask(admin, "PUT", "/config/log_level", "debug", who).status == 200

    notified = told(sink, 8)
    assert [one["action"] for one in notified] == ["create_topic", "config"] * 4
    assert [one.get("acl_user", "") for one in notified] == ["J\ufffdrgen"] * 2 + [""] * 6
    audit = json.loads(ask(admin, "GET", "/audit?format=json").body)["changes"]
    assert [entry["action"] for entry in audit] == ["config", "create_topic"] * 4
    assert b"Create topic" in ask(admin, "GET", "/audit?format=csv").body


def test_notification_has_https_address_of_request_over_tls(cluster, sink, tmp_path):
    lookupd = cluster.nsqlookupd()
    authority = Authority(tmp_path)
    flags = [f"--lookupd-http-address={lookupd.http_address}", f"--notification-http-endpoint={sink.url}"]
    admin = cluster.daemon("nsqadmin", [*authority.flags, *flags], ("http", "https")).start()
    port = admin.ports["https"]

    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=authority.client())
    connection.request("POST", "/api/topics", '{"topic":"made"}')
    status = connection.getresponse().status
    connection.close()

    assert status == 200
    assert told(sink, 1)[0]["url"] == f"https://127.0.0.1:{port}/api/topics"


def test_changes_without_topic_are_notified(cluster, sink):
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--notification-http-endpoint={sink.url}")

    ask(admin, "PUT", "/config/log_level", "debug")
    ask(admin, "PUT", "/config/log_level", "none")
    submit(admin, action="mute", key="stuck orders billing -")

    heard = told(sink, 2)
    assert [(one["action"], one["topic"], one.get("channel")) for one in heard] == [
        ("config", "", None),
        ("mute", "orders", "billing"),
    ]


def test_dead_endpoint_is_logged_and_blocks_no_request(cluster):
    dead = f"http://127.0.0.1:{free_port()}/"
    site = build_site(cluster, f"--notification-http-endpoint={dead}")

    for number in range(3):
        assert ask(site.admin, "POST", "/api/topics", f'{{"topic":"t{number}"}}').status == 200

    wait_until(
        lambda: site.admin.logs().count("ERROR: failed to POST notification of create_topic") == 3,
        "the failures are logged",
    )
    assert ask(site.admin, "GET", "/ping").body == b"OK"


def test_forbidden_and_malformed_requests_are_not_notified(cluster, sink):
    cluster.nsqlookupd()
    admin = cluster.nsqadmin(f"--notification-http-endpoint={sink.url}", "--admin-user=alice")
    alice = {"X-Forwarded-User": "alice"}

    ask(admin, "POST", "/api/topics", '{"topic":"t"}')
    ask(admin, "POST", "/api/topics", '{"topic":"a b"}', alice)
    ask(admin, "POST", "/api/topics", '{"topic":"good"}', alice)

    assert told(sink, 1)[0]["topic"] == "good"
