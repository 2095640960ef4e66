"""Filters that a batch read takes, and those it leaves to Spark."""

from datetime import UTC, datetime

import numpy as np
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from nsqclient.wire.frames import FRAME_MESSAGE, encode_frame
from nsqclient.wire.message import MessageRecord
from pyspark_nsq.source.batch_reader import NsqFilteredReader
from pyspark_nsq.source.columns import MessageColumns, Origin
from pyspark_nsq.source.frames import decode_frames
from pyspark_nsq.source.window import FilterWindow, Interval, TimeInterval
from tests.pipelines.conftest import bounds

MOMENT = datetime(2025, 11, 20, 10, 0, 1, 500, tzinfo=UTC)
US = 1_763_632_801_000_500


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([EqualTo(("sequence",), 5)], Interval(5, 5)),
        ([GreaterThan(("sequence",), 5), LessThanOrEqual(("sequence",), 9)], Interval(6, 9)),
        ([GreaterThanOrEqual(("sequence",), 5), GreaterThan(("sequence",), 3)], Interval(5, None)),
        ([LessThan(("sequence",), 5), IsNotNull(("sequence",))], Interval(None, 4)),
    ],
)
def test_filters_on_sequence_are_span(filters, span):
    window = FilterWindow()

    assert all(window.narrow(one) for one in filters)
    assert window.sequences == span


def test_filters_on_time_are_span_in_microseconds():
    window = FilterWindow()

    assert window.narrow(GreaterThan(("timestamp",), MOMENT))
    assert window.times_us == Interval(US + 1, None)


def test_filters_on_topic_and_nsqd_choose_logs():
    window = FilterWindow()

    assert window.narrow(In(("nsqd",), ("n:1", "n:2")))
    assert window.narrow(EqualTo(("nsqd",), "n:2"))
    assert window.narrow(EqualTo(("topic",), "t"))
    assert [window.has_log(*log) for log in (("t", "n:1"), ("t", "n:2"), ("u", "n:2"))] == [
        False,
        True,
        False,
    ]


def test_values_of_in_filter_are_interval_that_spark_filters_again():
    window = FilterWindow()

    assert not window.narrow(In(("sequence",), (9, 5, 7)))
    assert not window.narrow(In(("timestamp",), (MOMENT,)))
    assert not window.narrow(In(("sequence",), (1, "x")))
    assert (window.sequences, window.times_us) == (Interval(5, 9), Interval(US, US))


@pytest.mark.parametrize(
    "one",
    [
        StringContains(("topic",), "x"),
        GreaterThan(("nsqd",), "n:1"),
        In(("channel",), ("a",)),
        EqualTo(("timestamp",), MOMENT.replace(tzinfo=None)),
        EqualTo(("sequence", "part"), 5),
        IsNotNull(("channel",)),
    ],
)
def test_other_filters_are_left_to_spark(one):
    window = FilterWindow()

    assert not window.narrow(one)
    assert window == FilterWindow()


def test_rows_outside_span_of_time_are_left_out_wherever_they_lie():
    times = [7, 2, 5, 9, 5]
    frames = b"".join(
        encode_frame(FRAME_MESSAGE, MessageRecord(us * 1000, 1, b"%016x" % n, b"").encode())
        for n, us in enumerate(times)
    )
    (batch,) = TimeInterval(MessageColumns(("sequence",)), Interval(5, 7)).batches(
        decode_frames(frames), Origin("t", "", "n:1")
    )

    assert batch["sequence"].to_pylist() == list(np.flatnonzero([True, False, True, False, True]))


def test_messages_of_a_time_with_no_rows_make_no_batch():
    frame = encode_frame(FRAME_MESSAGE, MessageRecord(5000, 1, b"0" * 16, b"").encode())
    columns = TimeInterval(MessageColumns(("sequence",)), Interval(6, None))

    assert list(columns.batches(decode_frames(frame), Origin("t", "", "n:1"))) == []


def test_only_chosen_nsqd_is_read(nodes, topic):
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a")
    reader = NsqFilteredReader(nodes.parsed(topic, channel=""))

    assert reader.pushFilters([EqualTo(("nsqd",), nodes.nsqds[1].http_address)]) == []
    assert [one.value.nsqd for one in reader.partitions()] == [nodes.nsqds[1].http_address]


def test_no_more_is_read_than_filters_leave(nodes, topic):
    (nsqd, _) = nodes.nsqds
    nodes.publish(nsqd, topic, *(b"%d" % n for n in range(10)))
    first = bounds(nsqd, topic)["first"]
    reader = NsqFilteredReader(nodes.parsed(topic, channel=""))
    left = StringContains(("topic",), "x")

    assert reader.pushFilters([GreaterThan(("sequence",), first + 6), left]) == [left]
    (partition,) = reader.partitions()
    assert (partition.value.start, partition.value.end) == (first + 7, first + 10)
