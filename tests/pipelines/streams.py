"""The readers called as Spark's engine calls them, without a JVM: batches, and kills between them."""

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.offsets import Offset
from pyspark_nsq.source.stream_reader import NsqStreamReader

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


def rows_of_table(reader):
    """Read all partitions of a batch read."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


class Killed(Exception):
    """The driver was killed."""


@dataclass
class Query:
    """A query with a checkpoint and a sink that keeps the rows of each batch."""

    nodes: Any
    topic: str
    options: dict[str, str] = field(default_factory=dict)
    first: dict[str, Any] | None = None
    offsets: list[str] = field(default_factory=list)
    stored: dict[int, list[bytes]] = field(default_factory=dict)
    committed: int = -1

    @property
    def bodies(self) -> list[bytes]:
        """Every row in the sink."""
        return [body for number in sorted(self.stored) for body in self.stored[number]]

    def run(self, *, limit: int = 1 << 40, batches: int = 1 << 40, die: str = "", **changes: str) -> str:
        """Run once with Trigger.AvailableNow; return the sentence of the error that ended it, or nothing.

        *die* is "planned" or "stored": the driver is killed after that step of the first batch.
        """
        reader = NsqStreamReader(self.nodes.parsed(self.topic, **{**self.options, **changes}))
        try:
            self._run(reader, ReadMaxRows(limit), batches, die)
        except SourceError as error:
            return error.sentence
        except Killed:
            return "killed"
        finally:
            reader.stop()
        return ""

    def _run(self, reader: NsqStreamReader, limit: ReadMaxRows, batches: int, die: str) -> None:
        reader.prepareForTriggerAvailableNow()
        start = self._resume(reader)
        for _ in range(batches):
            end = _kept(reader.latestOffset(start, limit))
            if end == start:
                return
            number = len(self.offsets)
            self.offsets.append(json.dumps(end))
            if number:
                reader.commit(start)
            if die == "planned":
                raise Killed
            self.stored[number] = _bodies(reader, start, end)
            if die == "stored":
                raise Killed
            self.committed = number
            start = end

    def _resume(self, reader: NsqStreamReader) -> Any:
        """Repeat a batch that was planned but not noted as stored; return where the next one begins."""
        if not self.offsets:
            return _kept(reader.initialOffset())
        last = len(self.offsets) - 1
        end = json.loads(self.offsets[last])
        if last > self.committed:
            start = json.loads(self.offsets[last - 1]) if last else _kept(reader.initialOffset())
            self.stored[last] = _bodies(reader, start, end)
            self.committed = last
        return end


def _kept(offset: Any) -> Any:
    """The offset as it is read back from the checkpoint."""
    return json.loads(json.dumps(offset))


def _bodies(reader: NsqStreamReader, start: Any, end: Any) -> list[bytes]:
    return [row["body"] for row in rows_of(reader, start, end)]
