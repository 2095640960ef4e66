"""The original and ours use one data path in turn, twice each. Pending messages stay pending.

The original is not part of this project: `tests.support.processes.go_program` says where it is looked for.
"""

from collections import Counter

import pytest

from tests.support.processes import GoDaemon
from tests.support.waiting import wait_until
from tests.support.wire import dpub, fin, mpub, req


@pytest.fixture
def nodes(cluster, tmp_path):
    """The original and ours, on the same data path."""
    data = tmp_path / "data"
    data.mkdir()
    flags = ["--broadcast-address=127.0.0.1", f"--data-path={data}"]
    # Without a memory queue the original writes everything to its disk queues immediately.
    go = cluster.daemon("nsqd", [*flags, "--mem-queue-size=0"], kind=GoDaemon)
    return go, cluster.daemon("nsqd", flags), data


def bodies(kind, count):
    return [b"%b-%d" % (kind, n) for n in range(count)]


def unfinished(nsqd):
    """Waiting and deferred messages by (topic, channel)."""
    found = {}
    for topic in nsqd.get("/stats?format=json")["topics"]:
        if topic["depth"]:
            found[topic["topic_name"], ""] = topic["depth"]
        for channel in topic["channels"]:
            count = channel["depth"] + channel["deferred_count"]
            found[topic["topic_name"], channel["channel_name"]] = count
    return found


def take(nsqd, connect, topic, channel, count):
    """Take and finish *count* messages; return them."""
    wire = connect(nsqd)
    wire.subscribe(topic, channel)
    taken = []
    for _ in range(count):
        wire.send(b"RDY 1\n")
        message = wire.message()
        taken.append(message)
        wire.send(b"RDY 0\n", fin(message))
    wire.quiet()
    wire.close()
    return taken


def publish(nsqd, connect, topic, messages):
    wire = connect(nsqd)
    for at in range(0, len(messages), 100):
        assert wire.ask(mpub(topic, *messages[at : at + 100])) == b"OK"
    wire.close()


def fill(go, connect):
    """Topic a has two channels, b has none, p a paused one; d has deferred and requeued messages."""
    go.start()
    for path in ("topic=a&channel=one", "topic=a&channel=two", "topic=p&channel=ch", "topic=d&channel=ch"):
        go.post(f"/topic/create?{path.split('&')[0]}")
        go.post(f"/channel/create?{path}")
    go.post("/topic/create?topic=b")
    go.post("/channel/pause?topic=p&channel=ch")
    publish(go, connect, "a", bodies(b"first", 1000))
    publish(go, connect, "b", bodies(b"first", 50))
    publish(go, connect, "p", bodies(b"first", 20))
    publish(go, connect, "d", bodies(b"first", 10))
    wire = connect(go)
    wire.subscribe("d", "ch", ready=5)
    messages = wire.messages(5)
    wire.send(b"RDY 0\n", *[req(message, 600_000) for message in messages])
    wire.send(*[dpub("d", 600_000, body) for body in bodies(b"deferred", 5)])
    wire.ok(5)
    wire.close()


def test_everything_is_there_after_every_change_of_hands(nodes, connect):
    go, ours, data = nodes
    fill(go, connect)
    there = {("a", "one"): 1000, ("a", "two"): 1000, ("b", ""): 50, ("p", "ch"): 20, ("d", "ch"): 15}
    wait_until(lambda: unfinished(go) == there, "the original has given all to its channels", 10)
    assert go.stop() == 0

    ours.start()
    assert unfinished(ours) == there
    one = take(ours, connect, "a", "one", 400)
    # Two messages of topic a are delivered and requeued.
    wire = connect(ours)
    wire.subscribe("a", "two", ready=2)
    wire.send(b"RDY 0\n", *[req(message, 0) for message in wire.messages(2)])
    wire.quiet()
    wire.close()
    publish(ours, connect, "a", bodies(b"ours", 30))
    assert ours.stop() == 0

    # Back to the original: it finds its topics and channels, and none of the messages.
    go.start()
    assert unfinished(go) == {("a", "one"): 0, ("a", "two"): 0, ("p", "ch"): 0, ("d", "ch"): 0}
    (paused,) = go.get("/stats?format=json&topic=p")["topics"]
    assert paused["channels"][0]["paused"]
    publish(go, connect, "a", bodies(b"second", 100))
    publish(go, connect, "b", bodies(b"second", 7))
    go.create("new", "ch")
    publish(go, connect, "new", bodies(b"second", 3))
    again = {
        ("a", "one"): 100,
        ("a", "two"): 100,
        ("b", ""): 7,
        ("new", "ch"): 3,
        ("p", "ch"): 0,
        ("d", "ch"): 0,
    }
    wait_until(lambda: unfinished(go) == again, "the original has given all to its channels", 10)
    assert go.stop() == 0

    ours.start()
    assert unfinished(ours) == {
        ("a", "one"): 730,
        ("a", "two"): 1130,
        ("b", ""): 57,
        ("new", "ch"): 3,
        ("p", "ch"): 20,
        ("d", "ch"): 15,
    }
    all_of_a = Counter(bodies(b"first", 1000) + bodies(b"ours", 30) + bodies(b"second", 100))
    one += take(ours, connect, "a", "one", 730)
    two = take(ours, connect, "a", "two", 1130)
    assert Counter(message.body for message in one) == all_of_a
    assert Counter(message.body for message in two) == all_of_a
    assert Counter(message.attempts for message in two) == {1: 1128, 2: 2}
    back = take(ours, connect, "d", "ch", 15)
    assert Counter(message.body for message in back) == Counter(bodies(b"first", 10) + bodies(b"deferred", 5))
    # The original had delivered five of them once before.
    assert Counter(message.attempts for message in back) == {1: 10, 2: 5}
    new = take(ours, connect, "b", "made.later", 57)
    assert [message.body for message in new] == bodies(b"first", 50) + bodies(b"second", 7)
    # Imported files are retained under another name until an operator removes them.
    assert list(data.glob("*.diskqueue.*.adopted"))
    assert [path for path in data.glob("*.diskqueue.*") if path.suffix != ".adopted"] == []
