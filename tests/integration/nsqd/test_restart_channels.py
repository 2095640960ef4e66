"""Channels over kill -9 and a clean stop: which exist, the backlog of each, and its counters."""

import socket

import pytest

from tests.integration.nsqd.restarts import bodies, channel_of, consume, crash, stop, topics
from tests.support.wire import fin, rdy, req


@pytest.fixture
def nsqd(cluster):
    return cluster.nsqd()


def test_new_channel_has_later_messages_after_any_crash(nsqd, connect):
    consume(connect, nsqd, 0, channel="old")
    producer = connect(nsqd)
    for n in range(5):
        name = f"new{n}"
        consume(connect, nsqd, 0, channel=name)
        producer.publish("t", b"for %d" % n)
        crash(nsqd)
        producer = connect(nsqd)
        assert channel_of(nsqd, channel=name)["depth"] == 1
    assert {c["channel_name"]: c["depth"] for c in topics(nsqd)["t"]["channels"]} == {
        "old": 5,
        **{f"new{n}": 5 - n for n in range(5)},
    }


def test_topic_and_channel_without_messages_are_there_again(nsqd, restart):
    nsqd.post("/topic/create?topic=bare")
    nsqd.create("t", "ch")
    restart(nsqd)
    assert {name: [c["channel_name"] for c in topic["channels"]] for name, topic in topics(nsqd).items()} == {
        "bare": [],
        "t": ["ch"],
    }


def test_pause_survives(nsqd, connect, restart):
    connect(nsqd).subscribe("t", "ch")
    connect(nsqd).subscribe("stopped", "ch")
    nsqd.post("/channel/pause?topic=t&channel=ch")
    nsqd.post("/topic/pause?topic=stopped")
    connect(nsqd).publish("t", b"m")
    connect(nsqd).publish("stopped", b"m")
    restart(nsqd)
    found = topics(nsqd)
    assert found["stopped"]["paused"]
    assert not found["t"]["paused"]
    assert channel_of(nsqd)["paused"]
    assert found["stopped"]["depth"] == 1
    wire = connect(nsqd)
    wire.subscribe("t", ready=1)
    wire.quiet()
    nsqd.post("/channel/unpause?topic=t&channel=ch")
    assert wire.message().body == b"m"
    restart(nsqd)
    assert not channel_of(nsqd)["paused"]


def test_deleted_is_deleted(nsqd, connect, restart):
    for name in ("t", "gone"):
        connect(nsqd).subscribe(name, "ch")
        connect(nsqd).subscribe(name, "gone")
        connect(nsqd).publish(name, b"m")
    nsqd.post("/channel/delete?topic=t&channel=gone")
    nsqd.post("/topic/delete?topic=gone")
    restart(nsqd)
    assert {name: [c["channel_name"] for c in topic["channels"]] for name, topic in topics(nsqd).items()} == {
        "t": ["ch"]
    }


def test_topic_made_anew_after_its_deletion_has_only_new_messages(nsqd, connect, restart):
    connect(nsqd).subscribe("t", "old")
    connect(nsqd).publish("t", b"old")
    nsqd.post("/topic/delete?topic=t")
    connect(nsqd).publish("t", b"new")
    restart(nsqd)
    _, messages = consume(connect, nsqd, 1, channel="new")
    assert bodies(messages) == [b"new"]


def test_counters_go_on_after_clean_stop(nsqd, connect):
    wire = connect(nsqd)
    wire.subscribe("t", ready=1)
    connect(nsqd).publish("t", b"four", b"five!")
    wire.send(req(wire.message(), 0))
    wire.send(rdy(0), fin(wire.message()))
    wire.quiet()
    stop(nsqd)
    found = topics(nsqd)["t"]
    assert (found["message_count"], found["message_bytes"]) == (2, 9)
    channel = channel_of(nsqd)
    assert (channel["message_count"], channel["requeue_count"]) == (2, 1)


def test_recovered_messages_do_not_count_as_published(nsqd, connect):
    connect(nsqd).subscribe("t", "ch")
    connect(nsqd).publish("t", b"a", b"b", b"c")
    crash(nsqd)
    before = topics(nsqd)["t"]["message_count"], channel_of(nsqd)["message_count"]
    assert channel_of(nsqd)["depth"] == 3
    crash(nsqd)
    assert (topics(nsqd)["t"]["message_count"], channel_of(nsqd)["message_count"]) == before
    assert before[0] <= 3  # fewer when no checkpoint was written before the first kill
    connect(nsqd).publish("t", b"d")
    assert topics(nsqd)["t"]["message_count"] == before[0] + 1


def test_statsd_is_not_told_again_what_an_earlier_run_has_counted(cluster, connect):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(20)
        address = f"127.0.0.1:{receiver.getsockname()[1]}"
        nsqd = cluster.nsqd(f"--statsd-address={address}", "--statsd-prefix=", "--statsd-interval=1h")
        connect(nsqd).publish("t", b"a", b"b", b"c")
        stop(nsqd)
        assert b"topic.t.message_count:3|c" in receiver.recv(65536)
        assert topics(nsqd)["t"]["message_count"] == 3
        connect(nsqd).publish("t", b"d")
        stop(nsqd)
        assert b"topic.t.message_count:1|c" in receiver.recv(65536)


def test_ephemeral_things_do_not_survive(nsqd, connect, restart):
    connect(nsqd).subscribe("t", "fleeting#ephemeral")
    connect(nsqd).subscribe("t", "ch")
    connect(nsqd).publish("t", b"m")
    connect(nsqd).subscribe("fleeting#ephemeral", "ch")
    connect(nsqd).publish("fleeting#ephemeral", b"m")
    assert "ephemeral" not in (nsqd.folder / "nsqd.dat").read_text()
    restart(nsqd)
    assert list(topics(nsqd)) == ["t"]
    assert [c["channel_name"] for c in topics(nsqd)["t"]["channels"]] == ["ch"]
    assert bodies(consume(connect, nsqd, 1)[1]) == [b"m"]
    assert not [path for path in nsqd.folder.iterdir() if "ephemeral" in path.name]
