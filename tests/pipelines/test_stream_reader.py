"""The stream reader against real daemons, called as Spark calls it: order of calls, positions, repetition."""

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipelines.source.errors import DataLossError, SourceError
from pipelines.source.http import Node
from pipelines.source.options import SourceOptions
from pipelines.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import Nodes, bounds, depth
from tests.support.waiting import wait_until
from tests.support.wire import Wire

ALL = ReadAllAvailable()


def rows_of(reader, start, end):
    """Read a batch as executors do: on a copy of the reader."""
    copy = pickle.loads(pickle.dumps(reader))
    return [
        row
        for partition in pickle.loads(pickle.dumps(reader.partitions(start, end)))
        for batch in copy.read(partition)
        for row in batch.to_pylist()
    ]


def bodies_of(reader, start, end):
    return sorted(row["body"] for row in rows_of(reader, start, end))


@pytest.fixture
def reader(nodes, topic):
    """A reader of a topic with three messages on each nsqd."""
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d%d" % (number, n) for n in range(3)))
    return NsqStreamReader(nodes.parsed(topic))


# --- one batch after another


def test_what_was_published_before_the_query_is_read(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert list(start) == sorted(nsqd.http_address for nsqd in nodes.nsqds)
    assert bodies_of(reader, start, end) == [b"00", b"01", b"02", b"10", b"11", b"12"]


def test_rows_say_where_a_message_comes_from(nodes, topic, reader):
    start = reader.initialOffset()
    rows = rows_of(reader, start, reader.latestOffset(start, ALL))

    for number, nsqd in enumerate(nodes.nsqds):
        first = bounds(nsqd, topic)["first"]
        mine = [row for row in rows if row["nsqd"] == nsqd.http_address]
        assert [row["body"] for row in mine] == [b"%d%d" % (number, n) for n in range(3)]
        assert [row["sequence"] for row in mine] == [first, first + 1, first + 2]
        assert {(row["topic"], row["channel"], row["attempts"]) for row in mine} == {(topic, "archive", 1)}


def test_the_initial_offset_is_the_same_when_asked_twice(nodes, topic, reader):
    start = reader.initialOffset()
    nodes.publish(nodes.nsqds[0], topic, b"later")

    assert reader.initialOffset() == start


def test_a_batch_has_at_most_as_many_messages_as_its_limit(reader):
    start = reader.initialOffset()
    sizes = []
    while (end := reader.latestOffset(start, ReadMaxRows(4))) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end

    assert sizes == [4, 2]


def test_the_limit_of_the_options_is_what_spark_is_told(nodes, topic):
    assert NsqStreamReader(
        nodes.parsed(topic, maxOffsetsPerTrigger="7")
    ).getDefaultReadLimit() == ReadMaxRows(7)
    assert NsqStreamReader(nodes.parsed(topic)).getDefaultReadLimit() == ALL


def test_reading_a_batch_again_gives_the_same_rows_though_more_was_published(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    before = rows_of(reader, start, end)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"later")

    assert rows_of(NsqStreamReader(nodes.parsed(topic)), start, end) == before


def test_more_partitions_give_the_same_rows(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    many = NsqStreamReader(nodes.parsed(topic, minPartitions="6"))

    assert len(many.partitions(start, end)) == 6
    assert rows_of(many, start, end) == rows_of(reader, start, end)


def test_a_range_larger_than_one_answer_is_read_to_its_end(nodes, topic):
    for _ in range(3):
        nodes.publish(nodes.nsqds[0], topic, *(b"x" * 900_000 for _ in range(4)))
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (partition,) = reader.partitions(start, end)
    batches = list(reader.read(partition))

    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 12


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


def test_a_new_query_goes_on_where_the_channel_is(nodes, topic, reader):
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
        end[nsqd.http_address] for nsqd in nodes.nsqds
    ]


def test_the_log_keeps_what_the_channel_owes_while_another_channel_is_done(nodes, topic, reader):
    start = reader.initialOffset()
    for nsqd in nodes.nsqds:
        nsqd.post(f"/channel/create?topic={topic}&channel=other")
        nsqd.post(f"/channel/empty?topic={topic}&channel=other")

    assert len(rows_of(reader, start, reader.latestOffset(start, ALL))) == 6


# --- where a query starts


def test_latest_skips_what_is_there(nodes, topic, reader):
    latest = NsqStreamReader(nodes.parsed(topic, startingOffsets="latest"))
    start = latest.initialOffset()
    nodes.publish(nodes.nsqds[1], topic, b"later")

    assert bodies_of(latest, start, latest.latestOffset(start, ALL)) == [b"later"]


def test_earliest_reads_what_a_later_channel_would_not_be_owed(nodes, topic, reader):
    reader.initialOffset()
    earliest = NsqStreamReader(nodes.parsed(topic, channel="second", startingOffsets="earliest"))
    start = earliest.initialOffset()

    end = earliest.latestOffset(start, ALL)
    assert len(rows_of(earliest, start, end)) == 6

    # From now on they are kept for it as well, until it has stored them.
    assert [depth(nsqd, topic, "second") for nsqd in nodes.nsqds] == [3, 3]
    earliest.commit(end)
    assert NsqStreamReader(nodes.parsed(topic, channel="second")).initialOffset() == end


def test_a_topic_that_holds_its_messages_back_is_read_and_owes_nothing_afterwards(nodes, topic):
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
    assert bounds(nsqd, topic)["channels"]["archive"]["acknowledged"] == end[nsqd.http_address]


# --- producers come and go


def test_a_producer_that_joins_is_read_from_its_first_message(nodes, topic):
    first, second = nodes.nsqds
    nodes.publish(first, topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    # Its channel exists from the beginning, for nsqlookupd told it of the channel.
    nodes.publish(second, topic, b"b", b"c")
    joined = reader.latestOffset(start, ALL)
    end = reader.latestOffset(joined, ALL)

    assert list(start) == [first.http_address]
    assert bodies_of(reader, start, joined) == [b"a"]
    assert bodies_of(reader, joined, end) == [b"b", b"c"]


def test_a_producer_that_joined_while_nsqlookupd_was_away_is_read_from_the_earliest_it_keeps(fragile, topic):
    """It has a channel of somebody else, so without care a new one would begin with what comes later."""
    first, second = fragile.nsqds
    fragile.publish(first, topic, b"a")
    reader = NsqStreamReader(fragile.parsed(topic))
    start = reader.initialOffset()
    fragile.lookupd.kill()
    second.post(f"/topic/create?topic={topic}")
    second.post(f"/channel/create?topic={topic}&channel=other")
    second.post(f"/mpub?topic={topic}", b"b\nc")
    fragile.lookupd.start()
    fragile.listed(first, topic)
    fragile.publish(second, topic, b"d")
    joined = reader.latestOffset(start, ALL)
    # Nobody else needs them any more, but the query has them still to read.
    second.post(f"/channel/empty?topic={topic}&channel=other")
    end = reader.latestOffset(joined, ALL)

    assert bodies_of(reader, start, joined) == [b"a"]
    assert bodies_of(reader, joined, end) == [b"b", b"c", b"d"]

    reader.latestOffset(end, ALL)
    assert depth(second, topic) == 0


def test_a_query_that_died_while_a_producer_joined_misses_nothing_of_it(fragile, topic):
    first, second = fragile.nsqds
    fragile.publish(first, topic, b"a")
    reader = NsqStreamReader(fragile.parsed(topic))
    start = reader.initialOffset()
    fragile.lookupd.kill()
    second.post(f"/topic/create?topic={topic}")
    second.post(f"/channel/create?topic={topic}&channel=other")
    second.post(f"/mpub?topic={topic}", b"b\nc")
    fragile.lookupd.start()
    for nsqd in fragile.nsqds:
        fragile.listed(nsqd, topic)
    # It makes the channel, and dies before Spark has noted where the producer begins.
    reader.latestOffset(start, ALL)
    again = NsqStreamReader(fragile.parsed(topic))
    joined = again.latestOffset(start, ALL)

    assert bodies_of(again, joined, again.latestOffset(joined, ALL)) == [b"b", b"c"]


def test_a_run_with_available_now_ends_where_the_logs_ended_when_it_began(nodes, topic, reader):
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


def test_a_producer_that_comes_while_available_now_runs_is_left_to_the_next_run(nodes, topic):
    first, second = nodes.nsqds
    nodes.publish(first, topic, b"a")
    reader = NsqStreamReader(nodes.parsed(topic))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    nodes.publish(second, topic, b"b")
    end = reader.latestOffset(start, ALL)

    assert list(end) == [first.http_address]
    assert reader.latestOffset(end, ALL) == end


@pytest.fixture
def fragile(cluster):
    """A cluster of the test's own, to kill in."""
    return Nodes(cluster)


@pytest.fixture
def doomed(fragile, topic):
    """A reader, what it has read so far, and the nsqd that will die."""
    for nsqd in fragile.nsqds:
        fragile.publish(nsqd, topic, b"a", b"b")
    reader = NsqStreamReader(fragile.parsed(topic))
    return reader, reader.initialOffset(), fragile.nsqds[1]


def test_a_producer_that_does_not_answer_ends_the_query_with_its_name(doomed):
    reader, start, nsqd = doomed
    nsqd.kill()
    with pytest.raises(SourceError) as caught:
        reader.latestOffset(start, ALL)

    assert str(caught.value).startswith(f"nsqd {nsqd.http_address} does not answer: Post ")
    assert "connection refused" in str(caught.value)


def test_a_producer_that_dies_while_it_is_read_ends_the_query_with_its_name(doomed):
    reader, start, nsqd = doomed
    end = reader.latestOffset(start, ALL)
    nsqd.kill()
    with pytest.raises(
        SourceError, match=f"nsqd {nsqd.http_address} stopped answering while it was read: Get "
    ):
        rows_of(reader, start, end)


def test_a_query_that_accepts_loss_goes_on_with_the_others_and_takes_the_producer_up_again(
    fragile, topic, doomed
):
    _, start, nsqd = doomed
    reader = NsqStreamReader(fragile.parsed(topic, failOnDataLoss="false"))
    nsqd.kill()
    without = reader.latestOffset(start, ALL)

    assert without[nsqd.http_address] == start[nsqd.http_address]
    assert bodies_of(reader, start, without) == [b"a", b"b"]

    nsqd.start()
    end = reader.latestOffset(without, ALL)

    assert bodies_of(reader, without, end) == [b"a", b"b"]
    # What could not be acknowledged while it was away is acknowledged now.
    reader.latestOffset(end, ALL)
    assert depth(nsqd, topic) == 0


def test_a_producer_that_is_restarted_is_waited_for(fragile, topic, doomed):
    _, start, nsqd = doomed
    reader = NsqStreamReader(fragile.parsed(topic, retrySeconds="15"))
    nsqd.kill()
    nsqd.spawn()
    end = reader.latestOffset(start, ALL)

    assert len(rows_of(reader, start, end)) == 4


def test_a_crash_with_nothing_left_to_read_is_no_loss(fragile, topic, doomed):
    reader, start, nsqd = doomed
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    nsqd.kill()
    nsqd.start()
    fragile.publish(nsqd, topic, b"after")
    after = reader.latestOffset(end, ReadMaxRows(1))

    assert after[nsqd.http_address] > end[nsqd.http_address] + 1
    assert bodies_of(reader, end, after) == [b"after"]
    assert reader.latestOffset(after, ALL) == after


def test_a_topic_that_was_made_anew_is_a_loss(nodes, topic, reader):
    start = reader.initialOffset()
    nsqd = nodes.nsqds[0]
    nsqd.post(f"/topic/delete?topic={topic}")
    nodes.publish(nsqd, topic, b"new")
    with pytest.raises(DataLossError, match=f"has read nsqd {nsqd.http_address} up to .* kept from"):
        reader.latestOffset(start, ALL)


def test_a_topic_that_is_gone_is_a_loss(nodes, topic, reader):
    start = reader.initialOffset()
    nsqd = nodes.nsqds[0]
    end = reader.latestOffset(start, ALL)
    nsqd.post(f"/topic/delete?topic={topic}")
    with pytest.raises(DataLossError, match=f"nsqd {nsqd.http_address} has no topic '{topic}' any more"):
        reader.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=f"nsqd {nsqd.http_address} does not have the messages "):
        rows_of(reader, start, end)


def test_who_accepts_loss_reads_the_rest_of_a_range(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    nodes.nsqds[0].post(f"/topic/delete?topic={topic}")
    lenient = NsqStreamReader(nodes.parsed(topic, failOnDataLoss="false"))

    assert bodies_of(lenient, start, end) == [b"10", b"11", b"12"]


def test_a_producer_that_is_gone_for_good_is_forgotten_once(fragile, topic, doomed):
    reader, start, nsqd = doomed
    # The batch was planned with it, and can never be finished.
    end = reader.latestOffset(start, ALL)
    nsqd.kill()
    fragile.lookupd.post(f"/topic/tombstone?topic={topic}&node={nsqd.http_address}")
    once = NsqStreamReader(fragile.parsed(topic, forgetNsqds=nsqd.http_address))

    assert bodies_of(once, start, end) == [b"a", b"b"]

    without = once.latestOffset(end, ALL)

    assert list(without) == [fragile.nsqds[0].http_address]
    assert NsqStreamReader(fragile.parsed(topic)).latestOffset(without, ALL) == without


def test_a_producer_that_has_something_to_read_is_not_forgotten(nodes, topic, reader):
    start = reader.initialOffset()
    address = nodes.nsqds[0].http_address
    forgetful = NsqStreamReader(nodes.parsed(topic, forgetNsqds=address))
    with pytest.raises(DataLossError, match="which answers, and the query has not read 3 of its messages"):
        forgetful.latestOffset(start, ALL)

    end = reader.latestOffset(start, ALL)
    reader.commit(end)

    assert address not in forgetful.latestOffset(end, ALL)


def test_the_latest_offset_says_how_much_is_left(nodes, topic, reader):
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))

    latest = reader.reportLatestOffset()
    assert latest.pop("lag") == 2
    assert latest == reader.latestOffset(end, ALL)
    assert reader.reportLatestOffset()["lag"] == 0


