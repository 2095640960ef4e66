"""Producers that join, die, come back or permanently disappear while a query runs."""

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_nsq.source.errors import DataLossError
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import depth
from tests.pipelines.streams import ALL, bodies_of, log_name, positions, rows_of


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


def begin_unseen(fragile, topic):
    """The second nsqd gets the topic and two messages while nsqlookupd is away."""
    second = fragile.nsqds[1]
    fragile.lookupd.kill()
    second.post(f"/topic/create?topic={topic}")
    second.post(f"/channel/create?topic={topic}&channel=other")
    second.post(f"/mpub?topic={topic}", b"b\nc")
    fragile.lookupd.start()


def test_query_that_died_while_producer_joined_misses_nothing_of_it(fragile, topic):
    first = fragile.nsqds[0]
    fragile.publish(first, topic, b"a")
    reader = NsqStreamReader(fragile.parsed(topic))
    start = reader.initialOffset()
    begin_unseen(fragile, topic)
    for nsqd in fragile.nsqds:
        fragile.listed(nsqd, topic)
    # The query creates the channel, and dies before Spark has noted where the producer begins.
    reader.latestOffset(start, ALL)
    again = NsqStreamReader(fragile.parsed(topic))
    joined = again.latestOffset(start, ALL)

    assert bodies_of(again, joined, again.latestOffset(joined, ALL)) == [b"b", b"c"]


def test_run_with_available_now_ends_where_logs_ended_when_it_began(nodes, topic, reader):
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"later")
    read = []
    while (end := reader.latestOffset(start, ReadMaxRows(4))) != start:
        read += bodies_of(reader, start, end)
        start = end

    assert sorted(read) == [b"00", b"01", b"02", b"10", b"11", b"12"]
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [1, 1]


def test_producer_that_comes_while_available_now_runs_is_left_to_the_next_run(nodes, topic):
    first, second = nodes.nsqds
    nodes.publish(first, topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    nodes.publish(second, topic, b"b")
    end = reader.latestOffset(start, ALL)

    assert list(positions(end)) == [log_name(topic, first)]
    assert reader.latestOffset(end, ALL) == end


def test_query_that_accepts_loss_reads_the_other_producers_and_resumes_lost_one(fragile, topic, doomed):
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


def test_restarted_producer_is_awaited(fragile, topic, doomed):
    _, start, nsqd = doomed
    reader = NsqStreamReader(fragile.parsed(topic, retryTimeout="15"))
    nsqd.kill()
    nsqd.spawn()
    end = reader.latestOffset(start, ALL)

    assert len(rows_of(reader, start, end)) == 4


def test_removed_producer_is_forgotten_once(fragile, topic, doomed):
    reader, start, nsqd = doomed
    # The batch was planned with this nsqd, so it can never be finished.
    end = reader.latestOffset(start, ALL)
    nsqd.kill()
    fragile.lookupd.post(f"/topic/tombstone?topic={topic}&node={nsqd.http_address}")
    once = NsqStreamReader(fragile.parsed(topic, forgetNsqds=nsqd.http_address))

    assert bodies_of(once, start, end) == [b"a", b"b"]

    without = once.latestOffset(end, ALL)

    assert list(positions(without)) == [log_name(topic, fragile.nsqds[0])]
    assert NsqStreamReader(fragile.parsed(topic)).latestOffset(without, ALL) == without


def test_producer_that_has_something_to_read_is_not_forgotten(nodes, topic, reader):
    start = reader.initialOffset()
    address = nodes.nsqds[0].http_address
    forgetful = NsqStreamReader(nodes.parsed(topic, forgetNsqds=address))
    with pytest.raises(DataLossError, match="which answers, and the query has not read 3 of its messages"):
        forgetful.latestOffset(start, ALL)

    end = reader.latestOffset(start, ALL)
    reader.commit(end)

    assert f"{topic}@{address}" not in positions(forgetful.latestOffset(end, ALL))


def test_available_now_ends_though_nobody_was_known_when_it_began(fragile, topic, doomed):
    """The nsqlookupd was just restarted; the checkpoint knows the producers, and a publisher continues."""
    reader, start, _ = doomed
    end = reader.latestOffset(start, ALL)
    again = NsqStreamReader(fragile.parsed(topic))
    fragile.lookupd.kill()
    fragile.lookupd.start()
    again.prepareForTriggerAvailableNow()
    first = again.latestOffset(end, ALL)
    fragile.nsqds[0].post(f"/mpub?topic={topic}", b"later\nand later")

    assert again.latestOffset(first, ALL) == first
