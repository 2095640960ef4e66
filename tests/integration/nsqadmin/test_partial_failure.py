"""Some nodes do not answer: the known statistics are shown, and the missing nodes are named."""

import asyncio
import json
import re

import pytest

from bench.ports import free_port
from tests.support.http_sink import HttpSink
from tests.support.site import ask, build_site, frozen
from tests.support.waiting import wait_until

QUICK = "--http-client-request-timeout=400ms"


def call(admin, method, path, body=""):
    answer = ask(admin, method, path, body)
    return answer.status, json.loads(answer.body)


def test_frozen_nsqd_is_named_and_the_others_statistics_are_shown(cluster):
    site = build_site(cluster, QUICK)
    site.fill("orders", "a", messages=3)
    victim = site.nsqds[1]

    on_the_index = f"nsqd {victim.http_address} is unreachable"

    with frozen(victim):
        wait_until(lambda: site.admin.get("/api/topics/orders")["message"], "the silence is noticed")
        topic = site.admin.get("/api/topics/orders")
        # The statistics of each page are requested at other times.
        wait_until(
            lambda: on_the_index in ask(site.admin, "GET", "/topics/orders").text,
            "the page of the topic says so",
        )
        wait_until(lambda: on_the_index in ask(site.admin, "GET", "/").text, "the index says so")
        status, node = call(site.admin, "GET", f"/api/nodes/{victim.http_address}")

    assert topic["channels"][0]["depth"] == 3
    assert topic["message"].startswith(f'WARNING: Get "http://{victim.http_address}/stats?')
    assert topic["message"].endswith("timed out after 0.4s")
    assert status == 502
    assert node["message"].startswith('UPSTREAM_ERROR: failed to query any nsqd: Get "')


def test_silent_node_is_listed_in_warning(cluster):
    site = build_site(cluster, QUICK)
    site.fill("orders", "a", messages=3)
    victim = site.nsqds[1]

    with frozen(victim):
        wait_until(lambda: site.admin.get("/api/topics/orders")["message"], "the silence is noticed")
        topic = site.admin.get("/api/topics/orders")
        status, node = call(site.admin, "GET", f"/api/nodes/{victim.http_address}")

    assert topic["channels"][0]["depth"] == 3
    assert topic["message"].startswith("WARNING: ")
    assert f'Get "http://{victim.http_address}/stats?' in topic["message"]
    assert status == 502
    assert node["message"].startswith("UPSTREAM_ERROR: failed to query any nsqd: ")


def test_audit_of_frozen_node_is_completed_when_it_answers(cluster):
    site = build_site(cluster, QUICK)
    site.fill("orders", "a", messages=3)
    victim = site.nsqds[0]

    def entry():
        return site.admin.get("/audit?format=json")["changes"][0]

    with frozen(victim):
        _, answer = call(site.admin, "POST", "/api/topics/orders/a", '{"action":"pause"}')
        before = entry()
    wait_until(lambda: not entry()["unknown"], "the audit is completed")
    (topic,) = victim.get("/stats?format=json&topic=orders")["topics"]

    assert answer["message"].endswith("the outcome is unknown, it may still happen")
    assert before["results"][victim.http_address] == "unknown: timed out after 0.4s, it may still happen"
    # It was frozen, not dead: the request waited in its socket.
    assert topic["channels"][0]["paused"]
    assert entry()["results"][victim.http_address] == "done: seen when the node answered again"


@pytest.mark.parametrize("registered", [0, 1])
def test_topic_on_nodes_without_registration_is_changed_there_too(cluster, registered):
    site = build_site(cluster)
    site.fill("orders", "a")
    site.lookupd.post("/topic/delete?topic=orders")
    for nsqd in site.nsqds[:registered]:
        nsqd.post("/channel/create?topic=orders&channel=new")
        wait_until(lambda: site.lookupd.request("GET", "/lookup?topic=orders")[0] == 200, "one is registered")

    known = call(site.admin, "GET", "/api/topics/orders")[0]
    paused = call(site.admin, "POST", "/api/topics/orders", '{"action":"pause"}')
    pauses = [nsqd.get("/stats?format=json&topic=orders")["topics"][0]["paused"] for nsqd in site.nsqds]
    channel = call(site.admin, "DELETE", "/api/topics/orders/a")
    topic = call(site.admin, "DELETE", "/api/topics/orders")
    again = call(site.admin, "DELETE", "/api/topics/orders")

    assert known == 200
    assert (paused, pauses) == ((200, {"message": ""}), [True, True])
    # nsqlookupd may not know the channel any more, which is a warning as in the original.
    assert (channel[0], topic) == (200, (200, {"message": ""}))
    assert [nsqd.get("/stats?format=json")["topics"] for nsqd in site.nsqds] == [[], []]
    assert again == (404, {"message": "TOPIC_NOT_FOUND"})


