"""Publishing from an executor: to all nsqds in turn, except those that are away."""

import os
import pickle
import signal
import socket
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from bench.ports import free_port
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.sink.outgoing import Outgoing, outgoing
from pyspark_nsq.sink.publisher import Publisher
from pyspark_nsq.sink.writer import NsqWriter
from pyspark_nsq.source.errors import SourceError
from tests.pipelines.conftest import Nodes, bounds
from tests.support.nsqd_http import set_policy
from tests.support.waiting import wait_until


def publisher(**given):
    return Publisher(SinkOptions.parse({"retryTimeout": "0", **given}), 0)


def mpub(*bodies, topic):
    content = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    return Outgoing(topic, len(bodies).to_bytes(4, "big") + content, len(bodies))


def count(nsqd, topic):
    return sum(end - start for start, end in bounds(nsqd, topic)["extents"])


def test_nsqds_that_nsqlookupd_lists_take_turns(nodes, topic):
    publishing = publisher(lookupdHttpAddresses=nodes.lookupd.http_address)
    for _ in range(4):
        publishing.publish(mpub(b"a", b"b", topic=topic))
    publishing.close()

    assert [count(nsqd, topic) for nsqd in nodes.nsqds] == [4, 4]
    assert (publishing.messages, publishing.resent) == (8, 0)


def test_deferred_message_is_published_as_one(nodes, topic):
    publishing = publisher(nsqdHttpAddresses=nodes.nsqds[0].http_address)
    nodes.nsqds[0].post(f"/topic/create?topic={topic}")
    nodes.nsqds[0].post(f"/channel/create?topic={topic}&channel=c")
    publishing.publish(Outgoing(topic, b"later", 1, 60_000))
    publishing.close()

    def deferred():
        (found,) = nodes.nsqds[0].get(f"/stats?format=json&topic={topic}")["topics"]
        return found["channels"][0]["deferred_count"]

    # A new topic holds its messages until nsqlookupd has named its channels.
    wait_until(lambda: deferred() == 1, "it is deferred in its channel")


def test_unavailable_nsqd_is_skipped(cluster, topic):
    nodes = Nodes(cluster)
    away, there = nodes.nsqds
    publishing = publisher(nsqdHttpAddresses=f"{away.http_address},{there.http_address}")
    publishing.publish(mpub(b"a", topic=topic))
    publishing.publish(mpub(b"b", topic=topic))
    away.kill()
    for _ in range(4):
        publishing.publish(mpub(b"c", topic=topic))
    publishing.close()

    assert count(there, topic) == 5
    assert publishing.messages == 6


def test_frozen_nsqd_is_waited_for_once(fragile, topic):
    frozen, there = fragile.nsqds
    publishing = publisher(
        nsqdHttpAddresses=f"{frozen.http_address},{there.http_address}", requestTimeout="5"
    )
    os.kill(frozen.pid, signal.SIGSTOP)
    for _ in range(10):
        publishing.publish(mpub(b"a", b"b", topic=topic))
    publishing.close()

    assert count(there, topic) == 20
    # The requests without an answer.
    assert publishing.resent == 2


def test_message_may_be_there_twice_if_nsqd_dies_before_its_answer(topic):
    """The connection was open, so the request is sent again. Then the node is unreachable."""
    listener = socket.create_server(("127.0.0.1", 0))

    def take_two():
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as requests:
            for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK", b""):
                length = 0
                while (line := requests.readline().lower()) != b"\r\n":
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                requests.read(length)
                if not answer:
                    listener.close()
                connection.sendall(answer)

    nsqd = threading.Thread(target=take_two)
    nsqd.start()
    publishing = publisher(nsqdHttpAddresses=f"127.0.0.1:{listener.getsockname()[1]}")
    publishing.publish(mpub(b"a", topic=topic))
    assert publishing.resent == 0
    with pytest.raises(SourceError, match="connection refused"):
        publishing.publish(mpub(b"b", b"c", topic=topic))
    publishing.close()
    nsqd.join()

    assert (publishing.messages, publishing.resent) == (1, 2)


def test_when_no_nsqd_takes_it_the_last_reason_is_told(topic):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceError) as caught:
        publisher(nsqdHttpAddresses=address).publish(mpub(b"a", topic=topic))

    assert caught.value.sentence.startswith(
        f"no nsqd took the messages for topic '{topic}' within 0 s; the last answer: nsqd {address} "
    )
    assert "0 messages of this partition are published and will be published again" in str(caught.value)


