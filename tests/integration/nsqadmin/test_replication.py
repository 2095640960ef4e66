"""Replication as pages and the API show it: replicas, copies, failovers, and topics with too few replicas."""

import itertools
import json
import subprocess
import sys

import pytest

from tests.support.nursery import ROOT
from tests.support.site import ask
from tests.support.stub_site import stub_site
from tests.support.waiting import wait_until
from tests.support.wire import Wire

TOPIC = "topic.0001.events"
ORIGIN, OTHER = "0a" * 16, "0b" * 16
SOON = ("--failover-timeout=1s",)
numbers = itertools.count(700)


def few_replicas(answer):
    answer["under_replicated"] = 1
    for one in answer["topics"]:
        if one["topic_name"] == TOPIC:
            one.update(replicas_in_sync=1, replicas_wanted=2)


def answers(node, status, body):
    """Let *node* answer GET /replication with *status* and *body*."""
    usual = node.answer
    node.answer = lambda method, path, query: (
        (status, json.dumps(body).encode()) if path == "/replication" else usual(method, path, query)
    )


def replica(state, **statistics):
    return {
        "identity": OTHER,
        "address": "10.0.0.2:4150",
        "state": state,
        "topics": 9,
        "in_sync_topics": 8,
        "caught_up_topics": 7,
        "lag_bytes": 2048,
        "lag_seconds": 1.5,
        "problem": "",
    } | statistics


def copy(state, **statistics):
    return {
        "origin": ORIGIN,
        "number": 1,
        "state": state,
        "epoch": 3,
        "owner": ORIGIN,
        "address": "10.0.0.1:4150",
        "connected": False,
        "topics": 2,
        "pending": 120,
        "yielded": 4,
        "fully_replicated": False,
        "waits_for": "1 caught-up replica",
        "holders": [OTHER],
        "problems": {},
    } | statistics


def replication(replicas=(), copies=(), wanted=1):
    return {
        "identity": OTHER,
        "incarnation": 12,
        "epoch": 0,
        "replicas_wanted": wanted,
        "fully_replicated": False,
        "replicas": list(replicas),
        "copies": list(copies),
    }


async def shown(body, status=200):
    """Return the page and the JSON of a node whose /replication has this *body*."""
    async with stub_site(nodes=1) as site:
        answers(site.nodes[0], status, body)
        await site.get("/")
        path = f"/nodes/{site.address(0)}"
        return await site.get(path), (await site.get(f"{path}?format=json")).json()


async def test_topic_with_too_few_replicas_is_red_until_they_are_in_sync():
    async with stub_site(nodes=2) as site:
        await site.get("/")
        site.nodes[0].edit = few_replicas
        node = site.address(0)

        async def reported():
            return ("problem", "under-replicated", node) in await site.problems()

        async def resolved():
            return not await site.problems()

        await site.until(reported, "the node has fewer replicas than wanted")

        async def found():
            reply = await site.get("/topics?q=state:under-replicated")
            return TOPIC in reply.text and reply

        # The node's own page shows it first; sums over all nodes follow at the end of the round.
        listed = await site.until(found, "the topic is found by its state")
        topic, page = [await site.get(path) for path in (f"/topics/{TOPIC}", f"/nodes/{node}")]
        as_json = (await site.get(f"/nodes/{node}?format=json")).json()
        site.nodes[0].edit = None
        await site.until(resolved, "it is over")
        after = await site.get(f"/topics/{TOPIC}")

    assert f"fewer replicas in sync than wanted: {node} has 1 of 2" in topic.text
    assert '<span class="badge badge-problem">1 of 2</span>' in topic.html
    assert 'data-key="topic.0001.events" class="row-problem"' in listed.html
    assert "topic.0002.events" not in listed.text
    assert "1 topic has fewer replicas in sync than wanted" in page.text
    assert as_json["under_replicated"] == 1
    assert "Replicas" not in after.text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("caught_up", "10.0.0.2:4150 caught up 8 of 9 7 of 9 2.05 kB"),
        ("in_sync", "10.0.0.2:4150 in sync 8 of 9 7 of 9"),
        ("catching_up", "10.0.0.2:4150 catching up 8 of 9 7 of 9"),
        ("stalled", "10.0.0.2:4150 stalled 8 of 9 7 of 9"),
        ("unreachable", "10.0.0.2:4150 unreachable unknown unknown unknown unknown not a member"),
    ],
)
async def test_node_page_shows_state_of_each_replica(state, words):
    problem = "not a member" if state == "unreachable" else ""
    page, as_json = await shown(replication([replica(state, problem=problem)]))

    assert "Replicas of this node 1" in page.text
    assert words in page.text
    assert "1 replica wanted. Not fully replicated" in page.text
    assert "Copies on this node" not in page.text
    assert as_json["replication"]["replicas"][0]["state"] == state


