"""A real nsqd that is drained before it stops."""

import asyncio
import http.client
import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from bench.ports import free_port
from nsqclient._config import Config
from nsqclient._consumer import Consumer
from nsqclient._producer import Producer
from nsqtools.counted_producers import RawProducer
from tests.support.certificates import Authority
from tests.support.nsqd_http import metrics
from tests.support.upgrades import upgrade
from tests.support.waiting import eventually, wait_until
from tests.support.wire import fin, pub

ROOT = Path(__file__).parents[3]


def begin(nsqd, query=""):
    return json.loads(nsqd.post(f"/drain{query}"))


def drain(address, *flags):
    """The drain command as a running process."""
    return subprocess.Popen(
        [sys.executable, "-m", "nsqd.drain", f"--http-address={address}", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def test_draining_node_is_not_ready_and_says_so_everywhere(node):
    assert node.get("/drain") == {"draining": False, "drained": False, "remaining": 0, "topics": []}
    assert begin(node)["draining"] is True

    assert node.request("GET", "/ready") == (503, b"NOK - draining")
    assert node.request("GET", "/ping") == (200, b"OK")
    assert b"nsqd_draining 1.0" in node.request("GET", "/metrics")[1]


@pytest.mark.parametrize("path", ["/pub?topic=t", "/mpub?topic=t", "/mpub?topic=t&binary=true"])
def test_http_body_that_comes_during_drain_is_refused(node, path):
    body = b"\0\0\0\1\0\0\0\1x"
    with closing(http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)) as connection:
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        connection.send(body[:3])
        if "binary" in path:  # a binary request creates its topic before it reads the body
            wait_until(lambda: node.get("/stats?format=json")["topics"], "the request has been taken up")
        begin(node)
        connection.send(body[3:])
        answer = connection.getresponse()

        assert (answer.status, answer.read()) == (503, b'{"message":"DRAINING"}')


def test_drain_can_be_taken_back(node, connect):
    begin(node)
    assert begin(node, "?cancel=true")["draining"] is False

    assert node.request("GET", "/ready") == (200, b"OK")
    connect(node).publish("t", b"x")
    assert node.request("POST", "/drain?cancel=maybe") == (400, b'{"message":"INVALID_CANCEL"}')


def test_consumers_empty_draining_node(node, connect):
    connect(node).publish("t", b"1", b"2")
    consumer = connect(node)
    consumer.subscribe("t", "c", ready=1)
    first = consumer.message()
    state = begin(node)
    assert (state["remaining"], state["drained"]) == (2, False)
    (channel,) = state["topics"][0]["channels"]
    assert (channel["depth"], channel["in_flight_count"], channel["client_count"]) == (1, 1, 1)

    consumer.send(fin(first))
    consumer.send(fin(consumer.message()))
    wait_until(lambda: node.get("/drain")["drained"], "the node is drained")


async def test_producers_fail_over_during_drain(cluster):
    lookupd = cluster.nsqlookupd()
    leaving, staying = cluster.nsqd(), cluster.nsqd()
    bodies = []

    async def handle(delivery):
        bodies.append(delivery.body)

    async with Producer([leaving.tcp_address, staying.tcp_address]) as producer:
        for n in range(50):
            await producer.publish("t", b"%d" % n)
        leaving.post("/channel/create?topic=t&channel=c")
        hook = drain(leaving.http_address, "--timeout=20s")
        await eventually(lambda: leaving.get("/drain")["draining"], "the drain began")
        for n in range(50, 100):
            await producer.publish("t", b"%d" % n)
        assert producer.nsqd_address == staying.tcp_address
        # New consumers still find the draining node.
        config = Config(max_in_flight=20)
        async with Consumer("t", "c", handle, lookupd_addresses=[lookupd.http_address], config=config):
            await eventually(lambda: len(bodies) == 100, "all messages are here")
            await eventually(lambda: hook.poll() is not None, "the node is drained")

    assert ended(hook)[0] == 0
    assert leaving.get("/drain")["drained"] is True
    assert leaving.stop() == 0
    assert sorted(map(int, bodies)) == list(range(100))


@pytest.mark.parametrize("flags", [(), ("--timeout=300ms",)])
def test_drain_command_ignores_unwritable_stdout(node, connect, flags):
    if flags:
        connect(node).publish("t", b"1")
        node.post("/channel/create?topic=t&channel=c")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nsqd.drain", f"--http-address={node.http_address}", *flags],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )

    left = "nsqd-drain: 1 message remains: 1 of t/c, which has no consumer\n"
    assert (done.returncode, done.stderr) == ((1, left) if flags else (0, ""))


def pending_by_metrics(node):
    """The message count in a scrape of /metrics."""
    names = ("nsqd_topic_depth{", "nsqd_channel_depth{", "nsqd_channel_in_flight{", "nsqd_channel_deferred{")
    return sum(value for name, value in metrics(node).items() if name.startswith(names))


@pytest.mark.parametrize("has_channel", [True, False])
def test_drain_command_waits_for_scrape_without_backlog(node, connect, has_channel):
    connect(node).publish("t", b"1")
    if has_channel:
        node.post("/channel/create?topic=t&channel=c")
    assert pending_by_metrics(node) == 1
    hook = drain(node.http_address)
    wait_until(lambda: node.get("/drain")["draining"], "the drain began")
    assert "scraped_with_backlog" not in node.get("/drain")
    consumer = connect(node)
    consumer.subscribe("t", "c", ready=1)
    consumer.send(fin(consumer.message()))

    wait_until(lambda: node.get("/drain").get("scraped_with_backlog"), "it is drained, unseen by a scrape")
    with pytest.raises(subprocess.TimeoutExpired):
        hook.wait(timeout=1)
    assert pending_by_metrics(node) == 0
    assert ended(hook)[0] == 0


def test_drain_command_ignores_scrape_of_ephemeral_messages(node, connect):
    for topic in ("e#ephemeral", "t"):
        node.post(f"/topic/create?topic={topic.replace('#', '%23')}")
    node.post("/channel/create?topic=t&channel=c%23ephemeral")
    for topic in ("e#ephemeral", "t"):
        connect(node).publish(topic, b"1")
    assert pending_by_metrics(node) == 2

    assert "scraped_with_backlog" not in begin(node)


def test_command_does_not_wait_for_scrape_longer_than_it_may(node, connect):
    connect(node).publish("t", b"1")
    node.post("/channel/create?topic=t&channel=c")
    assert pending_by_metrics(node) == 1
    node.post("/channel/empty?topic=t&channel=c")

    assert ended(drain(node.http_address, "--timeout=1s"))[0] == 0


def test_node_that_ends_during_wait_for_scrape_is_drained(node, connect):
    connect(node).publish("t", b"1")
    node.post("/channel/create?topic=t&channel=c")
    assert pending_by_metrics(node) == 1
    hook = drain(node.http_address)
    wait_until(lambda: node.get("/drain")["draining"], "the drain began")
    node.post("/channel/empty?topic=t&channel=c")
    wait_until(lambda: node.get("/drain").get("scraped_with_backlog"), "it is drained, unseen by a scrape")
    time.sleep(0.5)  # the command has seen it, too
    node.stop()

    code, out, err = ended(hook)
    assert (code, out.splitlines()[-1], err) == (0, f"{node.http_address} is drained", "")


def test_command_ends_when_drain_is_cancelled(node, connect):
    connect(node).publish("t", b"1")
    node.post("/channel/create?topic=t&channel=c")
    process = drain(node.http_address, "--timeout=1h", "--poll-interval=1h")
    wait_until(lambda: node.get("/drain")["draining"], "the drain began")
    begin(node, "?cancel=true")

    code, _, err = ended(process)
    why = "the drain was cancelled, or ended by a restart; the node accepts publishes"
    assert (code, err) == (1, f"nsqd-drain: {why}\n")


LONG_GRACE = "?grace=3600000"


def test_announced_drain_is_not_ready_and_accepts_publishes(node, connect):
    assert begin(node, LONG_GRACE)["draining"] is True

    assert node.request("GET", "/ready") == (503, b"NOK - draining")
    assert node.request("POST", "/pub?topic=t", b"x") == (200, b"OK")
    assert connect(node).ask(pub("t", b"x")) == b"OK"
    assert not node.get("/drain")["drained"]
    assert node.request("POST", "/drain?grace=soon") == (400, b'{"message":"INVALID_GRACE"}')


def test_drain_refuses_publishes_after_grace(node, connect):
    publisher, consumer = connect(node), connect(node)
    publisher.publish("t", b"x")
    consumer.subscribe("t", "c")
    with closing(http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)) as kept:
        kept.request("POST", "/pub?topic=t", b"x")
        assert kept.getresponse().read() == b"OK"
        begin(node, "?grace=200")

        assert publisher.is_closed()
        assert kept.sock.recv(1) == b""
    assert node.request("POST", "/pub?topic=t", b"x") == (503, b'{"message":"DRAINING"}')
    consumer.send(b"RDY 2\n")
    assert {consumer.message().body, consumer.message().body} == {b"x"}


