"""Queries that begin or end where the user says: at a time, or at a position."""

import json
import time
from datetime import UTC, datetime

import pytest

from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import Nodes, bounds
from tests.pipelines.streams import ALL, bodies_of


def batch(options):
    reader = NsqBatchReader(options)
    found = [rows for one in reader.partitions() for rows in reader.read(one)]
    return sorted(body for rows in found for body in rows["body"].to_pylist())


def bodies(letter):
    return sorted(b"%b%d%d" % (letter, number, n) for number in range(2) for n in range(10))


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

    assert bodies_of(reader, start, reader.latestOffset(start, ALL)) == bodies(b"b")


def test_batch_read_has_messages_between_times_of_each_topic(nodes, topic, between):
    assert batch(nodes.parsed(topic, endingTimestamp=between)) == bodies(b"a")
    assert batch(nodes.parsed(topic, startingTimestamp=between)) == bodies(b"b")
    assert batch(nodes.parsed(topic, startingTimestamp="2100-01-01")) == []
    assert len(batch(nodes.parsed(topic, startingTimestamp="2000-01-01", endingTimestamp="2100-01-01"))) == 40

    other = f"{topic}-other"
    nodes.publish(nodes.nsqds[0], other, b"c")
    both = f"{topic},{other}"
    begin, end = json.dumps({topic: between}), json.dumps({topic: 0, other: "2100-01-01"})
    assert batch(nodes.parsed(both, startingTimestamp=begin)) == [*bodies(b"b"), b"c"]
    assert batch(nodes.parsed(both, endingTimestamp=end)) == [b"c"]


def test_time_is_found_past_numbers_that_restart_skipped(cluster, topic):
    nodes = Nodes(cluster, 1)
    (nsqd,) = nodes.nsqds
    nodes.publish(nsqd, topic, b"a", b"b")
    nsqd.restart()
    moment = datetime.now(UTC).isoformat()
    nodes.publish(nsqd, topic, b"c", b"d")

    assert batch(nodes.parsed(topic, startingTimestamp=moment)) == [b"c", b"d"]
    assert batch(nodes.parsed(topic, endingTimestamp=moment)) == [b"a", b"b"]


def test_position_is_of_one_nsqd_with_its_topic_or_without(nodes, topic, between):
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


@pytest.mark.parametrize(
    ("reader", "option"),
    [
        (NsqStreamReader, "startingOffsets"),
        (NsqBatchReader, "startingOffsets"),
        (NsqBatchReader, "endingOffsets"),
    ],
)
def test_position_for_unknown_log_is_named_with_known_logs(nodes, topic, caplog, reader, option):
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a")
    wrong = json.dumps({"other": {"nowhere:1": 3}})
    logs = sorted(f"{topic}@{nsqd.http_address}" for nsqd in nodes.nsqds)

    def begin(**more):
        one = reader(nodes.parsed(topic, **{option: wrong}, **more))
        return one.partitions() if reader is NsqBatchReader else one.initialOffset()

    with pytest.raises(OptionError) as refused:
        begin()

    named = f"option {option} has a position for other@nowhere:1"
    assert f"{named}, which is none of the logs" in str(refused.value)
    assert str(refused.value).endswith(f"{', '.join(logs)} (failOnDataLoss=false continues without it)")
    assert begin(forgetNsqds="nowhere:1")
    assert caplog.messages == []
    assert begin(failOnDataLoss="false")
    assert named in caplog.messages[0]
