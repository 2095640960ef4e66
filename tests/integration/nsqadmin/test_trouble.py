"""Nodes die, freeze, leave and drain: pages stay quick, name missing nodes, and remember their backlogs."""

import json
import re

from tests.support.site import ask, build_site, follow, frozen, submit
from tests.support.waiting import wait_until

FREEZE_LIMIT = "--http-client-request-timeout=3s"
# Longer than any test waits for a page.
NO_LIMIT = "--http-client-request-timeout=1h"


def problems(site):
    return {
        (problem["state"], problem.get("node", ""))
        for problem in json.loads(ask(site.admin, "GET", "/?format=json").body)["problems"]
    }


def test_dead_node_is_named_with_its_backlog_until_it_returns(cluster):
    site = build_site(cluster)
    site.fill("orders", "billing", messages=3)
    victim = site.nsqds[1]
    left = ("down", victim.http_address)

    victim.kill()
    wait_until(lambda: left in problems(site), "the dead node is missed")
    index = ask(site.admin, "GET", "/").text
    nodes = ask(site.admin, "GET", "/nodes").text
    its_page = ask(site.admin, "GET", f"/nodes/{victim.http_address}").text

    assert re.search(
        rf"nsqd {victim.http_address} is down .* Down for \d+ s. 3 messages in 1 topic are unavailable", index
    )
    assert "Down 1" in nodes
    assert "Last known values" in its_page
    assert "nsqd answers" not in its_page
    assert f'href="/nodes/{victim.http_address}"' in ask(site.admin, "GET", "/").body.decode()
    victim.start()
    wait_until(lambda: left not in problems(site), "it is missed no longer when it is back")
    assert site.admin.logs().count(f"nsqd {victim.http_address} left with 3 messages") == 1


def test_down_node_is_dismissed_by_admin(cluster):
    site = build_site(cluster, "--admin-user=alice")
    site.fill("orders", "billing")
    victim = site.nsqds[0].http_address
    alice = {"X-Forwarded-User": "alice"}
    site.nsqds[0].kill()
    wait_until(lambda: ("down", victim) in problems(site), "the dead node is missed")

    stranger = submit(site.admin, action="dismiss", node=victim)
    question = ask(site.admin, "GET", f"/action?action=dismiss&node={victim}", headers=alice)
    done = submit(site.admin, headers=alice, action="dismiss", node=victim)

    assert stranger.status == 403
    assert f"Remove nsqd {victim} ?" in question.text
    assert "was removed from the pages" in follow(site.admin, done).text
    assert ("down", victim) not in problems(site)
    assert submit(site.admin, headers=alice, action="dismiss", node=victim).status == 404
    assert "alice from 127.0.0.1" in site.admin.logs()


def test_pages_do_not_wait_for_frozen_node(cluster):
    site = build_site(cluster, NO_LIMIT)
    site.fill("orders", "billing", messages=5)
    victim = site.nsqds[1].http_address
    pages = ["/", "/topics/orders", "/topics/orders/billing", "/nodes", f"/nodes/{victim}", "/counter"]

    with frozen(site.nsqds[1]):
        # If a page waited for the frozen node, no answer would come.
        statuses = [ask(site.admin, "GET", path).status for path in pages]
        still_out = ("unreachable", victim) not in problems(site)

    assert statuses == [200] * len(pages)
    assert still_out


def test_healthy_cluster_has_no_problems_and_quiet_log(cluster):
    site = build_site(cluster)
    site.fill("orders", messages=0)
    before = site.admin.logs().count("\n")
    asked = (site.lookupd, *site.nsqds)
    # The log lines until now are of requests by this test itself.
    seen = {one: len(one.logs()) for one in asked}

    for _ in range(20):
        for path in ("/", "/topics/orders", "/nodes", "/counter", "/lookup"):
            assert ask(site.admin, "GET", path).status == 200

    assert problems(site) == set()
    assert site.admin.logs().count("\n") == before
    # The daemons that are asked all the time do not log it either.
    polled = [line for one in asked for line in one.logs()[seen[one] :].splitlines() if " 200 GET " in line]
    assert [line for line in polled if re.search(r"GET /(stats|nodes|topics|disk|replication)\b", line)] == []


def test_node_is_drained_from_its_page_and_resumed(cluster):
    site = build_site(cluster)
    site.fill("orders", "billing", messages=4)
    node = site.nsqds[0]
    path = f"/nodes/{node.http_address}"

    question = ask(site.admin, "GET", f"/action?action=drain&node={node.http_address}").text
    done = follow(site.admin, submit(site.admin, action="drain", node=node.http_address)).text

    assert "4 unfinished messages, 0 consumers." in question
    assert "No consumers there for orders/billing: 4 messages stay." in question
    assert f"Draining started on nsqd {node.http_address}." in done
    # For the grace time it takes publishes, while producers move to other nodes.
    node.post("/pub?topic=late", b"in the grace time")
    assert node.get("/drain")["draining"]
    assert ask(node, "GET", "/ready").status == 503
    assert not site.nsqds[1].get("/drain")["draining"]
    # The page must show it immediately, because without JavaScript no page refreshes.
    page = ask(site.admin, "GET", path).text
    assert "Remaining messages" in page
    assert re.search(r"0 of [45] messages gone", page)
    assert "orders / billing : 4 messages; no consumers there" in page
    assert "Resume publishing…" in page
    wait_until(
        lambda: "it takes no messages, and 5 messages remain" in ask(site.admin, "GET", "/").text,
        "it is a card",
    )
    node.post("/channel/empty?topic=orders&channel=billing")
    wait_until(
        lambda: "4 of 5 messages gone" in ask(site.admin, "GET", "/nodes").text, "the progress is shown"
    )
    follow(site.admin, submit(site.admin, action="undrain", node=node.http_address))
    assert not node.get("/drain")["draining"]
    assert "Resume publishing…" not in ask(site.admin, "GET", path).text
    assert submit(site.admin, action="drain", node="127.0.0.1:1").status == 404
    entries = json.loads(ask(site.admin, "GET", "/audit?format=json").body)["changes"]
    assert [(entry["action"], entry["ok"]) for entry in entries] == [
        ("drain_node", False),
        ("cancel_drain", True),
        ("drain_node", True),
    ]
