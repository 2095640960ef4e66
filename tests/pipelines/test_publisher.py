"""Publishing from an executor: to all nsqds in turn, except those that are away."""

import os
import pickle
import signal
import socket
import threading
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from bench.ports import free_port
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.sink.outgoing import Outgoing, outgoing
from pyspark_nsq.sink.publisher import Publisher
from pyspark_nsq.sink.writer import NsqWriter
from pyspark_nsq.source.errors import SourceError
from tests.pipelines.conftest import Nodes, bounds, started_later
from tests.support.nsqd_http import channel_stats, set_policy
from tests.support.waiting import wait_until

BODY = StructType().add("body", "binary")
WITH_ID = StructType().add("body", "binary").add("dedup_id", "string")


def sink(**given):
    return SinkOptions.parse({"retryTimeout": "0", **given})


@contextmanager
def publisher(turn=0, **given):
    publishing = Publisher(sink(**given), turn)
    try:
        yield publishing
    finally:
        publishing.close()


def mpub(*bodies, topic):
    content = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    return Outgoing(topic, len(bodies).to_bytes(4, "big") + content, len(bodies))


def count(nsqd, topic):
    return sum(end - start for start, end in bounds(nsqd, topic)["extents"])


def counts(nodes, topic):
    return [count(nsqd, topic) for nsqd in nodes.nsqds]


def ids(number):
    """Rows with ids."""
    return pa.RecordBatch.from_pydict({"body": [b"x"] * number, "dedup_id": [f"{n}" for n in range(number)]})


def deduplicate(topic, *nsqds):
    for nsqd in nsqds:
        set_policy(nsqd, f"^{topic}$", name=topic, dedup_window="1h")
        nsqd.post(f"/topic/create?topic={topic}")


@contextmanager
def not_listed(nodes, nsqd):
    """The nsqd is down and not listed at first, and starts after a while."""
    others = len(nodes.nsqds) - 1
    nsqd.stop()
    wait_until(lambda: len(nodes.lookupd.get("/nodes")["producers"]) == others, "it is not listed")
    with started_later(nsqd):
        yield


@pytest.fixture
def alone(cluster):
    """A cluster with a single nsqd."""
    return Nodes(cluster, 1)


# --- turns


@pytest.mark.parametrize("down", [False, True], ids=["one nsqlookupd", "one is down"])
def test_listed_nsqds_take_turns(nodes, topic, down):
    addresses = [f"127.0.0.1:{free_port()}"] * down + [nodes.lookupd.http_address]
    # An nsqlookupd that is down is not awaited while another one lists nsqds.
    with publisher(lookupdHttpAddresses=",".join(addresses), retryTimeout="3600") as publishing:
        for _ in range(4):
            publishing.publish(mpub(b"a", b"b", topic=topic))

    assert counts(nodes, topic) == [4, 4]
    assert (publishing.messages, publishing.resent) == (8, 0)


def test_deferred_message_is_published_by_itself(nodes, topic):
    nsqd = nodes.nsqds[0]
    nsqd.create(topic, "c")
    with publisher(nsqdHttpAddresses=nsqd.http_address) as publishing:
        publishing.publish(Outgoing(topic, b"later", 1, 60_000))

    # A new topic holds its messages until nsqlookupd has named its channels.
    wait_until(lambda: channel_stats(nsqd, topic, "c")["deferred_count"] == 1, "it is deferred")


def test_frozen_nsqd_is_awaited_once_and_dead_one_is_skipped(fragile, topic):
    away, there = fragile.nsqds
    addresses = f"{away.http_address},{there.http_address}"
    with publisher(nsqdHttpAddresses=addresses, requestTimeout="1") as publishing:
        os.kill(away.pid, signal.SIGSTOP)
        for _ in range(10):
            publishing.publish(mpub(b"a", b"b", topic=topic))
    # The messages of the request without an answer.
    assert publishing.resent == 2
    away.kill()
    with publisher(nsqdHttpAddresses=addresses) as publishing:
        for _ in range(4):
            publishing.publish(mpub(b"c", topic=topic))

    assert count(there, topic) == 24
    assert (publishing.messages, publishing.resent) == (4, 0)


