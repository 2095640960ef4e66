"""Copies on other nodes: whose they are, how far behind, and red where there are fewer than wanted."""

import itertools
import subprocess
import sys

from tests.support.nursery import ROOT
from tests.support.site import ask
from tests.support.stub_site import stub_site
from tests.support.waiting import wait_until
from tests.support.wire import Wire

TOPIC = "topic.0001.events"
numbers = itertools.count(700)


def few_copies(answer):
    answer["under_copied"] = 1
    for one in answer["topics"]:
        if one["topic_name"] == TOPIC:
            one.update(copies=1, copies_wanted=2)


async def test_a_topic_with_fewer_copies_than_wanted_is_red_where_one_looks_for_it_and_not_after():
    async with stub_site(nodes=2) as site:
        await site.get("/")
        site.nodes[0].edit = few_copies
        node = site.address(0)

        async def told():
            return ("trouble", "under-copied", node) in await site.concerns()

        async def well():
            return not await site.concerns()

        await site.until(told, "the node has fewer copies than wanted")

        async def found():
            reply = await site.get("/topics?q=state:under-copied")
            return TOPIC in reply.text and reply

        # The node's own page shows it first; sums over all nodes follow at the end of the round.
        listed = await site.until(found, "the topic is found by its state")
        topic, page = [await site.get(path) for path in (f"/topics/{TOPIC}", f"/nodes/{node}")]
        site.nodes[0].edit = None
        await site.until(well, "it is over")
        after = await site.get(f"/topics/{TOPIC}")

    assert f"fewer copies on other nodes than wanted: {node} has 1 of 2" in topic.text
    assert '<span class="badge badge-trouble">1 of 2</span>' in topic.html
    assert 'data-key="topic.0001.events" class="row-trouble"' in listed.html
    assert "topic.0002.events" not in listed.text
    assert "1 topic of it has fewer copies on other nodes than wanted" in page.text
    assert "under-copied" not in after.text
    assert "Copies" not in after.text


async def test_a_node_that_knows_no_copies_has_a_page_without_them():
    async with stub_site(nodes=1) as site:
        await site.get("/")
        page = await site.get(f"/nodes/{site.address(0)}")
        told = (await site.get(f"/nodes/{site.address(0)}?format=json")).json()

    assert "Is kept by" not in page.text
    assert told["copies"] is None


def test_a_nodes_page_says_who_keeps_it_and_what_its_keeper_carries(cluster):
    cluster.nsqlookupd()
    soon = ("--carry-after=1s", "--carry-ask=5s")
    keeper = cluster.nsqd(f"--node-id={next(numbers)}", *soon)
    home = cluster.nsqd(
        f"--node-id={next(numbers)}", *soon, "--replicas=1", f"--keepers={keeper.tcp_address}"
    )
    admin = cluster.nsqadmin()
    home.post("/topic/create?topic=orders")
    home.post("/channel/create?topic=orders&channel=billing")

    def page(node, path="nodes"):
        return ask(admin, "GET", f"/{path}/{node.http_address}").text

    wait_until(lambda: f"{keeper.tcp_address} linked" in page(home), "the keeper is linked")
    home.post("/mpub?topic=orders", b"1\n2\n3")
    wait_until(
        lambda: f"Keeps State Linked since, UTC Topics Carries {home.http_address}" in page(keeper),
        "its home is named",
    )
    assert "1 of 1" in ask(admin, "GET", "/topics/orders").text
    home.kill()
    wait_until(lambda: "3 messages owed" in page(keeper), "what is carried is shown", seconds=30)
    # The overview's figures are asked for at other times than those of the node's page.
    wait_until(
        lambda: "3 messages of it owed" in ask(admin, "GET", "/").text, "the overview says so", seconds=30
    )
    overview = ask(admin, "GET", "/").text
    told = admin.get("/?format=json")
    topic = ask(admin, "GET", "/topics/orders").text
    home.start()
    keeper.kill()
    wait_until(
        lambda: "under-copied" in page(home), "without its keeper the node is under-copied", seconds=30
    )

    assert f"{keeper.http_address} gives them out from a copy, 3 messages of it owed still" in overview
    assert [one["level"] for one in told["concerns"] if one["state"] == "left"] == ["watch"]
    assert f"is given out by {keeper.http_address}, and counted there" in topic
    assert f"{keeper.tcp_address} not connected" in page(home)


def test_a_node_that_handed_over_is_missed_only_until_all_it_owed_is_delivered(cluster):
    cluster.nsqlookupd()
    taker, home = [cluster.nsqd(f"--node-id={next(numbers)}", "--carry-after=60s") for _ in range(2)]
    admin = cluster.nsqadmin()
    home.post("/topic/create?topic=orders")
    home.post("/channel/create?topic=orders&channel=billing")
    home.post("/mpub?topic=orders", b"1\n2\n3\n4\n5")
    # It answers 404 until it has heard of the topic.
    wait_until(
        lambda: '"message_count":5' in ask(admin, "GET", "/api/topics/orders").text, "nsqadmin has seen them"
    )
    drain = (f"--http-address={home.http_address}", f"--hand-over-to={taker.tcp_address}")
    subprocess.run([sys.executable, "-m", "nsqd.drain", *drain], cwd=ROOT, check=True, timeout=90)
    home.stop()

    def left():
        return [one["level"] for one in admin.get("/?format=json")["concerns"] if one["state"] == "left"]

    wait_until(lambda: left() == ["watch"], "the taker gives its messages out", seconds=30)
    wire = Wire(("127.0.0.1", taker.tcp_port))
    wire.subscribe("orders", "billing", 10)
    wire.send(*(b"FIN " + message.id + b"\n" for message in wire.messages(5)))
    seen = []

    def delivered():
        seen.extend(now := left())
        return not now

    wait_until(delivered, "it is missed no longer", seconds=30)
    wire.close()

    assert set(seen) <= {"watch"}
    for path in ("/topics/orders", "/action?action=delete&topic=orders"):
        wait_until(lambda path=path: home.http_address not in ask(admin, "GET", path).text, "nor named")