def test_announced_drain_closes_connection_behind_answer_to_its_publish(node, connect):
    wire, other = connect(node), connect(node)
    begin(node, LONG_GRACE)

    other.send(pub("t", b"x") + pub("t", b"rest")[:-1])
    assert other.response() == b"OK"
    other.send(b"t")
    assert (other.response(), other.is_closed()) == (b"OK", True)
    assert (wire.ask(pub("t", b"x")), wire.is_closed()) == (b"OK", True)


async def test_publish_never_comes_between_last_answer_and_end(node):
    begin(node, LONG_GRACE)
    publisher = RawProducer(f"127.0.0.1:{node.tcp_port}")
    async with publisher:
        publishes = [publisher.publish("t", b"x") for _ in range(500)]
        assert await asyncio.gather(*publishes, return_exceptions=True) == [None] * 500


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("compression", ["", "deflate", "snappy"])
def test_announced_drain_closes_connections_with_tls_and_compression(
    tmp_path, cluster, connect, tls, compression
):
    authority = Authority(tmp_path)
    node = cluster.nsqd(*authority.flags)
    publisher, idle = connect(node), connect(node)
    for wire in (publisher, idle):
        upgrade(wire, tls=authority.client() if tls else None, compression=compression)
        wire.publish("t", b"x")
    begin(node, LONG_GRACE)

    assert (publisher.ask(pub("t", b"x")), publisher.is_closed()) == (b"OK", True)
    begin(node)
    assert idle.is_closed()
    assert "an answer failed" not in node.logs()