@pytest.fixture
def segmented(cluster, topic):
    """A reader at the beginning of a topic whose one nsqd has several files, and that nsqd, stopped."""
    nodes = Nodes(cluster)
    (nsqd, _) = nodes.nsqds
    nsqd.stop()
    nsqd.flags.append("--max-bytes-per-file=1000")
    nsqd.start()
    reader = NsqStreamReader(nodes.parsed(topic))
    lenient = NsqStreamReader(nodes.parsed(topic, failOnDataLoss="false"))
    for n in range(20):
        nodes.publish(nsqd, topic, b"%d" % n + b"." * 200)
    start = reader.initialOffset()
    nsqd.stop()
    return reader, lenient, start, nsqd, nsqd.folder / f"{topic}.topic"


def numbers(bodies):
    return sorted(int(body.split(b".")[0]) for body in bodies)


def test_a_segment_that_is_gone_ends_the_query_with_its_range(segmented):
    reader, lenient, start, nsqd, folder = segmented
    sorted(folder.glob("*.log"))[1].unlink()
    nsqd.start()
    end = reader.latestOffset(start, ALL)

    with pytest.raises(
        DataLossError, match=r"has lost messages of topic .*: sequences \d+ to \d+ \(removed\)"
    ):
        rows_of(reader, start, end)

    kept = numbers(bodies_of(lenient, start, end))
    assert 10 < len(kept) < 20
    assert {0, 19} < set(kept)