def test_dead_nsqlookupd_is_warning_and_two_are_failure(cluster):
    lookupds = [cluster.nsqlookupd(), cluster.nsqlookupd()]
    nsqd = cluster.nsqd()
    admin = cluster.nsqadmin()
    nsqd.post("/topic/create?topic=orders")
    wait_until(lambda: "orders" in lookupds[0].get("/topics")["topics"], "the topic is registered")

    wait_until(lambda: admin.get("/api/topics")["topics"], "nsqadmin knows the topic")

    lookupds[1].kill()
    wait_until(lambda: "refused" in admin.get("/api/topics")["message"], "the first outage is noticed")
    one_down = admin.get("/api/topics")
    down = f"nsqlookupd {lookupds[1].http_address} does not answer"
    wait_until(lambda: down in ask(admin, "GET", "/").text, "the index shows the outage")
    wait_until(lambda: "1 of 2" in ask(admin, "GET", "/nodes").text, "the registrations are counted again")
    page = ask(admin, "GET", "/")
    nodes = ask(admin, "GET", "/nodes")
    lookupds[0].kill()
    wait_until(lambda: call(admin, "GET", "/api/topics")[0] == 502, "the second outage is noticed")
    status, both_down = call(admin, "GET", "/api/topics")
    written = call(admin, "POST", "/api/topics", '{"topic":"x"}')
    wait_until(
        lambda: all(
            f"nsqlookupd {one.http_address} does not answer" in ask(admin, "GET", "/").text
            for one in lookupds
        ),
        "the index shows both outages",
    )
    lasting = ask(admin, "GET", "/")
    nodes_later = ask(admin, "GET", "/nodes")
    late = cluster.nsqadmin()
    problem = ask(late, "GET", "/")

    assert one_down["topics"] == ["orders"]
    address = lookupds[1].http_address
    assert one_down["message"] == f'WARNING: Get "http://{address}/topics": connect: connection refused'
    # The other nsqlookupd has all registrations, so nothing is missing.
    assert f"nsqlookupd {address} does not answer" in page.text
    assert "card-warning" in page.body.decode()
    assert "incomplete" not in page.text + nodes.text
    assert "unreachable" in nodes.text
    assert not re.search(r"\d of 2 ", nodes_later.text.partition("nsqlookupd 2")[0])
    assert status == 502
    assert both_down["message"].startswith("UPSTREAM_ERROR: failed to query any nsqlookupd: Get ")
    assert written[0] == 502
    # The known nsqds are still queried, so their statistics stay.
    assert lasting.status == 200
    assert "no nsqlookupd does" in lasting.text
    assert "card-warning" not in lasting.body.decode()
    assert "All good" not in lasting.text
    assert "orders" in lasting.text
    # An nsqadmin that starts now knows no nsqd.
    assert problem.status == 502
    assert "No nsqlookupd answered" in problem.text


def test_pages_do_not_wait_for_silent_nsqlookupd(cluster):
    async def silence(_):
        await asyncio.sleep(3600)

    lookupd = cluster.nsqlookupd()
    for name in ("one", "two", "three"):
        lookupd.post(f"/channel/create?topic={name}&channel=waits")
    with HttpSink(silence) as sink:
        silent = f"127.0.0.1:{sink.port}"
        flags = [f"--lookupd-http-address={address}" for address in (lookupd.http_address, silent)]
        admin = cluster.nsqadmin(*flags, "--http-client-request-timeout=1s")
        wait_until(lambda: "unreachable" in ask(admin, "GET", "/nodes").text, "its silence is noticed")
        wait_until(lambda: admin.get("/lookup?format=json")["inactive_total"] == 3, "they are known")

        pages = [ask(admin, "GET", path) for path in ("/topics", "/lookup", "/topics/one")]
        idle = admin.get("/api/topics?inactive=true")
        targets = [one.target for one in sink.received]

    assert [page.status for page in pages] == [200, 200, 200]
    assert all("waits" in page.text for page in pages)
    assert idle["topics"] == {"one": ["waits"], "two": ["waits"], "three": ["waits"]}
    # It is named once, not once for each topic.
    assert idle["message"].count(silent) == 1
    assert not [target for target in targets if target.startswith("/channels")]


