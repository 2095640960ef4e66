"""Sections 3.1 to 3.5: the life of topics and channels, pause, empty, delete, and ephemeral ones."""

import pytest

from tests.support import beside
from tests.support.waiting import wait_until
from tests.support.wire import dpub, fin, mpub, pub, rdy, sub


@pytest.fixture
def channel(nsqd, topic):
    """Acts on the channel ``ch`` of the test's topic over HTTP."""

    def act(action, name="ch"):
        nsqd.post(f"/channel/{action}?topic={topic}&channel={name}")

    return act


def depth(found):
    return found["depth"]


# --- pause


def test_paused_channel_delivers_nothing_and_misses_nothing(wire, connect, topic, stats, channel):
    wire.subscribe(topic, ready=10)
    channel("pause")
    connect().publish(topic, b"a", b"b")
    wire.quiet()
    found = stats(topic, "ch")
    assert (found["paused"], found["depth"]) == (True, 2)
    channel("unpause")
    assert [message.body for message in wire.messages(2)] == [b"a", b"b"]


def test_paused_topic_keeps_publishes_and_its_channels_deliver_their_backlog(
    wire, connect, nsqd, topic, stats
):
    producer = connect()
    wire.subscribe(topic)
    producer.publish(topic, b"before")
    nsqd.post(f"/topic/pause?topic={topic}")
    producer.publish(topic, b"during that", b"and again")
    found = stats(topic)
    assert (found["paused"], found["depth"], found["message_count"]) == (True, 2, 3)
    wire.send(rdy(10))
    assert wire.message().body == b"before"
    wire.quiet()
    nsqd.post(f"/topic/unpause?topic={topic}")
    assert [message.body for message in wire.messages(2)] == [b"during that", b"and again"]
    assert depth(stats(topic)) == 0


# --- empty


def test_empty_drops_what_waits_is_deferred_and_is_in_flight(wire, connect, topic, stats, channel):
    wire.subscribe(topic, ready=2)
    connect().send(mpub(topic, *[b"%d" % n for n in range(10)]), dpub(topic, 60000, b"later"))
    first, second = wire.messages(2)
    wire.send(b"REQ %b 60000\n" % second.id)
    wire.message()
    wait_until(lambda: stats(topic, "ch")["deferred_count"] == 2, "two are deferred")
    channel("empty")
    found = stats(topic, "ch")
    assert [found[key] for key in ("depth", "in_flight_count", "deferred_count")] == [0, 0, 0]
    assert found["clients"][0]["in_flight_count"] == 0
    assert found["message_count"] == 11
    wire.send(fin(first))
    assert wire.error() == b"E_FIN_FAILED FIN %b failed ID not in flight" % first.id
    connect().publish(topic, b"new")
    assert wire.message().body == b"new"


def test_emptying_topic_leaves_its_channels_alone(wire, connect, nsqd, topic, stats):
    wire.subscribe(topic)
    producer = connect()
    producer.publish(topic, b"in the channel")
    nsqd.post(f"/topic/pause?topic={topic}")
    producer.publish(topic, b"in the topic")
    nsqd.post(f"/topic/empty?topic={topic}")
    nsqd.post(f"/topic/unpause?topic={topic}")
    wire.send(rdy(10))
    assert wire.message().body == b"in the channel"
    wire.quiet()
    assert depth(stats(topic)) == 0


# --- delete


def test_deleting_channel_closes_its_consumers_and_drops_its_messages(wire, connect, topic, stats, channel):
    other = connect()
    wire.subscribe(topic)
    other.subscribe(topic, "other", ready=10)
    connect().publish(topic, b"m")
    channel("delete")
    assert wire.is_closed()
    assert other.message().body == b"m"
    assert [found["channel_name"] for found in stats(topic)["channels"]] == ["other"]


def test_deleting_topic_closes_all_its_consumers_and_its_name_is_free(wire, connect, nsqd, topic):
    other, bystander = connect(), connect()
    wire.subscribe(topic, "one", ready=1)
    other.subscribe(topic, "two")
    bystander.subscribe(topic + "-else")
    connect().publish(topic, b"m")
    wire.message()
    nsqd.post(f"/topic/delete?topic={topic}")
    assert wire.is_closed()
    assert other.is_closed()
    bystander.quiet()
    assert nsqd.get(f"/stats?format=json&topic={topic}")["topics"] is None
    again = connect()
    again.publish(topic, b"new")
    again.subscribe(topic, "one", ready=1)
    assert again.message().body == b"new"


def test_deleting_removes_topics_files(nsqd, wire, topic):
    wire.publish(topic, b"m")
    assert [path for path in nsqd.folder.iterdir() if path.name.startswith(f"{topic}.")]
    nsqd.post(f"/topic/delete?topic={topic}")
    wait_until(
        lambda: not [path for path in nsqd.folder.iterdir() if path.name.startswith(f"{topic}.")],
        "its files are gone",
    )


# --- ephemeral