def test_republished_id_is_stored_once(nodes, topic):
    for nsqd in nodes.nsqds:
        set_policy(nsqd, f"^{topic}$", name=topic, dedup_window="1h")
        nsqd.post(f"/topic/create?topic={topic}")
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 200, "dedup_id": [f"{n}" for n in range(200)]})
    for turn in range(3):
        publishing = Publisher(SinkOptions.parse({"lookupdHttpAddresses": nodes.lookupd.http_address}), turn)
        for one in outgoing(batch, topic, 1 << 20):
            publishing.publish(one)
        publishing.close()

    counts = [count(nsqd, topic) for nsqd in nodes.nsqds]
    assert sum(counts) == 200
    assert min(counts) > 0


def test_id_has_the_same_nsqd_whichever_nsqlookupd_is_asked_first(cluster, topic):
    lookupds = [cluster.nsqlookupd() for _ in range(2)]
    nsqds = [cluster.nsqd(lookupds=[lookupd]) for lookupd in lookupds]
    for lookupd, nsqd in zip(lookupds, nsqds, strict=True):
        wait_until(lambda one=lookupd: one.get("/nodes")["producers"], "it is registered")
        set_policy(nsqd, f"^{topic}$", name=topic, dedup_window="1h")
        nsqd.post(f"/topic/create?topic={topic}")
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 50, "dedup_id": [f"{n}" for n in range(50)]})
    addresses = [lookupd.http_address for lookupd in lookupds]
    for order in (addresses, addresses[::-1]):
        publishing = publisher(lookupdHttpAddresses=",".join(order))
        for one in outgoing(batch, topic, 1 << 20):
            publishing.publish(one)
        publishing.close()

    assert sum(count(nsqd, topic) for nsqd in nsqds) == 50
    assert all(count(nsqd, topic) for nsqd in nsqds)


def test_nsqlookupd_that_is_down_is_not_waited_for_when_another_lists_nsqds(nodes, topic):
    addresses = f"127.0.0.1:{free_port()},{nodes.lookupd.http_address}"
    began = time.monotonic()
    publishing = publisher(lookupdHttpAddresses=addresses, retryTimeout="30")
    publishing.publish(mpub(b"a", topic=topic))
    publishing.close()

    assert time.monotonic() - began < 15


def test_message_with_id_waits_for_its_nsqd(cluster, topic):
    nodes = Nodes(cluster)
    addresses = ",".join(nsqd.http_address for nsqd in nodes.nsqds)
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 50, "dedup_id": [f"{n}" for n in range(50)]})
    nodes.nsqds[0].kill()
    publishing = publisher(nsqdHttpAddresses=addresses)
    with pytest.raises(SourceError, match=f"the last answer: .*{nodes.nsqds[0].http_address}"):
        for one in outgoing(batch, topic, 1 << 20):
            publishing.publish(one)
    publishing.close()


def deduplicated(nodes, topic):
    for nsqd in nodes.nsqds:
        set_policy(nsqd, f"^{topic}$", name=topic, dedup_window="1h")
        nsqd.post(f"/topic/create?topic={topic}")
    return pa.RecordBatch.from_pydict({"body": [b"x"] * 50, "dedup_id": [f"{n}" for n in range(50)]})


@contextmanager
def not_listed(nodes, nsqd):
    """It is away at first; a thread starts it again after a while."""
    nsqd.stop()
    wait_until(lambda: len(nodes.lookupd.get("/nodes")["producers"]) == 1, "it is not listed")
    back = threading.Timer(1, nsqd.start)
    back.start()
    yield
    back.join()


def test_message_with_id_waits_for_its_nsqd_though_it_is_not_listed_meanwhile(fragile, topic):
    batch = deduplicated(fragile, topic)
    publishing = publisher(lookupdHttpAddresses=fragile.lookupd.http_address, retryTimeout="30")
    counts = []
    for state in (nullcontext(), not_listed(fragile, fragile.nsqds[0])):
        with state:
            for one in outgoing(batch, topic, 1 << 20):
                publishing.publish(one)
        counts.append([count(nsqd, topic) for nsqd in fragile.nsqds])
    publishing.close()

    assert counts[0] == counts[1]
    assert sum(counts[0]) == 50
    assert min(counts[0]) > 0


