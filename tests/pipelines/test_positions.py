"""Queries that begin or end where the user says: at a time, or at a position."""

import json
import time
from datetime import UTC, datetime

import pytest

from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.positions import option_position
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import bounds
from tests.pipelines.streams import ALL, bodies_of


def batch(options):
    reader = NsqBatchReader(options)
    found = [rows for one in reader.partitions() for rows in reader.read(one)]
    return sorted(body for rows in found for body in rows["body"].to_pylist())


@pytest.fixture
def between(nodes, topic):
    """A moment; before it 'a0' to 'a9' were published on both nsqds, after it 'b0' to 'b9'."""
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"a%d%d" % (number, n) for n in range(10)))
    published = time.time()
    # Messages have timestamps in microseconds, so the moment must be clearly after them.
    while (moment := time.time()) < published + 0.001:
        pass
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"b%d%d" % (number, n) for n in range(10)))
    return datetime.fromtimestamp(moment, UTC).isoformat()


def test_stream_begins_with_the_first_message_of_a_time(nodes, topic, between):
    reader = NsqStreamReader(nodes.parsed(topic, startingTimestamp=between))
    start = reader.initialOffset()
    found = bodies_of(reader, start, reader.latestOffset(start, ALL))

    assert found == sorted(b"b%d%d" % (number, n) for number in range(2) for n in range(10))


def test_batch_read_ends_before_the_first_message_of_a_time(nodes, topic, between):
    assert batch(nodes.parsed(topic, endingTimestamp=between)) == sorted(
        b"a%d%d" % (number, n) for number in range(2) for n in range(10)
    )
    assert len(batch(nodes.parsed(topic, startingTimestamp=between))) == 20
    assert batch(nodes.parsed(topic, startingTimestamp="2100-01-01")) == []
    assert len(batch(nodes.parsed(topic, startingTimestamp="2000-01-01", endingTimestamp="2100-01-01"))) == 40


def test_time_is_found_past_numbers_that_restart_skipped(cluster, topic):
    from tests.pipelines.conftest import Nodes

    nodes = Nodes(cluster, 1)
    (nsqd,) = nodes.nsqds
    nodes.publish(nsqd, topic, b"a", b"b")
    nsqd.restart()
    moment = datetime.now(UTC).isoformat()
    nodes.publish(nsqd, topic, b"c", b"d")

    assert batch(nodes.parsed(topic, startingTimestamp=moment)) == [b"c", b"d"]
    assert batch(nodes.parsed(topic, endingTimestamp=moment)) == [b"a", b"b"]


def test_positions_are_those_of_each_nsqd_and_the_end_is_not_read(nodes, topic, between):
    first, second = nodes.nsqds
    begins = [bounds(nsqd, topic)["first"] for nsqd in nodes.nsqds]
    starting = json.dumps({first.http_address: begins[0] + 3, topic: {second.http_address: begins[1] + 18}})
    ending = json.dumps({first.http_address: begins[0] + 5})

    assert batch(nodes.parsed(topic, startingOffsets=starting, endingOffsets=ending)) == [
        b"a03",
        b"a04",
        b"b18",
        b"b19",
    ]


@pytest.mark.parametrize("reader", [NsqBatchReader, NsqStreamReader])
def test_position_for_log_that_is_not_there_is_named_with_those_that_are(nodes, topic, caplog, reader):
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a")
    wrong = json.dumps({"nowhere:1": 3})
    logs = sorted(f"{topic}@{nsqd.http_address}" for nsqd in nodes.nsqds)

    def begin(**more):
        one = reader(nodes.parsed(topic, startingOffsets=wrong, **more))
        return one.partitions() if reader is NsqBatchReader else one.initialOffset()

    with pytest.raises(OptionError) as refused:
        begin()

    assert "option startingOffsets has a position for nowhere:1, which is none of the logs" in str(
        refused.value
    )
    assert str(refused.value).endswith(f"{', '.join(logs)} (failOnDataLoss=false continues without it)")
    assert begin(forgetNsqds="nowhere:1")
    assert caplog.messages == []
    assert begin(failOnDataLoss="false")
    assert "has a position for nowhere:1" in caplog.messages[0]


def test_end_for_log_that_is_not_there_is_named(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a")
    with pytest.raises(OptionError, match="option endingOffsets has a position for other@"):
        batch(nodes.parsed(topic, endingOffsets=json.dumps({"other": {nodes.nsqds[0].http_address: 3}})))


def test_nsqd_is_found_with_its_topic_or_without():
    assert option_position({"t@n:1": 5, "n:1": 4}, "t", "n:1") == 5
    assert option_position({"n:1": 4}, "t", "n:1") == 4
    assert option_position({}, "t", "n:1") is None


def test_batch_read_begins_at_another_time_in_each_topic(nodes, topic, between):
    other = f"{topic}-other"
    nodes.publish(nodes.nsqds[0], other, b"c")
    both = f"{topic},{other}"

    assert batch(nodes.parsed(both, startingTimestamp=json.dumps({topic: between}))) == sorted(
        [b"c", *(b"b%d%d" % (number, n) for number in range(2) for n in range(10))]
    )
    assert batch(nodes.parsed(both, endingTimestamp=json.dumps({topic: 0, other: "2100-01-01"}))) == [b"c"]