def test_ephemeral_channel_goes_with_its_last_consumer(connect, topic, stats):
    first, second = connect(), connect()
    for wire in (first, second):
        wire.subscribe(topic, "e#ephemeral")
    first.close()
    wait_until(lambda: stats(topic, "e#ephemeral")["client_count"] == 1, "one is left")
    second.close()
    wait_until(lambda: stats(topic)["channels"] == [], "the channel is gone")


def test_ephemeral_channel_made_over_http_waits_for_its_first_consumer(nsqd, connect, topic, stats):
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel=e%23ephemeral")
    assert stats(topic, "e#ephemeral")["client_count"] == 0
    wire = connect()
    wire.subscribe(topic, "e#ephemeral")
    wire.close()
    wait_until(lambda: stats(topic)["channels"] == [], "the channel is gone")


def test_ephemeral_topic_goes_with_its_last_channel(nsqd, connect, topic):
    name = f"{topic}#ephemeral"
    wire = connect()
    wire.subscribe(name, "e#ephemeral")
    wire.close()
    query = f"/stats?format=json&topic={topic}%23ephemeral"
    wait_until(lambda: nsqd.get(query)["topics"] is None, "the topic is gone")


def test_durable_channel_keeps_ephemeral_topic(nsqd, connect, topic):
    name, escaped = f"{topic}#ephemeral", f"{topic}%23ephemeral"
    durable, fleeting = connect(), connect()
    durable.subscribe(name, "durable")
    fleeting.subscribe(name, "e#ephemeral")
    durable.close()
    fleeting.close()

    def channels():
        (found,) = nsqd.get(f"/stats?format=json&topic={escaped}")["topics"]
        return [(item["channel_name"], item["client_count"]) for item in found["channels"]]

    wait_until(lambda: channels() == [("durable", 0)], "only the durable channel is left")
    nsqd.post(f"/channel/delete?topic={escaped}&channel=durable")
    assert nsqd.get(f"/stats?format=json&topic={escaped}")["topics"] is None


def test_ephemeral_channel_drops_what_is_beyond_memory_limit(cluster, connect):
    nsqd = cluster.nsqd("--mem-queue-size=10")
    fleeting, durable, producer = connect(nsqd), connect(nsqd), connect(nsqd)
    fleeting.subscribe("t", "e#ephemeral")
    durable.subscribe("t", "durable")
    producer.publish("t", *[b"%d" % n for n in range(30)])

    def depths():
        (found,) = nsqd.get("/stats?format=json")["topics"]
        return {c["channel_name"]: c["depth"] for c in found["channels"]}

    wait_until(lambda: depths() == {"durable": 30, "e#ephemeral": 10}, "all have gone on to the channels")
    durable.send(rdy(100))
    bodies = [b"%d" % n for n in range(30)]
    assert in_order((message.body for message in durable.messages(30)), key=int) == bodies
    fleeting.send(rdy(100))
    kept = [message.body for message in fleeting.messages(10)]
    assert kept == bodies[:10] if beside.OURS else set(kept) < set(bodies)
    fleeting.quiet()


# --- depth


def depths_of_channel(nsqd):
    (found,) = nsqd.get("/stats?format=json")["topics"]
    return found["channels"][0]["depth"], found["channels"][0]["backend_depth"]


def in_order(bodies, key=None):
    """The bodies in the order in which they came; sorted for the original, which has no order."""
    return list(bodies) if beside.OURS else sorted(bodies, key=key)


def test_memory_is_bounded_and_what_is_beyond_it_is_read_back_from_disk(cluster, connect):
    nsqd = cluster.nsqd("--mem-queue-size=10", "--max-bytes-per-file=20000")
    producer, consumer = connect(nsqd), connect(nsqd)
    bodies = [b"%04d" % n + b"x" * 500 for n in range(300)]
    for start in range(0, 300, 10):
        producer.send(mpub("t", *bodies[start : start + 10]))
        producer.ok()
    assert consumer.ask(sub("t", "ch")) == b"OK"
    wait_until(lambda: depths_of_channel(nsqd) == (300, 290), "all have gone on to the channel")
    if beside.OURS:
        assert len(list(nsqd.folder.glob("t.topic/*.log"))) > 3
    consumer.send(rdy(7))
    received = []
    for _ in bodies:
        message = consumer.message()
        received.append(message.body)
        consumer.send(fin(message))
    assert in_order(received) == bodies
    consumer.quiet()


def test_messages_are_served_from_disk_without_memory_queue(cluster, connect):
    nsqd = cluster.nsqd("--mem-queue-size=0")
    producer, consumer = connect(nsqd), connect(nsqd)
    consumer.subscribe("t")
    bodies = [b"%d" % n for n in range(500)]
    producer.send(mpub("t", *bodies[:400]), *[pub("t", body) for body in bodies[400:]])
    producer.ok(101)
    wait_until(lambda: depths_of_channel(nsqd) == (500, 500), "all have gone on to the channel")
    consumer.send(rdy(50))
    received = []
    while len(received) < 500:
        message = consumer.message()
        received.append(message.body)
        consumer.send(fin(message))
    assert in_order(received, key=int) == bodies
    producer.publish("t", b"to a waiting consumer")
    assert consumer.message().body == b"to a waiting consumer"
