"""Admin rights, requests from other sites, and who may use /config."""

import json

import pytest

from tests.support import beside
from tests.support.site import ask, build_site, submit
from tests.support.waiting import wait_until

ALICE = {"X-Forwarded-User": "alice"}


@pytest.fixture
def guarded(cluster):
    """A cluster whose nsqadmin has one admin, alice."""
    return build_site(cluster, "--admin-user=alice")


def test_pages_offer_no_actions_to_viewers_and_say_why(guarded):
    guarded.fill("orders", "a")

    stranger = ask(guarded.admin, "GET", "/topics/orders")
    mallory = ask(guarded.admin, "GET", "/topics/orders", headers={"X-Forwarded-User": "mallory"})
    alice = ask(guarded.admin, "GET", "/topics/orders", headers=ALICE)
    refused = submit(guarded.admin, headers={"Accept": "text/html"}, action="pause", topic="orders")

    assert "Read-only: you are not signed in" in stranger.text
    # Actions that a user may not do are not offered.
    assert "Pause" not in stranger.text
    assert "Read-only: your role is viewer" in mallory.text
    assert "change nothing" not in alice.text
    assert "Pause" in alice.text
    assert refused.status == 403
    assert "You have no role for this." in refused.text


def test_audit_with_invalid_unicode_name_is_shown_as_csv(cluster, tmp_path):
    cluster.nsqlookupd()
    entry = {"at": 1.0, "user": "J\udcfcrgen", "via": "", "from": "", "action": "delete_topic"}
    (tmp_path / "audit").write_text(json.dumps(entry) + "\n")

    admin = cluster.nsqadmin(f"--audit-file={tmp_path / 'audit'}")
    answer = ask(admin, "GET", "/audit?format=csv")

    assert answer.status == 200
    assert b"J?rgen" in answer.body


def test_changes_are_refused_while_audit_cannot_be_written(cluster, tmp_path):
    lookupd = cluster.nsqlookupd()
    node = cluster.nsqd("--broadcast-address=127.0.0.1", lookupds=[lookupd])
    node.post("/topic/create?topic=t")
    folder = tmp_path / "audit"
    folder.mkdir()
    admin = cluster.nsqadmin(f"--audit-file={folder / 'audit'}")
    wait_until(lambda: admin.get("/api/topics")["topics"], "nsqadmin knows the topic")

    def change(action):
        return ask(admin, "POST", "/api/topics/t", json.dumps({"action": action}))

    def paused():
        return node.get("/stats?format=json")["topics"][0]["paused"]

    folder.rename(tmp_path / "elsewhere")
    first, second = change("pause"), change("unpause")
    page = ask(admin, "GET", "/topics").text
    by_form = submit(admin, action="unpause", topic="t", headers={"Accept": "text/html"})

    assert first.status == 200
    assert "WARNING: the audit lacks this change: No such file or directory; it is added when" in first.text
    assert (second.status, json.loads(second.body)) == (503, {"message": "AUDIT_UNWRITABLE"})
    assert (by_form.status, paused()) == (503, True)
    assert "The change was refused, because the audit cannot be written." in by_form.text
    assert "The audit cannot be written." in page
    assert "WARNING" not in ask(admin, "GET", "/audit?format=json").text

    (tmp_path / "elsewhere").rename(folder)
    wait_until((folder / "audit").read_text, "the line is written")
    assert change("unpause").status == 200
    lines = [json.loads(line) for line in (folder / "audit").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["pause_topic", "unpause_topic"]
    assert not paused()


# --- /config


def put(admin, name, value, headers=None):
    answer = ask(admin, "PUT", f"/config/{name}", value, headers)
    return answer.status, answer.body.decode()


def test_config_shows_any_option_and_changes_two(cluster):
    lookupd = cluster.nsqlookupd()
    admin = cluster.nsqadmin()

    assert (
        ask(admin, "GET", "/config/nsqlookupd_http_addresses").body
        == b'["%b"]' % lookupd.http_address.encode()
    )
    assert ask(admin, "GET", "/config/admin_users").body == b"[]"
    assert ask(admin, "GET", "/config/statsd_interval").body == b"60000000000"
    assert ask(admin, "GET", "/config/acl_http_header").body == b"X-Forwarded-User"
    assert ask(admin, "GET", "/config/graphite_url").body == b""
    assert put(admin, "log_level", "DEBUG") == (200, "1")
    assert ask(admin, "GET", "/config/log_level").body == b"1"
    (entry,) = json.loads(ask(admin, "GET", "/audit?format=json").body)["changes"]
    assert (entry["before"], entry["after"]) == ({"log_level": "info"}, {"log_level": "debug"})
    assert put(admin, "nsqlookupd_http_addresses", '["127.0.0.1:9"]') == (200, '["127.0.0.1:9"]')
    assert ask(admin, "GET", "/api/topics").status == 502


@pytest.mark.parametrize(
    ("name", "value", "status", "code"),
    [
        ("nope", "", 413, "INVALID_VALUE"),
        ("nope", "x", 400, "INVALID_OPTION"),
        ("admin_users", '["me"]', 400, "INVALID_OPTION"),
        ("log_level", "loud", 400, "INVALID_VALUE"),
        ("log_level", '"info"', 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", "[]", 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", "null", 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", "[1]", 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", '["no-port"]', 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", "x" * (1 << 20) + "x", 413, "INVALID_VALUE"),
    ],
)
def test_config_refuses_unusable_values(small_admin, name, value, status, code):
    assert put(small_admin, name, value) == (status, f'{{"message":"{code}"}}')


def test_config_is_closed_to_other_networks_and_to_viewers(cluster):
    cluster.nsqlookupd()
    outside = cluster.nsqadmin("--allow-config-from-cidr=10.0.0.0/8")
    guarded = cluster.nsqadmin("--admin-user=alice")

    assert ask(outside, "GET", "/config/log_level").status == 403
    assert ask(guarded, "GET", "/config/log_level").status == 200
    if beside.OURS:  # the original asks for an admin only elsewhere
        assert put(guarded, "log_level", "debug")[0] == 403
    assert put(guarded, "log_level", "debug", ALICE)[0] == 200
