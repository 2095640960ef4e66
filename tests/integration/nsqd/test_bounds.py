"""Bounds: a full topic refuses publishes or drops its oldest messages; and a disk that is nearly full."""

import http.client
import json
import shutil

import pytest

from tests.support.nsqd_http import channel_stats, metrics, set_policy
from tests.support.wire import dpub, mpub, pub


def make(node, topic="t", channel="ch"):
    node.create(topic, channel)


FULL = [
    (pub("t", b"3"), b"E_PUB_FAILED PUB failed topic is full"),
    (mpub("t", b"3", b"4"), b"E_MPUB_FAILED MPUB failed topic is full"),
    (dpub("t", 1000, b"3"), b"E_DPUB_FAILED DPUB failed topic is full"),
]


def test_publisher_gets_error_for_full_topic(node, connect):
    make(node)
    set_policy(node, ".*", apply=True, max_depth=2)
    connect(node).ask(mpub("t", b"1", b"2"))

    for command, expected in FULL:
        assert connect(node).refusal(command) == expected
    assert channel_stats(node, "t")["depth"] == 2


def test_http_publisher_gets_retry_after(node):
    make(node)
    set_policy(node, ".*", apply=True, max_depth=1)
    node.post("/pub?topic=t", b"1")
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)

    for path in ("/pub?topic=t", "/mpub?topic=t"):
        connection.request("POST", path, b"2")
        response = connection.getresponse()

        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert json.loads(response.read()) == {"message": "TOPIC_FULL"}
    connection.close()


def test_oldest_go_and_publishers_go_on(node, connect, restart):
    make(node)
    set_policy(node, ".*", apply=True, max_depth=3, when_full="drop-oldest")
    connect(node).publish("t", *[b"%d" % n for n in range(10)])
    assert (channel_stats(node, "t")["depth"], channel_stats(node, "t")["dropped_count"]) == (3, 7)

    restart(node)

    assert channel_stats(node, "t")["depth"] == 3
    wire = connect(node)
    wire.subscribe("t", "ch", ready=10)
    assert [message.body for message in wire.messages(3)] == [b"7", b"8", b"9"]
    wire.quiet()


def test_counters_are_in_metrics_where_policy_is(node, connect):
    make(node)
    make(node, "free")
    set_policy(node, "^t$", max_depth=1, when_full="drop-oldest")
    connect(node).publish("t", b"1", b"2")

    found = metrics(node)
    assert found['nsqd_channel_dropped_total{channel="ch",topic="t"}'] == 1
    assert 'nsqd_channel_dropped_total{channel="ch",topic="free"}' not in found


def test_node_with_too_little_of_its_disk_free_refuses_and_says_so(cluster, connect):
    node = cluster.nsqd("--disk-watermark=99.999999%")

    assert connect(node).refusal(pub("t", b"1")) == b"E_PUB_FAILED PUB failed disk is nearly full"
    assert node.request("POST", "/pub?topic=t", b"1") == (503, b'{"message":"DISK_LOW"}')
    assert node.request("GET", "/ready")[0] == 503
    assert node.request("GET", "/ping")[1] == b"NOK - disk is nearly full"
    assert "nsqd_disk_low 1" in node.request("GET", "/metrics")[1].decode()


def test_size_of_disk_and_what_is_free_of_it_are_metrics(cluster):
    node = cluster.nsqd()
    found = metrics(node)
    size, free = (found[f"nsqd_disk_{name}_bytes"] for name in ("size", "free"))
    disk = shutil.disk_usage(node.folder)

    assert size == disk.total
    assert 0 < free <= size


@pytest.mark.parametrize("value", ["5 apples", "100%"])
def test_mark_that_is_none_is_refused_at_start(cluster, value):
    node = cluster.daemon("nsqd", [f"--disk-watermark={value}"]).spawn()

    assert node.wait() == 1
    assert "--disk-watermark" in node.logs()


def test_policy_lets_messages_be_put_off_for_longer(node, connect):
    assert (
        connect(node).refusal(dpub("t", 7_200_000, b"1"))
        == b"E_INVALID DPUB timeout 7200000 out of range 0-3600000"
    )
    set_policy(node, ".*", apply=True, max_defer="30d")

    connect(node).ask(dpub("t", 7_200_000, b"1"))
    assert node.request("POST", "/pub?topic=t&defer=7200000", b"2")[0] == 200
    assert node.request("POST", f"/pub?topic=t&defer={31 * 86_400_000}", b"3")[0] == 400