def test_topic_unknown_to_one_nsqlookupd_works_with_warning(cluster):
    lookupds = [cluster.nsqlookupd(), cluster.nsqlookupd()]
    nsqd = cluster.nsqd(lookupds=lookupds[:1])
    admin = cluster.nsqadmin()
    nsqd.post("/topic/create?topic=orders")
    wait_until(lambda: lookupds[0].get("/topics")["topics"], "the topic is registered")
    wait_until(lambda: admin.get("/api/topics")["topics"], "nsqadmin knows the topic")

    topic = admin.get("/api/topics/orders")

    said = 'got response 404 Not Found "{\\"message\\":\\"TOPIC_NOT_FOUND\\"}"'
    address = lookupds[1].http_address
    assert topic["message"] == f'WARNING: Get "http://{address}/lookup?topic=orders": {said}'
    assert len(topic["nodes"]) == 1
    page = ask(admin, "GET", "/topics/orders").text
    assert f"nsqlookupd {lookupds[1].http_address} does not know this topic" in page


def test_topic_without_nsqd_is_deleted_on_nsqlookupd(cluster):
    lookupd = cluster.nsqlookupd()
    lookupd.post("/topic/create?topic=idle")
    admin = cluster.nsqadmin()

    assert call(admin, "DELETE", "/api/topics/idle") == (200, {"message": ""})

    (entry,) = admin.get("/audit?format=json")["changes"]
    assert (entry["ok"], entry["results"]) == (True, {lookupd.http_address: "done"})


def test_fixed_list_of_nsqds_works_without_nsqlookupd(cluster):
    nsqd = cluster.nsqd()
    dead = f"127.0.0.1:{free_port()}"
    admin = cluster.nsqadmin(f"--nsqd-http-address={nsqd.http_address}", f"--nsqd-http-address={dead}")
    nsqd.post("/pub?topic=orders", b"message")
    wait_until(
        lambda: call(admin, "GET", "/api/topics/orders")[1].get("message_count") == 1,
        "nsqadmin has seen the message",
    )
    wait_until(
        lambda: any(node["topics"] for node in admin.get("/api/nodes")["nodes"]),
        "nsqadmin has seen what the node holds",
    )

    topic = admin.get("/api/topics/orders")
    nodes = admin.get("/api/nodes")
    page = ask(admin, "GET", "/nodes")

    assert (topic["message_count"], len(topic["nodes"])) == (1, 1)
    assert dead in topic["message"]
    (node,) = nodes["nodes"]
    assert (node["remote_addresses"], node["remote_address"], node["out_of_date"]) == ([], "", False)
    assert [topic["topic"] for topic in node["topics"]] == ["orders"]
    assert f"{dead} unreachable" in page.text
    assert admin.get("/api/topics?inactive=true")["topics"] == {}


def test_fixed_list_of_nsqds_creates_for_real(cluster):
    nsqd = cluster.nsqd()
    admin = cluster.nsqadmin(f"--nsqd-http-address={nsqd.http_address}")

    assert call(admin, "POST", "/api/topics", '{"topic":"made","channel":"c"}') == (200, {"message": ""})

    (made,) = nsqd.get("/stats?format=json")["topics"]
    assert (made["topic_name"], made["channels"][0]["channel_name"]) == ("made", "c")
    assert call(admin, "GET", "/api/topics/unknown") == (404, {"message": "TOPIC_NOT_FOUND"})
    assert call(admin, "DELETE", "/api/topics/unknown") == (404, {"message": "TOPIC_NOT_FOUND"})


def test_empty_cluster_is_not_a_failure(cluster):
    cluster.nsqlookupd()
    admin = cluster.nsqadmin()

    assert admin.get("/api/topics") == {"topics": [], "message": ""}
    assert admin.get("/api/nodes") == {"nodes": [], "message": ""}
    assert admin.get("/api/counter") == {"stats": {}, "message": ""}
    assert "No topics yet" in ask(admin, "GET", "/").text
    assert "1 warning since" in ask(admin, "GET", "/").text
    assert "No nsqd is registered" in ask(admin, "GET", "/").text
    assert "No nsqd has registered" in ask(admin, "GET", "/nodes").text
    assert ask(admin, "GET", "/counter").status == 200
