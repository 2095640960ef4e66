"""How large a batch is, and how often an idle query asks."""

import time

from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMinRows

from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.streams import ALL, bodies_of, rows_of


def test_batch_has_about_as_many_bytes_as_it_may(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, *(b"x" * 1000 for _ in range(50)))
    reader = NsqStreamReader(nodes.parsed(topic, maxBytesPerTrigger="10000"))
    start, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end

    assert reader.getDefaultReadLimit() == ReadMaxBytes(10_000)
    assert sum(sizes) == 50
    assert max(sizes) <= 10
    assert len(sizes) <= 7


def test_batch_waits_for_enough_messages_but_not_for_ever(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b")
    options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "0.2"}
    reader = NsqStreamReader(nodes.parsed(topic, **options))
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()

    assert limit == ReadMinRows(3)
    assert reader.latestOffset(start, limit) == start

    nodes.publish(nodes.nsqds[0], topic, b"c")
    end = reader.latestOffset(start, limit)
    assert bodies_of(reader, start, end) == [b"a", b"b", b"c"]

    nodes.publish(nodes.nsqds[0], topic, b"d")
    began = time.monotonic()
    while (last := reader.latestOffset(end, limit)) == end:
        assert time.monotonic() < began + 10
    assert bodies_of(reader, end, last) == [b"d"]


def test_run_to_the_end_waits_for_no_more_messages(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic, minOffsetsPerTrigger="1000"))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()

    assert bodies_of(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit())) == [b"a"]


def requests(nsqd, path):
    return sum(f" {path}" in line for line in nsqd.logs().splitlines())


def test_idle_query_makes_channel_once_and_asks_less_and_less_often(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    nsqd, path = nodes.nsqds[0], f"/log/bounds?topic={topic}"
    before, lookups = requests(nsqd, path), requests(nodes.lookupd, f"/lookup?topic={topic}")
    began = time.monotonic()
    looks = 0
    while time.monotonic() < began + 1.5:
        assert reader.latestOffset(end, ALL) == end
        looks += 1
    reader.stop()

    assert requests(nsqd, path) - before == looks <= 9
    assert requests(nodes.lookupd, f"/lookup?topic={topic}") - lookups <= 3
    assert requests(nsqd, f"/channel/create?topic={topic}") == 1


def test_query_that_was_idle_sees_message_soon(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    for _ in range(4):
        reader.latestOffset(end, ALL)
    nodes.publish(nodes.nsqds[0], topic, b"b")
    began = time.monotonic()
    after = reader.latestOffset(end, ALL)

    assert bodies_of(reader, end, after) == [b"b"]
    assert time.monotonic() - began < 5