def test_task_that_begins_while_nsqd_is_not_listed_knows_it_from_driver(fragile, topic):
    batch = deduplicated(fragile, topic)
    options = SinkOptions.parse(
        {"lookupdHttpAddresses": fragile.lookupd.http_address, "topic": topic, "retryTimeout": "30"}
    )
    schema = StructType().add("body", "binary").add("dedup_id", "string")
    written = pickle.dumps(NsqWriter(options, schema, overwrite=False))
    counts = []
    for state in (nullcontext(), not_listed(fragile, fragile.nsqds[0])):
        with state:
            pickle.loads(written).write(iter([batch]))
        counts.append([count(nsqd, topic) for nsqd in fragile.nsqds])

    assert counts[0] == counts[1]
    assert sum(counts[0]) == 50


def test_ids_are_not_assigned_while_nsqlookupd_does_not_answer(nodes, topic):
    away = f"127.0.0.1:{free_port()}"
    options = SinkOptions.parse(
        {
            "lookupdHttpAddresses": f"{away},{nodes.lookupd.http_address}",
            "topic": topic,
            "retryTimeout": "0",
        }
    )
    schema = StructType().add("body", "binary")
    NsqWriter(options, schema, overwrite=False)
    with pytest.raises(SourceError, match=f"uncertain: .*{away}"):
        NsqWriter(options, schema.add("dedup_id", "string"), overwrite=False)


@pytest.fixture
def alone(cluster):
    """A cluster with a single nsqd."""
    return Nodes(cluster, 1)


@contextmanager
def gone(nodes):
    """The only nsqd is away at first, and listed by none; a thread starts it again after a while."""
    (nsqd,) = nodes.nsqds
    nsqd.stop()
    wait_until(lambda: not nodes.lookupd.get("/nodes")["producers"], "it is not listed")
    back = threading.Timer(1, nsqd.start)
    back.start()
    yield
    back.join()


def test_only_nsqd_is_awaited_while_unlisted(alone, topic):
    publishing = publisher(lookupdHttpAddresses=alone.lookupd.http_address, retryTimeout="30")
    publishing.publish(mpub(b"a", topic=topic))
    with gone(alone):
        publishing.publish(mpub(b"b", topic=topic))
    publishing.close()

    assert count(alone.nsqds[0], topic) == 2


def test_returned_nsqd_gets_messages_although_no_nsqlookupd_answers(alone, topic):
    publishing = publisher(lookupdHttpAddresses=alone.lookupd.http_address, retryTimeout="30")
    publishing.publish(mpub(b"a", topic=topic))
    with gone(alone):
        alone.lookupd.kill()
        publishing.publish(mpub(b"b", topic=topic))
    publishing.close()

    assert count(alone.nsqds[0], topic) == 2


@pytest.mark.parametrize("columns", [{"body": [b"a"]}, {"body": [b"a"], "dedup_id": ["1"]}])
def test_task_that_begins_while_no_nsqd_is_listed_waits_for_one(alone, topic, columns):
    options = SinkOptions.parse(
        {"lookupdHttpAddresses": alone.lookupd.http_address, "topic": topic, "retryTimeout": "30"}
    )
    schema = StructType().add("body", "binary")
    schema = schema.add("dedup_id", "string") if "dedup_id" in columns else schema
    set_policy(alone.nsqds[0], f"^{topic}$", name=topic, dedup_window="1h")
    with gone(alone):
        NsqWriter(options, schema, overwrite=False).write(iter([pa.RecordBatch.from_pydict(columns)]))

    assert count(alone.nsqds[0], topic) == 1


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body of row 3 of a partition is empty"),
        (b"x" * 1001, r"the body of row 3 of a partition has 1001 bytes, above the 1000 of nsqd"),
    ],
)
def test_body_that_nsqd_refuses_is_named_before_its_batch_is_sent(cluster, topic, body, sentence):
    nodes = Nodes(cluster, 2, "--max-msg-size=1000")
    options = SinkOptions.parse({"lookupdHttpAddresses": nodes.lookupd.http_address, "topic": topic})
    writer = NsqWriter(options, StructType().add("body", "binary"), overwrite=False)
    batches = [pa.RecordBatch.from_pydict({"body": [b"a", one]}) for one in (b"x" * 1000, body)]

    with pytest.raises(SourceError, match=sentence):
        writer.write(iter(batches))
    for nsqd in nodes.nsqds:
        nsqd.post(f"/topic/create?topic={topic}")
    assert sum(count(nsqd, topic) for nsqd in nodes.nsqds) == 2


