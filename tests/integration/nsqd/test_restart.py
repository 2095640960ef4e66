"""After kill -9 at any moment, and after a clean stop, no acknowledged message is lost."""

import json
import socket
import time

import pytest

from tests.integration.nsqd.restarts import bodies, channel_of, consume, crash, statistics, stop, topics
from tests.support import beside
from tests.support.waiting import wait_until
from tests.support.wire import Wire, dpub, fin, mpub, rdy, req, sub


@pytest.fixture
def nsqd(cluster):
    return cluster.nsqd()


# --- messages


def test_acknowledged_messages_survive_restart(nsqd, connect, restart):
    wire = connect(nsqd)
    wire.subscribe("t")
    wire.publish("t", b"pub")
    assert wire.ask(mpub("t", b"mpub 1", b"mpub 2")) == b"OK"
    assert nsqd.post("/pub?topic=t", b"http") == b"OK"
    assert nsqd.post("/mpub?topic=t", b"line 1\nline 2") == b"OK"
    restart(nsqd)
    _, messages = consume(connect, nsqd, 6)
    assert bodies(messages) == [b"pub", b"mpub 1", b"mpub 2", b"http", b"line 1", b"line 2"]
    assert [message.attempts for message in messages] == [1] * 6


def test_ids_are_not_used_again(nsqd, connect, restart):
    wire = connect(nsqd)
    wire.publish("t", b"a", b"b")
    restart(nsqd)
    connect(nsqd).publish("t", b"c", b"d")
    _, messages = consume(connect, nsqd, 4)
    ids = [message.id for message in messages]
    assert ids == sorted(set(ids))
    assert bodies(messages) == [b"a", b"b", b"c", b"d"]


def test_finished_message_does_not_come_back_after_clean_stop(nsqd, connect):
    wire = connect(nsqd)
    wire.subscribe("t", ready=10)
    assert wire.ask(mpub("t", *[b"%d" % n for n in range(10)])) == b"OK"
    messages = wire.messages(10)
    wire.send(*[fin(message) for message in messages[::2]])
    wire.quiet()
    stop(nsqd)
    _, again = consume(connect, nsqd, 5)
    assert sorted(bodies(again)) == sorted(bodies(messages[1::2]))


def test_finished_message_does_not_come_back_a_second_before_crash(nsqd, connect):
    wire = connect(nsqd)
    wire.subscribe("t", ready=10)
    connect(nsqd).publish("t", b"finished", b"not yet")
    finished, _ = wire.messages(2)
    wire.send(fin(finished))
    wire.quiet()
    folder = nsqd.folder / "t.topic"
    noted = time.time()
    wait_until(
        lambda: any(path.stat().st_mtime > noted for path in folder.glob("checkpoint.?")),
        "a checkpoint notes it",
        5,
    )
    crash(nsqd)
    _, messages = consume(connect, nsqd, 1)
    assert bodies(messages) == [b"not yet"]


def test_messages_in_flight_and_attempts_survive_clean_stop(nsqd, connect):
    wire = connect(nsqd)
    wire.subscribe("t", ready=10)
    connect(nsqd).publish("t", b"once", b"often")
    _, often = wire.messages(2)
    for _ in range(3):
        wire.send(req(often, 0))
        wire.message()
    wire.quiet()
    stop(nsqd)
    _, messages = consume(connect, nsqd, 2)
    assert {message.body: message.attempts for message in messages} == {b"once": 2, b"often": 5}


def test_messages_can_be_finished_after_change_of_node_id(nsqd, connect, restart):
    # The default node id is made from the host name, which a container may change with every start.
    connect(nsqd).publish("t", *[b"%d" % n for n in range(5)])
    nsqd.flags.append("--node-id=99")
    restart(nsqd)
    connect(nsqd).publish("t", b"new")
    wire, messages = consume(connect, nsqd, 6)
    wire.send(b"TOUCH %b\n" % messages[0].id, req(messages[1], 0), *[fin(m) for m in messages[2:]])
    again = wire.message()
    assert again.id == messages[1].id
    wire.send(fin(again), fin(messages[0]))
    wire.quiet()
    assert statistics(channel_of(nsqd)) == {"depth": 0, "in_flight_count": 0, "deferred_count": 0}


# --- deferred


@pytest.mark.slow
def test_deferred_message_keeps_its_time(nsqd, connect, restart):
    wire = connect(nsqd)
    wire.subscribe("t")
    due = time.time() + 3
    assert wire.ask(dpub("t", 3000, b"later")) == b"OK"
    assert nsqd.post("/pub?topic=t&defer=3600000", b"much later") == b"OK"
    restart(nsqd)
    assert statistics(channel_of(nsqd)) == {"depth": 0, "in_flight_count": 0, "deferred_count": 2}
    again = connect(nsqd)
    again.subscribe("t", ready=10)
    again.quiet()
    assert again.message().body == b"later"
    assert due - 0.1 <= time.time()
    again.quiet()


def test_message_deferred_at_topic_without_channels_keeps_its_time(nsqd, connect, restart):
    assert connect(nsqd).ask(dpub("t", 3600000, b"later")) == b"OK"
    restart(nsqd)
    _, messages = consume(connect, nsqd, 0)
    assert messages == []
    assert statistics(channel_of(nsqd)) == {"depth": 0, "in_flight_count": 0, "deferred_count": 1}


# --- names and numbers


