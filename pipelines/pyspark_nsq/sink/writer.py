"""``df.write.format("nsq")`` and ``df.writeStream.format("nsq")``: each task publishes its rows."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.sink.outgoing import DEDUP, check_columns, outgoing
from pyspark_nsq.sink.publisher import Publisher, certain_nsqds, check_dedup_window
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.one_sentence import in_one_sentence

log: Final = logging.getLogger("pyspark_nsq.sink")


@dataclass(frozen=True, slots=True)
class PublishedRows(WriterCommitMessage):
    """The result of one task."""

    messages: int
    resent: int


class _Writing:
    """The common part of both writers."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic cannot be overwritten; write with .mode("append")')
        check_columns(schema, options.topic)
        self._options = options
        # All tasks and their repetitions get the list of the driver: each assigns ids to nsqds by itself.
        self._nsqds = _certain_nsqds(options) if DEDUP in schema.names else []

    @in_one_sentence
    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:
        """Publish the rows of one partition."""
        context = TaskContext.get()
        publisher = Publisher(self._options, context.partitionId() if context else 0, self._nsqds)
        try:
            row = 0
            for batch in iterator:
                for one in outgoing(
                    batch,
                    self._options.topic,
                    self._options.max_batch_bytes,
                    max_body=publisher.max_body(),
                    row=row,
                ):
                    publisher.publish(one)
                row += batch.num_rows
        finally:
            publisher.close()
        # A repeated task publishes all of its rows again; how many were published before is unknown.
        repeated = context is not None and context.attemptNumber() > 0
        return PublishedRows(publisher.messages, publisher.messages if repeated else publisher.resent)


class NsqWriter(_Writing, DataSourceArrowWriter):
    """A batch write."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_result("", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_result("the write failed: ", messages)


class NsqStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """A streaming write: at least once, because Spark repeats a batch whose end it has not recorded."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_result(f"batch {batchId}: ", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_result(f"batch {batchId} failed and will be published again: ", messages)


def _certain_nsqds(options: SinkOptions) -> list[str]:
    asking = Asking(options)
    try:
        nsqds = certain_nsqds(options, asking)
        if options.topic:
            check_dedup_window(options, asking, nsqds)
        return nsqds
    finally:
        asking.close()


def _log_result(beginning: str, messages: list[WriterCommitMessage | None]) -> None:
    """Log the number of published messages, if some of them may exist twice.

    Earlier publishes of a killed driver or a repeated stage are unknown.
    """
    done = [one for one in messages if isinstance(one, PublishedRows)]
    again = sum(one.resent for one in done)
    if again or len(done) < len(messages):
        total = sum(one.messages for one in done)
        log.warning("%s%d messages are published, at least %d of them perhaps twice", beginning, total, again)