def test_a_byte_that_is_wrong_ends_the_query_with_its_range(segmented):
    reader, lenient, start, nsqd, folder = segmented
    path = sorted(folder.glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    nsqd.start()
    end = reader.latestOffset(start, ALL)

    with pytest.raises(DataLossError, match=r"sequences \d+ to \d+ \(damaged\)"):
        rows_of(reader, start, end)

    assert len(numbers(bodies_of(lenient, start, end))) == 19


def test_a_channel_that_was_emptied_under_the_query_ends_it(nodes, topic, reader):
    start = reader.initialOffset()
    nodes.nsqds[0].post(f"/channel/empty?topic={topic}&channel=archive")

    with pytest.raises(DataLossError, match="somebody else emptied or read it, 3 messages may be missing"):
        reader.latestOffset(start, ALL)


def test_a_query_behind_its_channel_sees_when_that_is_emptied(nodes, topic, reader):
    start = reader.initialOffset()
    # Somebody else keeps the messages, and the channel has had one of them.
    for nsqd in nodes.nsqds:
        nsqd.post(f"/channel/create?topic={topic}&channel=other&start=earliest")
    address = nodes.nsqds[0].http_address
    nodes.nsqds[0].post(f"/channel/commit?topic={topic}&channel=archive&sequence={start[address] + 1}")
    earliest = NsqStreamReader(nodes.parsed(topic, startingOffsets="earliest"))
    begin = earliest.initialOffset()

    assert earliest.latestOffset(begin, ReadMaxRows(2)) != begin

    nodes.nsqds[0].post(f"/channel/empty?topic={topic}&channel=archive")
    with pytest.raises(DataLossError, match="somebody else emptied or read it"):
        earliest.latestOffset(begin, ReadMaxRows(2))


def test_a_query_from_the_earliest_passes_over_what_everybody_had_finished_before(cluster, topic):
    nodes = Nodes(cluster)
    nsqd = nodes.nsqds[0]
    nsqd.stop()
    nsqd.flags.append("--max-bytes-per-file=1500000")
    nsqd.start()
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel=other")
    large = [b"%02d" % n + b"x" * 100_000 for n in range(20)]
    for bodies in ([b"held", *large], large):
        nodes.publish(nsqd, topic, *bodies)
    with Wire(("127.0.0.1", nsqd.tcp_port)) as wire:
        wire.subscribe(topic, "other", ready=50)
        for message in wire.messages(41):
            if message.body != b"held":
                wire.send(b"FIN %b\n" % message.id)
    # An nsqd that has just started does not wait for its next look at the files.
    nsqd.stop()
    nsqd.start()
    nodes.listed(nsqd, topic)
    reader = NsqStreamReader(nodes.parsed(topic, startingOffsets="earliest"))
    first, end = bounds(nsqd, topic)["first"], bounds(nsqd, topic)["end"]

    def is_compacted():
        with Node(nsqd.http_address, 5, 0) as node:
            answer = node.get("/log/range", [("topic", topic), ("start", str(first)), ("end", str(end))])
        return "compacted" in answer.headers.get("X-Nsq-Gaps", "")

    wait_until(is_compacted, "the segment is compacted", 60)
    start = reader.initialOffset()
    found = bodies_of(reader, start, reader.latestOffset(start, ALL))

    assert b"held" in found
    assert len(found) < 41


def test_available_now_ends_though_nobody_was_known_when_it_began(fragile, topic, doomed):
    """A nsqlookupd was just restarted; the checkpoint knows the producers, and a publisher goes on."""
    reader, start, _ = doomed
    end = reader.latestOffset(start, ALL)
    again = NsqStreamReader(fragile.parsed(topic))
    fragile.lookupd.kill()
    fragile.lookupd.start()
    again.prepareForTriggerAvailableNow()
    first = again.latestOffset(end, ALL)
    fragile.nsqds[0].post(f"/mpub?topic={topic}", b"later\nand later")

    assert again.latestOffset(first, ALL) == first


def test_a_channel_that_was_removed_is_not_acknowledged_silently(nodes, topic, reader):
    end = reader.latestOffset(reader.initialOffset(), ALL)
    nodes.nsqds[0].post(f"/channel/delete?topic={topic}&channel=archive")
    with pytest.raises(DataLossError, match=r"channel 'archive' was removed from nsqd .* while it was read"):
        reader.commit(end)


# --- nsqlookupd


def test_a_topic_nobody_has_heard_of_is_named(nodes):
    with pytest.raises(SourceError, match="topic 'nowhere' does not exist: no nsqlookupd has heard of it"):
        NsqStreamReader(nodes.parsed("nowhere")).initialOffset()


def test_a_topic_that_no_listed_nsqd_has_is_named(nodes):
    options = nodes.parsed(
        "nowhere", lookupd_http_addresses="", nsqd_http_addresses=nodes.nsqds[0].http_address
    )
    with pytest.raises(SourceError, match="topic 'nowhere' does not exist: no nsqd of the list has it"):
        NsqStreamReader(options).initialOffset()


def test_nsqds_can_be_listed_instead_of_looked_up(nodes, topic, reader):
    listed = ",".join(nsqd.http_address for nsqd in nodes.nsqds)
    direct = NsqStreamReader(nodes.parsed(topic, lookupd_http_addresses="", nsqd_http_addresses=listed))

    assert direct.initialOffset() == reader.initialOffset()


def test_a_listed_nsqd_is_known_by_its_broadcast_address_however_it_is_spelled(nodes, topic, reader):
    spelled = ",".join(f"localhost:{nsqd.http_port}" for nsqd in nodes.nsqds)
    direct = NsqStreamReader(nodes.parsed(topic, lookupd_http_addresses="", nsqd_http_addresses=spelled))
    start = reader.initialOffset()
    end = direct.latestOffset(start, ALL)

    assert list(end) == list(start)


def test_available_now_goes_by_the_checkpoint_when_nsqlookupd_has_just_started(fragile, topic, doomed):
    _, start, _ = doomed
    empty = fragile.cluster.nsqlookupd()
    again = NsqStreamReader(fragile.parsed(topic, lookupd_http_addresses=empty.http_address))
    again.prepareForTriggerAvailableNow()
    end = again.latestOffset(start, ALL)

    assert len(rows_of(again, start, end)) == 4
    assert again.latestOffset(end, ALL) == end


def test_one_of_two_nsqlookupds_is_enough(nodes, topic, reader, caplog):
    both = f"127.0.0.1:1,{nodes.lookupd.http_address}"
    start = NsqStreamReader(nodes.parsed(topic, lookupd_http_addresses=both)).initialOffset()

    assert start == reader.initialOffset()
    assert "nsqlookupd 127.0.0.1:1 did not answer, going by the others: Get " in caplog.text


def test_a_query_that_knows_its_nsqds_goes_on_without_nsqlookupd(nodes, topic, reader, caplog):
    start = reader.initialOffset()
    alone = NsqStreamReader(nodes.parsed(topic, lookupd_http_addresses="127.0.0.1:1"))
    alone.prepareForTriggerAvailableNow()
    end = alone.latestOffset(start, ALL)

    assert len(rows_of(alone, start, end)) == 6
    assert alone.latestOffset(end, ALL) == end
    assert "refused; going on with the nsqd that are known" in caplog.text


def test_no_nsqlookupd_that_answers_is_named(nodes, topic):
    alone = NsqStreamReader(nodes.parsed(topic, lookupd_http_addresses="127.0.0.1:1"))
    with pytest.raises(
        SourceError, match=r"no nsqlookupd answered .* \"http://127.0.0.1:1/lookup\?topic=.*refused"
    ):
        alone.initialOffset()


def test_what_is_no_nsqd_is_named(nodes, topic):
    address = nodes.lookupd.http_address
    options = nodes.parsed(topic, lookupd_http_addresses="", nsqd_http_addresses=address)
    with pytest.raises(SourceError, match=rf"nsqd {address} gave no usable answer: .* it does not say where"):
        NsqStreamReader(options).initialOffset()


def test_an_nsqd_written_in_go_is_named(cluster, topic):
    nsqd = cluster.go_nsqd()
    nsqd.request("POST", f"/pub?topic={topic}", b"x")
    options = SourceOptions.parse(
        {"nsqd_http_addresses": nsqd.http_address, "topic": topic, "channel": "c", "retrySeconds": "0"}
    )
    with pytest.raises(SourceError, match=f"nsqd {nsqd.http_address} has no log .* the nsqd written in Go"):
        NsqStreamReader(options).initialOffset()