async def test_node_page_shows_copies_and_their_reason():
    found = [
        copy("promoted", problems={"orders": "a newer format"}),
        copy("state_only", number=2, pending=0, yielded=0),
        copy("replica", number=3, connected=True, pending=0, waits_for=""),
        copy("replica", number=4, pending=0, waits_for=""),
    ]
    page, as_json = await shown(replication((), found, wanted=0))

    assert "Replicas of this node" not in page.text
    assert "Copies on this node 4" in page.text
    assert "10.0.0.1:4150 promoted 3 2 120 4 1 caught-up replica orders a newer format" in page.text
    assert "state only 3 2 0 0 1 caught-up replica" in page.text
    assert "10.0.0.1:4150 replica 3 2 \N{EN DASH} \N{EN DASH}" in page.text
    assert "replica, no stream" in page.text
    assert [one["pending"] for one in as_json["replication"]["copies"]] == [120, 0, 0, 0]


async def test_node_without_replication_has_page_without_it():
    page, as_json = await shown({"message": "NOT_FOUND"}, 404)
    unused, _ = await shown(replication(wanted=0))

    for text in (page.text, unused.text):
        assert "Replica" not in text
        assert "Replication" not in text
    assert as_json["replication"] is None


async def test_replication_that_cannot_be_read_is_unknown():
    async with stub_site(nodes=1) as site:
        answers(site.nodes[0], 500, {"message": "INTERNAL_ERROR"})
        await site.get("/")
        page = await site.get(f"/nodes/{site.address(0)}")

    assert "Replication: unknown" in page.text


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "cluster-secret"
    path.write_text("s" * 64)
    return f"--cluster-secret-file={path}"


def pair(cluster, secret):
    """Return a primary and its replica."""
    cluster.nsqlookupd()
    replica = cluster.nsqd(f"--node-id={next(numbers)}", *SOON, secret)
    flags = (*SOON, secret, "--replicas=1", f"--replica={replica.tcp_address}")
    return cluster.nsqd(f"--node-id={next(numbers)}", *flags), replica


def fill(node):
    node.create("orders", "billing")
    node.post("/mpub?topic=orders", b"1\n2\n3")


def test_pages_follow_failover(cluster, secret):
    primary, replica = pair(cluster, secret)
    admin = cluster.nsqadmin()

    def page(node):
        return ask(admin, "GET", f"/nodes/{node.http_address}").text

    fill(primary)
    wait_until(lambda: f"{replica.tcp_address} caught up" in page(primary), "caught up", seconds=30)
    wait_until(lambda: f"{primary.http_address} replica" in page(replica), "the replica names its origin")
    assert "1 of 1" in ask(admin, "GET", "/topics/orders").text
    primary.kill()
    wait_until(lambda: f"{primary.http_address} promoted" in page(replica), "it is promoted", seconds=30)
    sentence = f"its messages are delivered by {replica.http_address} (3 messages pending there)"
    # The overview's statistics are requested at other times than those of the node's page.
    wait_until(lambda: sentence in ask(admin, "GET", "/").text, "the overview says so", seconds=30)

    def down():
        return [one["level"] for one in admin.get("/?format=json")["problems"] if one["state"] == "down"]

    wait_until(lambda: down() == ["warning"], "nsqlookupd drops it, and it is no alert", seconds=30)
    topic = ask(admin, "GET", "/topics/orders").text
    primary.start()
    wait_until(
        lambda: f"After a failover, {replica.http_address} delivers 3 messages of this node" in page(primary),
        "the messages stay with the new owner",
        seconds=30,
    )
    replica.kill()
    wait_until(
        lambda: f"{replica.tcp_address} unreachable" in page(primary), "the replica is missed", seconds=30
    )

    # The statistics are asked for at other times than the replicas.
    wait_until(lambda: "under-replicated" in page(primary), "it is under-replicated")
    assert f"(delivered by {replica.http_address}, and counted there)" in topic


def test_decommissioned_node_is_down_until_messages_are_delivered(cluster, secret):
    primary, replica = pair(cluster, secret)
    admin = cluster.nsqadmin()
    fill(primary)
    # It answers 404 until it has heard of the topic.
    wait_until(
        lambda: '"message_count":3' in ask(admin, "GET", "/api/topics/orders").text, "nsqadmin has seen them"
    )
    wait_until(
        lambda: (
            f"{replica.tcp_address} caught up" in ask(admin, "GET", f"/nodes/{primary.http_address}").text
        ),
        "it is replicated",
        seconds=30,
    )
    flags = (f"--http-address={primary.http_address}", "--fewer-copies")
    subprocess.run([sys.executable, "-m", "nsqd.decommission", *flags], cwd=ROOT, check=True, timeout=90)
    primary.stop()

    def left():
        return [one["level"] for one in admin.get("/?format=json")["problems"] if one["state"] == "down"]

    wire = Wire(("127.0.0.1", replica.tcp_port))
    wire.subscribe("orders", "billing", 10)
    wire.send(*(b"FIN " + message.id + b"\n" for message in wire.messages(3)))
    seen = []

    def delivered():
        seen.extend(now := left())
        return not now

    wait_until(delivered, "it is missed no longer", seconds=30)
    wire.close()

    assert set(seen) <= {"warning"}
    for path in ("/topics/orders", "/action?action=delete&topic=orders"):
        wait_until(lambda path=path: primary.http_address not in ask(admin, "GET", path).text, "nor named")