def test_message_without_answer_of_dying_nsqd_counts_as_sent_again(topic):
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
    with publisher(nsqdHttpAddresses=f"127.0.0.1:{listener.getsockname()[1]}") as publishing:
        publishing.publish(mpub(b"a", topic=topic))
        assert publishing.resent == 0
        with pytest.raises(SourceError, match="connection refused"):
            publishing.publish(mpub(b"b", b"c", topic=topic))
    nsqd.join()

    assert (publishing.messages, publishing.resent) == (1, 2)


@pytest.mark.parametrize("lookupd_dies", [False, True])
def test_only_nsqd_is_awaited_while_it_is_not_listed(alone, topic, lookupd_dies):
    address = alone.lookupd.http_address
    with publisher(lookupdHttpAddresses=address, retryTimeout="30") as publishing:
        publishing.publish(mpub(b"a", topic=topic))
        with not_listed(alone, alone.nsqds[0]):
            if lookupd_dies:
                alone.lookupd.kill()
            publishing.publish(mpub(b"b", topic=topic))

    assert counts(alone, topic) == [2]


# --- ids


def test_republished_id_is_stored_once(nodes, topic):
    deduplicate(topic, *nodes.nsqds)
    for turn in range(3):
        with publisher(turn, lookupdHttpAddresses=nodes.lookupd.http_address) as publishing:
            for one in outgoing(ids(200), topic, 1 << 20):
                publishing.publish(one)

    assert sum(counts(nodes, topic)) == 200
    assert min(counts(nodes, topic)) > 0


def test_id_has_the_same_nsqd_for_each_order_of_nsqlookupds(cluster, topic):
    lookupds = [cluster.nsqlookupd() for _ in range(2)]
    nsqds = [cluster.nsqd(lookupds=[lookupd]) for lookupd in lookupds]
    for lookupd in lookupds:
        wait_until(lambda one=lookupd: one.get("/nodes")["producers"], "it is registered")
    deduplicate(topic, *nsqds)
    addresses = [lookupd.http_address for lookupd in lookupds]
    for order in (addresses, addresses[::-1]):
        with publisher(lookupdHttpAddresses=",".join(order)) as publishing:
            for one in outgoing(ids(50), topic, 1 << 20):
                publishing.publish(one)

    assert sum(count(nsqd, topic) for nsqd in nsqds) == 50
    assert all(count(nsqd, topic) for nsqd in nsqds)


@pytest.mark.parametrize("who", ["publisher", "later task"])
def test_message_with_id_waits_for_its_nsqd_that_is_not_listed(fragile, topic, who):
    deduplicate(topic, *fragile.nsqds)
    options = sink(lookupdHttpAddresses=fragile.lookupd.http_address, topic=topic, retryTimeout="30")
    publishing = Publisher(options, 0)
    # A later task gets the nsqds from the driver.
    task = pickle.dumps(NsqWriter(options, WITH_ID, overwrite=False))
    found = []
    for state in (nullcontext(), not_listed(fragile, fragile.nsqds[0])):
        with state:
            if who == "publisher":
                for one in outgoing(ids(50), topic, 1 << 20):
                    publishing.publish(one)
            else:
                pickle.loads(task).write(iter([ids(50)]))
        found.append(counts(fragile, topic))
    publishing.close()

    assert found[0] == found[1]
    assert sum(found[0]) == 50
    assert min(found[0]) > 0


def test_ids_are_not_assigned_while_nsqlookupd_does_not_answer(nodes, topic):
    away = f"127.0.0.1:{free_port()}"
    options = sink(lookupdHttpAddresses=f"{away},{nodes.lookupd.http_address}", topic=topic)
    NsqWriter(options, BODY, overwrite=False)
    with pytest.raises(SourceError, match=f"uncertain: .*{away}"):
        NsqWriter(options, WITH_ID, overwrite=False)


def test_dedup_id_without_dedup_window_is_refused(nodes, topic):
    first, second = nodes.nsqds
    deduplicate(topic, first)
    options = sink(lookupdHttpAddresses=nodes.lookupd.http_address, topic=topic)
    with pytest.raises(
        SourceError, match=f"nsqd {second.http_address} has no policy with a dedup_window for"
    ):
        NsqWriter(options, WITH_ID, overwrite=False)
    deduplicate(topic, second)
    NsqWriter(options, WITH_ID, overwrite=False)


