"""`dedup-id`: a second publish of an id within the window of a policy is an OK that stores nothing."""

import json

import pytest

from tests.integration.nsqd.restarts import crash, stop
from tests.support.nsqd_http import metrics, set_policy
from tests.support.processes import Cluster
from tests.support.wire import pub
from tests.support.youzan import YouzanClient, mpub_ext, pub_ext


@pytest.fixture(scope="module")
def own_nsqd(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("dedup") / "shared")
    yield cluster.nsqd()
    cluster.close()


@pytest.fixture
def nsqd(own_nsqd):
    set_policy(own_nsqd, "topic.*", dedup_window="1h")
    return own_nsqd


def said(name):
    return json.dumps({"dedup-id": name}).encode()


def publish(wire, topic, *names):
    wire.send(*[pub_ext(topic, said(name), name.encode()) for name in names])
    wire.ok(len(names))


def consumed(nsqd, connect, topic):
    """Finish all waiting messages; return their bodies."""
    wire = connect(nsqd)
    wire.subscribe(topic)
    depth = nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["channels"][0]["depth"]
    wire.send(b"RDY 100\n")
    messages = wire.messages(depth)
    wire.send(*[b"FIN %b\n" % message.id for message in messages])
    wire.quiet()
    wire.close()
    return [message.body for message in messages]


def repeated(nsqd, topic):
    """How many publishes to the topic stored nothing, because their id was known."""
    return metrics(nsqd)[f'nsqd_topic_repeated_total{{topic="{topic}"}}']


def test_dedup_ids_hold_for_each_way_of_publishing(nsqd, connect, topic):
    with connect(nsqd) as wire:
        publish(wire, topic, "a", "b", "a")
        wire.send(mpub_ext(topic, (said("b"), b"b"), (said("c"), b"c"), (b"", b"-")), pub(topic, b"-"))
        wire.ok(2)
        for path, name in ((f"/pub?topic={topic}", "c"), (f"/pub_ext?topic={topic}&ext=%7B%7D", "d")):
            assert nsqd.request("POST", path, name.encode(), {"X-NSQEXT-Dedup-Id": name})[0] == 200

    assert consumed(nsqd, connect, topic) == [b"a", b"b", b"c", b"-", b"-", b"d"]
    assert repeated(nsqd, topic) == 3


@pytest.mark.parametrize("restart", [crash, stop], ids=["kill -9", "clean stop"])
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "pending"])
def test_ids_hold_over_restarts(nsqd, connect, topic, restart, finished):
    with connect(nsqd) as wire:
        wire.subscribe(topic)
        publish(wire, topic, "a", "b")
    if finished:
        assert consumed(nsqd, connect, topic) == [b"a", b"b"]

    restart(nsqd)
    with connect(nsqd) as wire:
        publish(wire, topic, "b", "c", "a")

    assert repeated(nsqd, topic) == 2
    got = consumed(nsqd, connect, topic)
    # Messages finished in the second before a kill come again, and are the same messages.
    assert got in ([b"c"], [b"a", b"b", b"c"]) if finished else got == [b"a", b"b", b"c"]


def test_publisher_that_is_cut_off_by_kill_may_send_all_of_it_again(nsqd, connect, topic):
    names = [f"{n:04}" for n in range(2000)]
    with connect(nsqd) as wire:
        wire.subscribe(topic)
        wire.send(*[pub_ext(topic, said(name), name.encode()) for name in names])
        wire.ok(200)
        # Some of the other messages are stored, and the publisher does not know which.
        nsqd.kill()
    nsqd.restart()

    with YouzanClient(("127.0.0.1", nsqd.tcp_port)) as again:
        for at in range(0, len(names), 500):
            batch = [(said(name), name.encode()) for name in names[at : at + 500]]
            assert again.ask(mpub_ext(topic, *batch)) == b"OK"

    found = nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]
    assert found["channels"][0]["depth"] == len(names)


def test_repeated_publish_is_refused_while_node_is_drained(cluster, connect):
    nsqd = cluster.nsqd()
    set_policy(nsqd, "^t$", dedup_window="1h")
    with connect(nsqd) as wire:
        publish(wire, "t", "one")
    nsqd.post("/drain")

    with connect(nsqd) as wire:
        assert b"draining" in wire.refusal(pub_ext("t", said("one"), b"one"))
