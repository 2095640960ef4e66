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
        ([GreaterThan(("timestamp",), MOMENT)], Interval(US + 1, None)),
    ],
)
def test_filters_on_sequence_and_time_are_intervals(filters, span):
    window = FilterWindow()

    assert all(window.narrow(one) for one in filters)
    assert span in (window.sequences, window.times_us)


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


def test_values_of_in_are_interval_that_spark_filters_again():
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


def test_rows_outside_interval_of_time_are_left_out():
    times = [7, 2, 5, 9, 5]
    frames = b"".join(
        encode_frame(FRAME_MESSAGE, MessageRecord(us * 1000, 1, b"%016x" % n, b"").encode())
        for n, us in enumerate(times)
    )
    (batch,) = TimeInterval(MessageColumns(("sequence",)), Interval(5, 7)).batches(
        decode_frames(frames), Origin("t", "", "n:1")
    )

    assert batch["sequence"].to_pylist() == list(np.flatnonzero([True, False, True, False, True]))
    none = TimeInterval(MessageColumns(("sequence",)), Interval(10, None))
    assert list(none.batches(decode_frames(frames), Origin("t", "", "n:1"))) == []


def test_filtered_read_has_only_partitions_with_wanted_rows(nodes, topic):
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, *(b"%d" % n for n in range(10)))
    nsqd = nodes.nsqds[1]
    first = bounds(nsqd, topic)["first"]
    reader = NsqFilteredReader(nodes.parsed(topic, channel=""))
    left = StringContains(("topic",), "x")
    chosen = [EqualTo(("nsqd",), nsqd.http_address), GreaterThan(("sequence",), first + 6)]

    assert reader.pushFilters([*chosen, left]) == [left]
    (partition,) = reader.partitions()
    part = partition.value
    assert (part.nsqd, part.start, part.end) == (nsqd.http_address, first + 7, first + 10)