def test_topics_with_any_legal_name_survive_restart(nsqd, connect, restart):
    names = [f"topic-{n}" for n in range(200)] + [
        ".",
        "..",
        "...",
        "a" * 64,
        "x.topic",
        "y.deleted",
        "-",
        "_",
    ]
    wire = connect(nsqd)
    wire.send(*[mpub(name, name.encode(), b"2") for name in names])
    wire.ok(len(names))
    restart(nsqd)
    assert {name: topic["depth"] for name, topic in topics(nsqd).items()} == dict.fromkeys(names, 2)
    for name in ("..", ".", "topic-7", "a" * 64):
        _, messages = consume(connect, nsqd, 2, topic=name)
        assert bodies(messages) == [name.encode(), b"2"]
    outside = [path.name for path in nsqd.folder.parent.iterdir()]
    assert outside == [nsqd.folder.name]  # ".." stays inside the data path


def test_segments_without_pending_messages_are_removed(cluster, connect):
    nsqd = cluster.nsqd("--max-bytes-per-file=10000")
    wire = connect(nsqd)
    wire.subscribe("t", ready=2500)
    folder = nsqd.folder / "t.topic"
    for _ in range(10):
        wire.send(mpub("t", *[b"m" * 1000] * 20))
        wire.ok()
        messages = wire.messages(20)
    wait_until(lambda: len(list(folder.glob("*.log"))) >= 10, "there are many segments")
    wire.send(*[b"FIN %b\n" % message.id for message in messages])
    wire.send(rdy(0))
    nsqd.post("/channel/empty?topic=t&channel=ch")
    wait_until(lambda: len(list(folder.glob("*.log"))) <= 2, "the segments go")
    # Closed segments have an index; the newest has none yet.
    assert len(list(folder.glob("*.index"))) < len(list(folder.glob("*.log")))


# --- files


def test_nsqd_dat_has_originals_shape_and_is_private(nsqd, connect):
    path = nsqd.folder / "nsqd.dat"
    ours = {}
    if beside.OURS:  # the original leaves it out when it writes the file
        ours["data_path"] = json.loads(path.read_text())["data_path"]
        assert len(bytes.fromhex(ours["data_path"])) == 16
    whole = {"topics": None, "version": "1.3.0", **ours}
    assert path.read_bytes() == json.dumps(whole, separators=(",", ":")).encode()
    assert path.stat().st_mode & 0o777 == 0o600
    nsqd.post("/topic/create?topic=bare")
    connect(nsqd).subscribe("dq", "ch")
    nsqd.post("/channel/pause?topic=dq&channel=ch")
    assert nsqd.stop() == 0
    listed = json.loads(path.read_text())
    if beside.OURS:
        logs = {topic.pop("log") for topic in listed["topics"]}
        assert [len(bytes.fromhex(log)) for log in logs] == [4, 4]
    assert listed == {
        "topics": [
            {"name": "bare", "paused": False, "channels": None},
            {"name": "dq", "paused": False, "channels": [{"name": "ch", "paused": True}]},
        ],
        "version": "1.3.0",
        **ours,
    }


def test_nsqd_dat_of_the_original_is_read(cluster):
    nsqd = cluster.daemon("nsqd", [])
    nsqd.flags.append(f"--data-path={nsqd.folder}")
    listed = {
        "topics": [
            {
                "name": "t",
                "paused": True,
                "channels": [{"name": "ch", "paused": True}, {"name": "b@d", "paused": False}],
            },
            {"name": "b@d", "paused": False, "channels": None},
        ],
        "version": "1.2.1",
        "unknown": 1,
    }
    (nsqd.folder / "nsqd.dat").write_text(json.dumps(listed))
    nsqd.start()
    assert topics(nsqd)["t"]["paused"]
    assert channel_of(nsqd)["paused"]
    assert len(topics(nsqd)) == 1
    for warning in ("skipping creation of invalid topic b@d", "skipping creation of invalid channel b@d"):
        assert f" WARNING: {warning}\n" in nsqd.logs()


def test_topics_are_found_without_nsqd_dat(nsqd, connect):
    connect(nsqd).subscribe("t", "ch")
    connect(nsqd).publish("t", b"m")
    nsqd.kill()
    (nsqd.folder / "nsqd.dat").unlink()
    nsqd.start()
    assert bodies(consume(connect, nsqd, 1)[1]) == [b"m"]


def test_acknowledged_messages_survive_crashes_under_load(nsqd, connect):
    """All messages that were acknowledged to the producer are delivered, whatever the moment of the kill."""
    consumer = connect(nsqd)
    consumer.subscribe("t", "ch")
    consumer.close()
    acknowledged = set()
    for crash_number in range(4):
        wire = Wire(("127.0.0.1", nsqd.tcp_port))
        with wire:
            for batch in range(200):
                names = [b"%d-%d-%d" % (crash_number, batch, n) for n in range(50)]
                wire.send(mpub("t", *names))
                if batch == 100 + crash_number * 7:
                    nsqd.kill()
                    break
                wire.ok()
                acknowledged.update(names)
        nsqd.start()
    wire = connect(nsqd)
    assert wire.ask(sub("t", "ch")) == b"OK"
    depth = channel_of(nsqd)["depth"]
    wire.send(rdy(2500))
    received = []
    for _ in range(depth):
        message = wire.message()
        received.append(message.body)
        wire.send(fin(message))
    assert acknowledged <= set(received)
    assert len(received) == len(set(received))


# --- channels: which exist, which messages each must deliver, and its counters


def test_new_channel_keeps_its_messages_after_crash(nsqd, connect):
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