@pytest.mark.parametrize(("schema", "rows"), [(BODY, ids(1).select(["body"])), (WITH_ID, ids(1))])
def test_task_that_begins_while_no_nsqd_is_listed_waits_for_one(alone, topic, schema, rows):
    options = sink(lookupdHttpAddresses=alone.lookupd.http_address, topic=topic, retryTimeout="30")
    deduplicate(topic, *alone.nsqds)
    with not_listed(alone, alone.nsqds[0]):
        NsqWriter(options, schema, overwrite=False).write(iter([rows]))

    assert counts(alone, topic) == [1]


# --- refusals


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
    addresses = f"{crowded.http_address},{roomy.http_address}"
    with publisher(nsqdHttpAddresses=addresses) as publishing, full(crowded, topic):
        for _ in range(4):
            publishing.publish(mpub(b"a", topic=topic))

    assert counts(nodes, topic) == [1, 4]


def test_topic_that_is_full_everywhere_is_named_or_awaited(nodes, topic):
    nsqd = nodes.nsqds[0]
    with full(nsqd, topic):
        refused = pytest.raises(SourceError, match=r"within 0 s.*TOPIC_FULL")
        with refused, publisher(nsqdHttpAddresses=nsqd.http_address) as impatient:
            impatient.publish(mpub(b"a", topic=topic))
        with publisher(nsqdHttpAddresses=nsqd.http_address, retryTimeout="30") as patient:
            patient.publish(mpub(b"a", topic=topic))

    assert count(nsqd, topic) == 2


def test_message_with_id_waits_for_room_in_its_own_nsqd(nodes, topic):
    addresses = ",".join(nsqd.http_address for nsqd in nodes.nsqds)
    found = []
    for name in (topic, f"{topic}-again"):
        state = full(nodes.nsqds[0], name) if found else nullcontext()
        with publisher(nsqdHttpAddresses=addresses, retryTimeout="30") as publishing, state:
            for one in outgoing(ids(50), name, 1 << 20):
                publishing.publish(one)
        found.append(counts(nodes, name))

    assert found[1] == [found[0][0] + 1, found[0][1]]


def test_body_that_nsqd_refuses_is_named_before_its_batch_is_sent(cluster, topic):
    nodes = Nodes(cluster, 2, "--max-msg-size=1000")
    options = sink(lookupdHttpAddresses=nodes.lookupd.http_address, topic=topic)
    writer = NsqWriter(options, BODY, overwrite=False)
    for body, sentence in (
        (b"", "the body of row 3 of a partition is empty"),
        (b"x" * 1001, "the body of row 3 of a partition has 1001 bytes, above the 1000 of nsqd"),
    ):
        batches = [pa.RecordBatch.from_pydict({"body": [b"a", one]}) for one in (b"x" * 1000, body)]
        with pytest.raises(SourceError, match=sentence):
            writer.write(iter(batches))
    for nsqd in nodes.nsqds:
        nsqd.post(f"/topic/create?topic={topic}")
    assert sum(counts(nodes, topic)) == 4


def test_refused_request_is_named_without_wait(nodes, topic):
    address = nodes.nsqds[0].http_address
    refused = pytest.raises(SourceError, match="413 Request Entity Too Large")
    with refused, publisher(nsqdHttpAddresses=address, retryTimeout="3600") as publishing:
        publishing.publish(mpub(b"x" * 2_000_000, topic=topic))


def test_unreachable_or_unlisted_nsqds_are_named(cluster, topic):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceError) as caught, publisher(nsqdHttpAddresses=address) as publishing:
        publishing.publish(mpub(b"a", topic=topic))
    assert caught.value.sentence.startswith(
        f"no nsqd took the messages for topic '{topic}' within 0 s; the last answer: nsqd {address} "
    )
    assert "0 messages of this partition are published and will be published again" in str(caught.value)

    empty = cluster.nsqlookupd().http_address
    with pytest.raises(SourceError, match=f"no nsqd was found: {empty} lists no nsqd"):
        Publisher(sink(lookupdHttpAddresses=empty), 0)
