"""Calling a stream reader as Spark does."""

import pickle

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_nsq.source.offsets import Offset

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


def positions(offset):
    """The positions of an offset, by the names of the logs."""
    return Offset.parse(offset).positions


def log_name(topic, nsqd):
    """The name of a log in an offset."""
    return f"{topic}@{nsqd.http_address}"


def bodies_of(reader, start, end):
    return sorted(row["body"] for row in rows_of(reader, start, end))