@pytest.mark.parametrize("path", ["/pub?topic=t", "/mpub?topic=t&binary=true"])
@pytest.mark.parametrize(("grace", "status"), [(LONG_GRACE, 200), ("", 503)])
def test_http_answers_during_drain_close_connection(node, path, grace, status):
    with closing(http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)) as connection:
        body = b"\0\0\0\1\0\0\0\1x"
        connection.request("POST", path, body)
        assert connection.getresponse().read() == b"OK"
        begin(node, grace)

        connection.request("POST", path, body)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (status, "close")


def test_drain_without_grace_ends_the_grace_of_another(node, connect):
    publisher = connect(node)
    publisher.publish("t", b"x")
    begin(node, LONG_GRACE)
    begin(node)

    # As at the end of the grace: the command asks about when the time is over.
    assert publisher.is_closed()
    assert node.request("POST", "/pub?topic=t", b"x")[0] == 503
    assert begin(node, "?cancel=true")["draining"] is False
    begin(node, LONG_GRACE)
    assert begin(node, "?cancel=true")["draining"] is False
    assert node.request("GET", "/ready") == (200, b"OK")


def test_command_waits_for_grace_though_nothing_remains(node):
    process = drain(node.http_address, "--grace=1s")
    wait_until(lambda: node.get("/drain")["draining"], "the drain is announced")
    assert node.request("POST", "/pub?topic=t#ephemeral", b"x")[0] == 200

    assert ended(process)[0] == 0
    assert node.request("POST", "/pub?topic=t", b"x")[0] == 503


@pytest.mark.parametrize("forgotten", ["paused", "unread", "deferred"])
def test_command_does_not_wait_for_message_that_cannot_go(node, connect, forgotten):
    """One forgotten message must not delay every restart."""
    connect(node).publish("t", b"1")
    node.post("/channel/create?topic=t&channel=c")
    consumer = connect(node)
    if forgotten == "paused":
        node.post("/channel/pause?topic=t&channel=c")
        consumer.subscribe("t", "c", ready=1)
    elif forgotten == "deferred":
        consumer.subscribe("t", "c", ready=1)
        consumer.send(b"REQ %s 3600000\n" % consumer.message().id)
        wait_until(lambda: node.get("/drain")["topics"][0]["channels"][0]["deferred_count"], "it waits")

    code, _, err = ended(drain(node.http_address, "--timeout=30m", "--poll-interval=0"))

    assert code == 1
    reason = {
        "paused": "which is paused",
        "unread": "which has no consumer",
        "deferred": "deferred for another ",
    }
    assert err.startswith(f"nsqd-drain: 1 message remains: 1 of t/c, {reason[forgotten]}")


def test_remaining_messages_of_drain_are_in_log_and_metric(node, connect):
    connect(node).publish("t", b"1", b"2")
    assert b"nsqd_drain_remaining 0.0" in node.request("GET", "/metrics")[1]
    begin(node)

    assert b"nsqd_drain_remaining 2.0" in node.request("GET", "/metrics")[1]
    assert node.stop() == 0
    sentence = "2 messages remain: 2 of t, which has no channel to drain to"
    assert f"WARNING: NSQ: stopped before it was drained, on its disk {sentence}" in node.logs()


def test_command_needs_node_to_ask():
    code, _, err = ended(drain(f"127.0.0.1:{free_port()}"))

    assert code == 1
    assert err.startswith("nsqd-drain: POST http://127.0.0.1:")


def test_restart_ends_drain(node):
    begin(node)
    assert node.stop() == 0
    assert "INFO: NSQ: drained, nothing remains" in node.logs()
    node.start()

    assert node.get("/drain")["draining"] is False


def test_producers_that_ask_nsqlookupd_are_sent_elsewhere(cluster):
    lookupd = cluster.nsqlookupd()
    leaving, staying = cluster.nsqd(), cluster.nsqd()
    leaving.post("/topic/create?topic=t")

    def places():
        return {node["tcp_port"] for node in lookupd.get("/lookup/producers?topic=t")["producers"]}

    wait_until(lambda: places() == {leaving.tcp_port, staying.tcp_port}, "both take publishes")
    begin(leaving)
    wait_until(lambda: places() == {staying.tcp_port}, "only one does")
    assert len(lookupd.get("/lookup?topic=t")["producers"]) == 1  # consumers still find the leaving node
    lookupd.restart()
    wait_until(lambda: places() == {staying.tcp_port}, "an nsqlookupd that was restarted gets it")
    begin(leaving, "?cancel=true")
    wait_until(lambda: places() == {leaving.tcp_port, staying.tcp_port}, "both do again")