def test_dedup_id_without_dedup_window_is_refused(fragile, topic):
    first, second = fragile.nsqds
    set_policy(first, f"^{topic}$", name=topic, dedup_window="1h")
    options = SinkOptions.parse({"lookupdHttpAddresses": fragile.lookupd.http_address, "topic": topic})
    schema = StructType().add("body", "binary").add("dedup_id", "string")

    with pytest.raises(
        SourceError, match=f"nsqd {second.http_address} has no policy with a dedup_window for"
    ):
        NsqWriter(options, schema, overwrite=False)
    set_policy(second, f"^{topic}$", name=topic, dedup_window="1h")
    NsqWriter(options, schema, overwrite=False)


@contextmanager
def full(nsqd, topic):
    """The topic has no room at first; a thread makes some after a while."""
    set_policy(nsqd, f"^{topic}$", name=f"{topic}-full", max_depth=1, when_full="reject")
    nsqd.post(f"/pub?topic={topic}", b"x")
    assert nsqd.request("POST", f"/pub?topic={topic}", b"x")[0] == 429
    room = threading.Timer(1, nsqd.request, ("DELETE", f"/policies?name={topic}-full"))
    room.start()
    yield
    room.join()


def test_nsqd_whose_topic_is_full_is_passed_over(nodes, topic):
    crowded, roomy = nodes.nsqds
    publishing = publisher(nsqdHttpAddresses=f"{crowded.http_address},{roomy.http_address}")
    with full(crowded, topic):
        for _ in range(4):
            publishing.publish(mpub(b"a", topic=topic))
    publishing.close()

    assert (count(crowded, topic), count(roomy, topic)) == (1, 4)


@pytest.mark.parametrize("group", [None, 3])
def test_when_topic_is_full_everywhere_there_is_waited_for_room(nodes, topic, group):
    crowded = nodes.nsqds[0]
    publishing = publisher(nsqdHttpAddresses=crowded.http_address, retryTimeout="30")
    with full(crowded, topic):
        publishing.publish(replace(mpub(b"a", topic=topic), group=group))
    publishing.close()

    assert count(crowded, topic) == 2


def test_message_with_id_waits_for_room_in_its_own_nsqd(nodes, topic):
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 50, "dedup_id": [f"{n}" for n in range(50)]})
    addresses = ",".join(nsqd.http_address for nsqd in nodes.nsqds)
    counts = []
    for name in (topic, f"{topic}-again"):
        publishing = publisher(nsqdHttpAddresses=addresses, retryTimeout="30")
        with full(nodes.nsqds[0], name) if counts else nullcontext():
            for one in outgoing(batch, name, 1 << 20):
                publishing.publish(one)
        publishing.close()
        counts.append([count(nsqd, name) for nsqd in nodes.nsqds])

    assert counts[1] == [counts[0][0] + 1, counts[0][1]]


def test_topic_that_stays_full_is_named_after_a_while(nodes, topic):
    publishing = publisher(nsqdHttpAddresses=nodes.nsqds[0].http_address)
    with full(nodes.nsqds[0], topic), pytest.raises(SourceError, match=r"within 0 s.*TOPIC_FULL"):
        publishing.publish(mpub(b"a", topic=topic))
    publishing.close()


def test_oversized_message_is_named_immediately(nodes, topic):
    publishing = publisher(nsqdHttpAddresses=nodes.nsqds[0].http_address, retryTimeout="60")
    with pytest.raises(SourceError, match="413 Request Entity Too Large"):
        publishing.publish(mpub(b"x" * 2_000_000, topic=topic))
    publishing.close()


def test_nsqlookupd_with_empty_list_is_named(cluster):
    empty = cluster.nsqlookupd()
    with pytest.raises(SourceError, match=f"no nsqd was found: {empty.http_address} lists no nsqd"):
        publisher(lookupdHttpAddresses=empty.http_address)
