"""Messages that are removed before a query has read them end the query, unless it accepts loss."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.errors import DataLossError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.options import NodeOptions
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import Nodes, bounds, depth
from tests.pipelines.streams import ALL, bodies_of, log_name, positions, rows_of
from tests.support.waiting import wait_until
from tests.support.wire import Wire


def test_range_without_lost_messages_is_read_if_loss_is_accepted(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    nodes.nsqds[0].post(f"/topic/delete?topic={topic}")
    lenient = NsqStreamReader(nodes.parsed(topic, failOnDataLoss="false"))

    assert bodies_of(lenient, start, end) == [b"10", b"11", b"12"]


def test_emptied_channel_ends_earliest_query_that_was_down(nodes, topic, reader):
    start = reader.initialOffset()
    nodes.nsqds[0].post(
        f"/channel/commit?topic={topic}&channel=archive&sequence={start[log_name(topic, nodes.nsqds[0])] + 1}"
    )
    # Channel other keeps the messages, so the log does not show that they are not in the backlog of archive.
    nodes.nsqds[0].post(f"/channel/create?topic={topic}&channel=other&start=earliest")
    options = nodes.parsed(topic, startingOffsets="earliest")
    before = NsqStreamReader(options)
    end = before.latestOffset(before.initialOffset(), ReadMaxRows(2))
    nodes.nsqds[0].post(f"/channel/empty?topic={topic}&channel=archive")
    after = NsqStreamReader(options)

    with pytest.raises(
        DataLossError, match="an operator emptied it or made it again; 2 messages may be missing"
    ):
        after.latestOffset(json.loads(json.dumps(end)), ALL)


def test_earliest_query_behind_older_channel_continues_after_restart(nodes, topic, reader):
    start = reader.initialOffset()
    for nsqd in nodes.nsqds:
        nsqd.post(f"/channel/create?topic={topic}&channel=other&start=earliest")
        nsqd.post(
            f"/channel/commit?topic={topic}&channel=archive&sequence={start[log_name(topic, nsqd)] + 2}"
        )
    options = nodes.parsed(topic, startingOffsets="earliest")
    begin = NsqStreamReader(options).initialOffset()
    read = []
    while (end := (after := NsqStreamReader(options)).latestOffset(begin, ReadMaxRows(2))) != begin:
        read += bodies_of(after, begin, end)
        begin = json.loads(json.dumps(end))

    assert sorted(read) == [b"00", b"01", b"02", b"10", b"11", b"12"]
    assert list(positions(begin)) == list(positions(start))


def with_small_files(nsqd):
    nsqd.stop()
    nsqd.flags.append("--max-bytes-per-file=1500000")
    nsqd.start()
    return nsqd


def publish_large(nodes, nsqd, topic):
    """Forty large messages in two files, and a small one before them."""
    large = [b"%02d" % n + b"x" * 100_000 for n in range(20)]
    for bodies in ([b"held", *large], large):
        nodes.publish(nsqd, topic, *bodies)


def finish_all_but_one(nsqd, topic):
    with Wire(("127.0.0.1", nsqd.tcp_port)) as wire:
        wire.subscribe(topic, "other", ready=50)
        for message in wire.messages(41):
            if message.body != b"held":
                wire.send(b"FIN %b\n" % message.id)


def begin(options, kind):
    one = kind(options)
    return one.partitions() if kind is NsqBatchReader else one.initialOffset()


@pytest.mark.parametrize("kind", [NsqBatchReader, NsqStreamReader])
def test_given_position_of_removed_messages_is_loss(cluster, topic, caplog, kind):
    nodes = Nodes(cluster, 1)
    nsqd = with_small_files(nodes.nsqds[0])
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel=archive")
    publish_large(nodes, nsqd, topic)
    before = bounds(nsqd, topic)
    nsqd.post(f"/channel/commit?topic={topic}&channel=archive&sequence={before['end']}")

    def is_removed():
        # nsqd looks only at topics that have changed.
        nsqd.post(f"/channel/pause?topic={topic}&channel=archive")
        return bounds(nsqd, topic)["first"] > before["first"]

    wait_until(is_removed, "the first file is removed")

    def starting(position, **more):
        given = json.dumps({nsqd.http_address: position})
        return nodes.parsed(topic, startingOffsets=given, **more)

    first, end = bounds(nsqd, topic)["first"], before["end"]
    lost = f"but the log there is kept from {first} on only: what lies between is gone"
    with pytest.raises(DataLossError) as caught:
        begin(starting(before["first"]), kind)
    assert caught.value.sentence == (
        f"option startingOffsets has {before['first']} for nsqd {nsqd.http_address}, {lost} "
        "(failOnDataLoss=false continues with what there is)"
    )
    with pytest.raises(DataLossError, match=f"but the log there ends at {end}: its topic or its data was"):
        begin(starting(end + 1), kind)
    assert caplog.messages == []
    begin(starting(before["first"], failOnDataLoss="false"), kind)
    assert [text.endswith(lost) for text in caplog.messages] == [True]

    # Numbers continue higher after a restart; those between were never given to a message, and are no loss.
    nsqd.restart()
    nodes.publish(nsqd, topic, b"new")
    found = bounds(nsqd, topic)
    assert found["first"] <= end < found["extents"][-1][0]
    assert begin(starting(end), kind)


def compact(nsqd, topic):
    """Restart nsqd and wait until it has compacted the sparse file."""
    # An nsqd checks its files soon after its start.
    nsqd.stop()
    nsqd.start()
    first, end = bounds(nsqd, topic)["first"], bounds(nsqd, topic)["end"]

    def is_compacted():
        # nsqd looks only at topics that have changed.
        nsqd.post(f"/channel/pause?topic={topic}&channel=other")
        with NodeConnection(nsqd.http_address, NodeOptions(), 0) as node:
            answer = node.get("/log/range", [("topic", topic), ("start", str(first)), ("end", str(end))])
        return "compacted" in answer.headers.get("X-Nsq-Gaps", "")

    wait_until(is_compacted, "the segment is compacted", 60)


def test_messages_compacted_before_query_began_are_no_loss(cluster, topic):
    """The first nsqd keeps few messages of a file that another channel has nearly finished."""
    nodes = Nodes(cluster)
    nsqd, stays = with_small_files(nodes.nsqds[0]), nodes.nsqds[1]
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel=other")
    publish_large(nodes, nsqd, topic)
    finish_all_but_one(nsqd, topic)
    compact(nsqd, topic)
    nodes.listed(nsqd, topic)

    def first_batch(start=None, **options):
        reader = NsqStreamReader(nodes.parsed(topic, **options))
        start = start or reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        return reader, end, bodies_of(reader, start, end)

    _, _, found = first_batch(startingOffsets="earliest")
    assert b"held" in found
    assert len(found) < 41

    # A query that the nsqd joins.
    nodes.publish(stays, topic, b"a")
    only = {"lookupdHttpAddresses": "", "nsqdHttpAddresses": stays.http_address}
    start = NsqStreamReader(nodes.parsed(topic, channel="joined", **only)).initialOffset()
    assert list(positions(start)) == [log_name(topic, stays)]
    _, joined, _ = first_batch(start, channel="joined")
    assert log_name(topic, nsqd) in joined
    assert b"held" in first_batch(joined, channel="joined")[2]

    # A query on the channel of the consumer, which finished messages behind one that it still holds.
    reader, end, found = first_batch(channel="other")
    assert b"held" in found
    assert len(found) < 42
    reader.commit(end)
    assert depth(nsqd, topic, "other") == 0


def test_used_channel_keeps_messages_that_query_will_read(nodes, topic, reader):
    """A consumer has finished the second message and holds the first; others may finish all before it."""
    nsqd = nodes.nsqds[0]
    start = reader.initialOffset()
    with Wire(("127.0.0.1", nsqd.tcp_port)) as wire:
        wire.subscribe(topic, "archive", ready=3)
        _, second, _ = wire.messages(3)
        wire.send(b"FIN %b\n" % second.id)
        wait_until(lambda: depth(nsqd, topic) == 0, "all are on their way")
    wait_until(lambda: depth(nsqd, topic) == 2, "two are pending again")
    again = NsqStreamReader(nodes.parsed(topic))

    assert again.initialOffset() == start
    assert depth(nsqd, topic) == 3


def test_messages_emptied_and_compacted_before_read_are_named(cluster, topic):
    """The loss comes between plan and read of a batch, in a query that accepts messages finished earlier."""
    nodes = Nodes(cluster)
    nsqd = with_small_files(nodes.nsqds[0])
    publish_large(nodes, nsqd, topic)
    reader = NsqStreamReader(nodes.parsed(topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    nsqd.post(f"/channel/create?topic={topic}&channel=other&start=earliest")
    finish_all_but_one(nsqd, topic)
    nsqd.post(f"/channel/empty?topic={topic}&channel=archive")
    compact(nsqd, topic)

    with pytest.raises(DataLossError, match=r"has lost messages of topic .*\(compacted\)"):
        rows_of(reader, start, end)


def test_removed_channel_is_named_when_batch_is_acknowledged(nodes, topic, reader):
    end = reader.latestOffset(reader.initialOffset(), ALL)
    nodes.nsqds[0].post(f"/channel/delete?topic={topic}&channel=archive")
    with pytest.raises(DataLossError, match=r"channel 'archive' was removed from nsqd .* while it was read"):
        reader.commit(end)
