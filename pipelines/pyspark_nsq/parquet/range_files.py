"""The Parquet files of one range: written elsewhere first, and put in place when they are complete.

A reader of the output sees a complete file or none. A file is synced before it is moved, because nsqd may
drop the messages as soon as the batch is acknowledged.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_nsq.parquet.layout import (
    BY_HOUR,
    US_PER_HOUR,
    PartitionColumn,
    file_name,
    folder_of,
    json_of,
)
from pyspark_nsq.parquet.storage import Storage
from pyspark_nsq.source.arrays import flags, values_of
from pyspark_nsq.source.columns import ARROW_SCHEMA, NOT_SEARCHED, UNIQUE
from pyspark_nsq.source.planner import LogRange

# Rows of one file are collected up to this size, and those of all files to four times of it. This limits the
# memory of a task.
_ROW_GROUP_BYTES: Final = 32 << 20
_BUFFER_BYTES: Final = 4 * _ROW_GROUP_BYTES
# Messages come nearly in order of time, so a range rarely needs more than two hours. Members of JSON bodies
# may have many values.
_MAX_OPEN: Final = 64

# For the other columns Parquet would build a dictionary and then drop it.
_DICTIONARY: Final = [*(name for name in ARROW_SCHEMA.names if name not in UNIQUE), "headers.key_value.key"]
_STATISTICS: Final = [name for name in ARROW_SCHEMA.names if name not in NOT_SEARCHED]
_ENCODING: Final = {
    "sequence": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "message_id": "DELTA_BYTE_ARRAY",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is in its place."""

    path: str
    name: str
    """The path below the output."""
    messages: int
    size: int


@dataclass(slots=True)
class _OpenFile:
    """The rows of one folder, collected for one file."""

    storage: Storage
    name: str
    unfinished: Path
    writer: Any
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_bytes: int = 0
    messages: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.buffered.append(batch)
        self.buffered_bytes += batch.nbytes
        self.messages += batch.num_rows
        if self.buffered_bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def finish(self) -> Written:
        """Write the footer and put the file in its place."""
        self.flush()
        self.writer.close()
        size = self.unfinished.stat().st_size
        return Written(self.storage.finish(self.unfinished, self.name), self.name, self.messages, size)

    def abandon(self) -> None:
        # Closing may fail for the same reason as writing, such as a full disk.
        with suppress(OSError, pa.ArrowException):
            self.writer.close()
        self.unfinished.unlink(missing_ok=True)

    def flush(self) -> None:
        """Write the collected rows."""
        if self.buffered:
            self.writer.write_table(pa.Table.from_batches(self.buffered))
            self.buffered, self.buffered_bytes = [], 0


def file_writer(path: Path, schema: pa.Schema) -> Any:
    """Return a writer for a file of messages, with settings that suit their columns."""
    return pq.ParquetWriter(
        str(path),
        schema,
        # Half the size that snappy gives, at the same cost.
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARY,
        column_encoding=_ENCODING,
        write_statistics=_STATISTICS,
        # Without Arrow's own description of the types the files are more like Spark's.
        store_schema=False,
    )


class RangeFiles:
    """Writes the messages of one range to a place, in a folder for each value of the partition columns.

    As a context manager it removes unfinished files at the end of the block, also after an error.
    """

    def __init__(
        self,
        place: Storage,
        part: LogRange,
        schema: pa.Schema = ARROW_SCHEMA,
        attempt: str = "",
        by: Sequence[PartitionColumn] = BY_HOUR,
    ) -> None:
        """With an *attempt*, earlier files of the same range are not replaced."""
        self._storage = place
        self._part = part
        self._schema = schema
        self._attempt = attempt
        self._by = by
        # By folder; the one that was written to last comes last.
        self._open: dict[str, _OpenFile] = {}
        self._begun: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def write(self, batch: pa.RecordBatch) -> Iterator[Written]:
        """Add the rows of *batch*; yield the files that were finished to make room."""
        for folder, rows in _by_folder(batch, self._by):
            file = self._open.pop(folder, None)
            if file is None:
                if len(self._open) == _MAX_OPEN:
                    oldest = next(iter(self._open))
                    yield self._finish(oldest)
                file = self._begin(folder)
            self._open[folder] = file
            file.add(rows)
        if sum(file.buffered_bytes for file in self._open.values()) > _BUFFER_BYTES:
            for file in self._open.values():
                file.flush()

    def finish(self) -> Iterator[Written]:
        """Finish all files and yield them."""
        while self._open:
            yield self._finish(next(iter(self._open)))

    def _begin(self, folder: str) -> _OpenFile:
        number = self._begun.get(folder, 0)
        self._begun[folder] = number + 1
        name = f"{folder}/{file_name(self._part, number, self._attempt)}"
        unfinished = self._storage.unfinished(name)
        writer = file_writer(unfinished, self._schema)
        return _OpenFile(self._storage, name, unfinished, writer)

    def _finish(self, folder: str) -> Written:
        # Removed only afterwards, so that a file whose finishing fails is abandoned.
        written = self._open[folder].finish()
        del self._open[folder]
        return written


def _by_folder(batch: pa.RecordBatch, by: Sequence[PartitionColumn]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each folder, in the order in which the folders appear."""
    hours = values_of(batch.column("timestamp"), np.int64) // US_PER_HOUR
    if not any(column.path for column in by):
        found, first, which = np.unique(hours, return_index=True, return_inverse=True)
        folders = [folder_of(by, int(hour)) for hour in found]
    else:
        numbers: dict[str, int] = {}
        which = np.array(
            [
                numbers.setdefault(folder_of(by, int(hour), json_of(body)), len(numbers))
                for hour, body in zip(hours, batch.column("body").to_pylist(), strict=True)
            ]
        )
        folders, first = list(numbers), np.arange(len(numbers))
    if len(folders) == 1:
        yield folders[0], batch
        return
    for number in np.argsort(first):
        yield folders[number], batch.filter(flags(which == number))
