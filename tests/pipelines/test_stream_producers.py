"""nsqds and topics that join, die, come back or permanently disappear while a query runs."""

import pytest

from pyspark_nsq.source.errors import DataLossError
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import Nodes, _stream_reader, depth
from tests.pipelines.streams import ALL, bodies_of, log_name, positions
from tests.support.waiting import wait_until


def test_nsqd_that_joins_is_read_from_its_first_message(nodes, topic):
    first, second = nodes.nsqds
    nodes.publish(first, topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    # The second nsqd has the channel from the beginning, because nsqlookupd named it.
    nodes.publish(second, topic, b"b", b"c")
    joined = reader.latestOffset(start, ALL)
    end = reader.latestOffset(joined, ALL)

    assert list(positions(start)) == [log_name(topic, first)]
    assert bodies_of(reader, start, joined) == [b"a"]
    assert bodies_of(reader, joined, end) == [b"b", b"c"]


def test_topic_of_pattern_that_is_created_later_joins(nodes, topic):
    nodes.publish(nodes.nsqds[0], f"{topic}-a", b"a")
    reader = NsqStreamReader(nodes.parsed("", topicPattern=f"{topic}-.*"))
    start = reader.initialOffset()
    nodes.publish(nodes.nsqds[0], f"{topic}-b", b"new")
    joined = reader.latestOffset(start, ALL)

    assert bodies_of(reader, start, joined) == [b"a"]
    assert bodies_of(reader, joined, reader.latestOffset(joined, ALL)) == [b"new"]


def test_query_that_died_while_nsqd_joined_misses_none_of_its_messages(fragile, topic):
    first, second = fragile.nsqds
    fragile.publish(first, topic, b"a")
    start = NsqStreamReader(fragile.parsed(topic)).initialOffset()
    # The second nsqd gets the topic and two messages while nsqlookupd is away.
    fragile.lookupd.kill()
    second.post(f"/topic/create?topic={topic}")
    second.post(f"/channel/create?topic={topic}&channel=other")
    second.post(f"/mpub?topic={topic}", b"b\nc")
    fragile.lookupd.start()
    for nsqd in fragile.nsqds:
        fragile.listed(nsqd, topic)
    # The query creates the channel, and dies before Spark has noted where the log begins.
    NsqStreamReader(fragile.parsed(topic)).latestOffset(start, ALL)
    again = NsqStreamReader(fragile.parsed(topic))
    joined = again.latestOffset(start, ALL)

    assert bodies_of(again, joined, again.latestOffset(joined, ALL)) == [b"b", b"c"]


def test_query_that_accepts_loss_reads_other_nsqds_and_resumes_lost_one(fragile, topic, doomed):
    _, start, nsqd = doomed
    reader = NsqStreamReader(fragile.parsed(topic, failOnDataLoss="false"))
    nsqd.kill()
    without = reader.latestOffset(start, ALL)

    assert without[log_name(topic, nsqd)] == start[log_name(topic, nsqd)]
    assert bodies_of(reader, start, without) == [b"a", b"b"]

    nsqd.start()
    end = reader.latestOffset(without, ALL)

    assert bodies_of(reader, without, end) == [b"a", b"b"]
    # Messages that could not be acknowledged while the nsqd was away are acknowledged now.
    reader.latestOffset(end, ALL)
    assert depth(nsqd, topic) == 0


def test_batch_planned_with_removed_nsqd_is_finished_when_that_is_forgotten(fragile, topic, doomed):
    reader, start, nsqd = doomed
    end = reader.latestOffset(start, ALL)
    nsqd.kill()
    fragile.lookupd.post(f"/topic/tombstone?topic={topic}&node={nsqd.http_address}")
    once = NsqStreamReader(fragile.parsed(topic, forgetNsqds=nsqd.http_address))
    assert bodies_of(once, start, end) == [b"a", b"b"]
    without = once.latestOffset(end, ALL)

    assert list(positions(without)) == [log_name(topic, fragile.nsqds[0])]
    assert NsqStreamReader(fragile.parsed(topic)).latestOffset(without, ALL) == without


def test_nsqd_with_unread_messages_is_not_forgotten(nodes, topic, reader):
    start = reader.initialOffset()
    address = nodes.nsqds[0].http_address
    forgetful = NsqStreamReader(nodes.parsed(topic, forgetNsqds=address))
    with pytest.raises(DataLossError, match="which answers, and the query has not read 3 of its messages"):
        forgetful.latestOffset(start, ALL)

    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    assert f"{topic}@{address}" not in positions(forgetful.latestOffset(end, ALL))


def test_late_acknowledgement_at_decommissioned_nsqd_ends_no_query(cluster, topic, caplog, tmp_path):
    (tmp_path / "secret").write_text("s" * 64)
    secret = f"--cluster-secret-file={tmp_path / 'secret'}"
    lookupd = cluster.nsqlookupd("--reconnect-interval=1ms")
    target, node = (cluster.nsqd(secret, f"--node-id={number}") for number in (1, 2))
    nodes = Nodes.of(cluster, lookupd, [target, node])
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a", b"b")
    reader = _stream_reader(nodes.parsed(topic))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    node.post(f"/decommission?target={target.tcp_address}")
    wait_until(lambda: node.get("/decommission")["done"], "it is decommissioned", seconds=60)

    reader.commit(end)
    reader.commit(end)

    (warning,) = [one.getMessage() for one in caplog.records if "decommissioned" in one.getMessage()]
    assert warning.startswith(f"nsqd {node.http_address} was decommissioned before all stored messages")
