"""The stream reader against real daemons, called as Spark calls it: order of calls, positions, repetition."""

import time

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import bounds, depth
from tests.pipelines.streams import ALL, bodies_of, log_name, positions, rows_of

# --- one batch after another


def test_batch_has_rows_with_their_origin_and_commit_acknowledges_them(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    rows = rows_of(reader, start, end)

    assert list(positions(start)) == sorted(log_name(topic, nsqd) for nsqd in nodes.nsqds)
    for number, nsqd in enumerate(nodes.nsqds):
        first = bounds(nsqd, topic)["first"]
        mine = [row for row in rows if row["nsqd"] == nsqd.http_address]
        assert [row["body"] for row in mine] == [b"%d%d" % (number, n) for n in range(3)]
        assert [row["sequence"] for row in mine] == [first, first + 1, first + 2]
        assert {(row["topic"], row["channel"], row["attempts"]) for row in mine} == {(topic, "archive", 1)}
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [3, 3]

    reader.commit(end)
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]


def test_batch_is_limited_and_its_lag_is_reported(nodes, topic, reader):
    start = reader.initialOffset()
    sizes, lags, depths = [], [], []
    while (end := reader.latestOffset(start, ReadMaxRows(4))) != start:
        sizes.append(len(rows_of(reader, start, end)))
        lags.append(reader.reportLatestOffset())
        depths.append([depth(nsqd, topic) for nsqd in nodes.nsqds])
        start = end

    assert sizes == [4, 2]
    # The next request acknowledges a batch.
    assert depths == [[3, 3], [1, 1]]
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]
    assert [one.pop("lag") for one in lags] == [2, 0]
    assert lags[0].pop("lags") == {log_name(topic, nsqd): 1 for nsqd in nodes.nsqds}
    assert lags[0] == positions(start)


def test_repeated_batch_is_the_same_under_changed_options(nodes, topic, reader):
    start = reader.initialOffset()
    many = NsqStreamReader(nodes.parsed(topic, minPartitions="6"))
    end = many.latestOffset(start, ALL)
    rows = rows_of(many, start, end)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"later")
    again = NsqStreamReader(nodes.parsed(topic, minPartitions="1"))

    assert len(many.partitions(start, end)) == 6
    assert len(rows) == 6
    assert [one.value for one in again.partitions(start, end)] == [
        one.value for one in many.partitions(start, end)
    ]
    assert rows_of(again, start, end) == rows
    assert reader.initialOffset() == start


# --- where a query starts


def test_new_query_starts_at_channel_position(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    reader.commit(end)
    # Older positions and the same again change nothing.
    again = NsqStreamReader(nodes.parsed(topic))
    again.commit(start)
    again.commit(end)
    start = again.initialOffset()

    assert positions(start) == positions(end)
    assert bodies_of(again, start, again.latestOffset(start, ALL)) == [b"02", b"12"]
    table = NsqBatchReader(nodes.parsed(topic, startingOffsets="acknowledged"))
    assert [
        body
        for part in table.partitions()
        for batch in table.read(part)
        for body in batch["body"].to_pylist()
    ] == [b"02", b"12"]


def test_latest_skips_stored_messages(nodes, topic, reader):
    latest = NsqStreamReader(nodes.parsed(topic, startingOffsets="latest"))
    start = latest.initialOffset()
    nodes.publish(nodes.nsqds[1], topic, b"later")

    assert bodies_of(latest, start, latest.latestOffset(start, ALL)) == [b"later"]


def test_earliest_reads_messages_older_than_channel(nodes, topic, reader):
    reader.initialOffset()
    earliest = NsqStreamReader(nodes.parsed(topic, channel="second", startingOffsets="earliest"))
    start = earliest.initialOffset()

    end = earliest.latestOffset(start, ALL)
    assert len(rows_of(earliest, start, end)) == 6

    # From now on the messages are also kept for channel second, until the query has stored them.
    assert [depth(nsqd, topic, "second") for nsqd in nodes.nsqds] == [3, 3]
    earliest.commit(end)
    again = NsqStreamReader(nodes.parsed(topic, channel="second")).initialOffset()
    assert positions(again) == positions(end)


# --- how large a batch is, and how often an idle query asks


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "10000"}, ReadMaxBytes(10_000)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
    ],
)
def test_limit_of_options_is_passed_to_spark(nodes, topic, options, limit):
    assert NsqStreamReader(nodes.parsed(topic, **options)).getDefaultReadLimit() == limit


def test_batch_has_about_as_many_bytes_as_it_may(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, *(b"x" * 1000 for _ in range(50)))
    reader = NsqStreamReader(nodes.parsed(topic, maxBytesPerTrigger="10000"))
    start, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end

    assert sum(sizes) == 50
    assert max(sizes) <= 10
    assert len(sizes) <= 7


def test_batch_waits_for_enough_messages_until_delay_or_end_of_run(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b")
    reader = NsqStreamReader(nodes.parsed(topic, minOffsetsPerTrigger="3", maxTriggerDelay="0.2"))
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start

    nodes.publish(nodes.nsqds[0], topic, b"c")
    end = reader.latestOffset(start, limit)
    assert bodies_of(reader, start, end) == [b"a", b"b", b"c"]

    nodes.publish(nodes.nsqds[0], topic, b"d")
    began = time.monotonic()
    while (last := reader.latestOffset(end, limit)) == end:
        assert time.monotonic() < began + 10
    assert bodies_of(reader, end, last) == [b"d"]

    finite = NsqStreamReader(nodes.parsed(topic, minOffsetsPerTrigger="1000"))
    finite.prepareForTriggerAvailableNow()
    assert bodies_of(finite, end, finite.latestOffset(end, limit)) == [b"d"]


def requests(nsqd, path):
    return sum(f" {path}" in line for line in nsqd.logs().splitlines())


def test_idle_query_asks_less_often_and_creates_channel_once(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    nsqd, path = nodes.nsqds[0], f"/log/bounds?topic={topic}"
    before, lookups = requests(nsqd, path), requests(nodes.lookupd, f"/lookup?topic={topic}")
    began = time.monotonic()
    rounds = 0
    while time.monotonic() < began + 1.5:
        assert reader.latestOffset(end, ALL) == end
        rounds += 1

    assert requests(nsqd, path) - before == rounds <= 9
    assert requests(nodes.lookupd, f"/lookup?topic={topic}") - lookups <= 3
    assert requests(nsqd, f"/channel/create?topic={topic}") == 1
    nodes.publish(nodes.nsqds[0], topic, b"b")
    assert bodies_of(reader, end, reader.latestOffset(end, ALL)) == [b"b"]


# --- runs that end


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


def test_nsqd_that_joins_during_available_now_is_left_to_the_next_run(nodes, topic):
    first, second = nodes.nsqds
    nodes.publish(first, topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    nodes.publish(second, topic, b"b")
    end = reader.latestOffset(start, ALL)

    assert list(positions(end)) == [log_name(topic, first)]
    assert reader.latestOffset(end, ALL) == end


def test_available_now_ends_though_nsqlookupd_listed_nothing_when_it_began(fragile, topic, doomed):
    """The nsqlookupd was just restarted; the checkpoint has the nsqds, and a publisher continues."""
    reader, start, _ = doomed
    end = reader.latestOffset(start, ALL)
    again = NsqStreamReader(fragile.parsed(topic))
    fragile.lookupd.kill()
    fragile.lookupd.start()
    again.prepareForTriggerAvailableNow()
    first = again.latestOffset(end, ALL)
    fragile.nsqds[0].post(f"/mpub?topic={topic}", b"later\nand later")

    assert again.latestOffset(first, ALL) == first
