"""The stream reader against real daemons, called as Spark calls it: order of calls, positions, repetition."""

from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import bounds, depth
from tests.pipelines.streams import ALL, bodies_of, log_name, positions, rows_of

# --- one batch after another


def test_messages_published_before_query_are_read(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert list(positions(start)) == sorted(log_name(topic, nsqd) for nsqd in nodes.nsqds)
    assert bodies_of(reader, start, end) == [b"00", b"01", b"02", b"10", b"11", b"12"]


def test_rows_say_where_message_comes_from(nodes, topic, reader):
    start = reader.initialOffset()
    rows = rows_of(reader, start, reader.latestOffset(start, ALL))

    for number, nsqd in enumerate(nodes.nsqds):
        first = bounds(nsqd, topic)["first"]
        mine = [row for row in rows if row["nsqd"] == nsqd.http_address]
        assert [row["body"] for row in mine] == [b"%d%d" % (number, n) for n in range(3)]
        assert [row["sequence"] for row in mine] == [first, first + 1, first + 2]
        assert {(row["topic"], row["channel"], row["attempts"]) for row in mine} == {(topic, "archive", 1)}


def test_initial_offset_is_the_same_when_asked_twice(nodes, topic, reader):
    start = reader.initialOffset()
    nodes.publish(nodes.nsqds[0], topic, b"later")

    assert reader.initialOffset() == start


def test_batch_has_at_most_as_many_messages_as_its_limit(reader):
    start = reader.initialOffset()
    sizes = []
    while (end := reader.latestOffset(start, ReadMaxRows(4))) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end

    assert sizes == [4, 2]


def test_limit_of_options_is_what_spark_is_told(nodes, topic):
    assert NsqStreamReader(
        nodes.parsed(topic, maxOffsetsPerTrigger="7")
    ).getDefaultReadLimit() == ReadMaxRows(7)
    assert NsqStreamReader(nodes.parsed(topic)).getDefaultReadLimit() == ALL


def test_batch_reread_gives_the_same_rows_after_new_publishes(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    before = rows_of(reader, start, end)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"later")

    assert rows_of(NsqStreamReader(nodes.parsed(topic)), start, end) == before


def test_batch_is_cut_into_as_many_partitions_as_are_asked_for(nodes, topic, reader):
    start = reader.initialOffset()
    whole = reader.latestOffset(start, ALL)
    many = NsqStreamReader(nodes.parsed(topic, minPartitions="6"))
    end = many.latestOffset(start, ALL)

    assert len(many.partitions(start, end)) == 6
    assert rows_of(many, start, end) == rows_of(reader, start, whole)


def test_repeated_batch_has_the_same_partitions_under_changed_options(nodes, topic, reader):
    start = reader.initialOffset()
    many = NsqStreamReader(nodes.parsed(topic, minPartitions="6"))
    end = many.latestOffset(start, ALL)
    again = NsqStreamReader(nodes.parsed(topic, minPartitions="1"))

    assert [one.value for one in again.partitions(start, end)] == [
        one.value for one in many.partitions(start, end)
    ]


# --- acknowledging


def test_nothing_is_acknowledged_before_spark_says_that_it_is_stored(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    rows_of(reader, start, end)

    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [3, 3]

    reader.commit(end)

    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]


def test_asking_for_the_next_batch_acknowledges_the_one_before(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    reader.latestOffset(end, ALL)

    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [1, 1]


def test_new_query_starts_at_channel_position(nodes, topic, reader):
    start = reader.initialOffset()
    reader.commit(reader.latestOffset(start, ReadMaxRows(4)))
    again = NsqStreamReader(nodes.parsed(topic))
    start = again.initialOffset()

    assert bodies_of(again, start, again.latestOffset(start, ALL)) == [b"02", b"12"]


def test_committing_again_changes_nothing(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    fresh = NsqStreamReader(nodes.parsed(topic))
    fresh.commit(start)
    fresh.commit(end)

    assert [bounds(nsqd, topic)["channels"]["archive"]["acknowledged"] for nsqd in nodes.nsqds] == [
        end[log_name(topic, nsqd)] for nsqd in nodes.nsqds
    ]


def test_log_retains_backlog_of_slowest_channel(nodes, topic, reader):
    start = reader.initialOffset()
    for nsqd in nodes.nsqds:
        nsqd.post(f"/channel/create?topic={topic}&channel=other")
        nsqd.post(f"/channel/empty?topic={topic}&channel=other")

    assert len(rows_of(reader, start, reader.latestOffset(start, ALL))) == 6


# --- where a query starts


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


def test_topic_that_holds_its_messages_back_is_read_and_owes_nothing_afterwards(nodes, topic):
    nsqd = nodes.nsqds[0]
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/topic/pause?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel=archive")
    nodes.publish(nsqd, topic, b"held", b"back")
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert bodies_of(reader, start, end) == [b"back", b"held"]

    reader.commit(end)
    nodes.publish(nsqd, topic, b"more")
    nsqd.post(f"/topic/unpause?topic={topic}")

    assert depth(nsqd, topic) == 1
    assert bounds(nsqd, topic)["channels"]["archive"]["acknowledged"] == end[log_name(topic, nsqd)]


def test_latest_offset_says_how_much_is_left(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))

    latest = reader.reportLatestOffset()
    assert latest.pop("lag") == 2
    assert latest.pop("lags") == {log_name(topic, nsqd): 1 for nsqd in nodes.nsqds}
    assert latest == positions(reader.latestOffset(end, ALL))
    assert reader.reportLatestOffset()["lag"] == 0
